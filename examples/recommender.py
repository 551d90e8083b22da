"""Learn who clicks on what, with tables that no worker ever holds whole.

    paceline launch --workers 2 --ps 2 examples/recommender.py     # tables on parameter servers
    paceline launch --workers 2 examples/recommender.py            # a copy of them on each worker
    python examples/recommender.py --rows 100000                   # one process

The model is wide and deep: a vector for each of a million users and items, and a number for each of
a million hashed crosses of a user, or an item, and the time of day. The clicks are drawn from a
known law, so that the best possible AUC is known, too. Some users and items are far more popular
than others; a step reads and changes the few rows that are in its batch, and only these travel.
Run again with more `--steps`, it goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import paceline as pl
from paceline.nn import layers, losses, metrics, optimizers

WIDTH = 16
NUM_HOURS = 4
POPULARITY = 1.4


def model_fn(features, labels, mode, params):
    """Logit of a click: a linear layer over two vectors, and the sum of two numbers."""
    vectors = layers.Embedding(params["rows"], WIDTH, name="deep")(features["ids"])
    numbers = layers.Embedding(params["rows"], 1, "zeros", name="wide")(features["crosses"])
    deep = layers.Dense(1)(layers.Flatten()(vectors))
    logits = deep[:, 0] + np.sum(numbers, axis=(1, 2))
    if mode == pl.ModeKeys.PREDICT:
        return pl.EstimatorSpec(mode, predictions={"logit": logits})

    loss = np.mean(losses.binary_crossentropy(labels[:, None], logits[:, None], from_logits=True))
    if mode == pl.ModeKeys.EVAL:
        trained, best = metrics.AUC(from_logits=True), metrics.AUC(from_logits=True, name="best")
        trained.update_state(labels, logits)
        best.update_state(labels, features["true_logit"])
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"auc": trained, "best": best})

    # Each row has a learning rate of its own, which falls with the number of its clicks.
    optimizer = optimizers.Adagrad(
        params["learning_rate"], initial_accumulator_value=1e-6, sparse="lazy"
    )
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


class Clicks:
    """Clicks without end, each batch a function of its number.

    Args:
        rows: Of each table; the first half of them are users, the others are items.
        batch_size: Examples in a batch.
    """

    def __init__(self, rows, batch_size):
        self.rows = rows
        self.batch_size = batch_size
        rng = np.random.default_rng(0)
        self.effects = rng.normal(0, 1, rows).astype(np.float32)
        self.cross_effects = rng.normal(0, 0.3, rows).astype(np.float32)

    def batch(self, index):
        """Features and labels. The true logit is among the features, to compare with."""
        rng = np.random.default_rng([1, int(index)])
        ids = np.stack([self._popular(rng), self._popular(rng) + self.rows // 2], axis=1)
        hours = rng.integers(0, NUM_HOURS, (self.batch_size, 1))
        crosses = _hashed(ids * NUM_HOURS + hours, self.rows)
        logit = self.effects[ids].sum(axis=1) + self.cross_effects[crosses].sum(axis=1) - 0.5
        clicked = rng.random(self.batch_size) < 1 / (1 + np.exp(-logit))
        features = {"ids": ids, "crosses": crosses, "true_logit": logit}
        return features, clicked.astype(np.float32)

    def dataset(self, first, stop):
        """Batches number `first` to `stop`."""
        return pl.Dataset.range(first, stop).map(self.batch)

    def _popular(self, rng):
        """Numbers below half the rows, the r-th most popular of them as r to minus `POPULARITY`."""
        num, exponent = self.rows // 2, 1 - POPULARITY
        share = rng.random(self.batch_size) * (1 - num**exponent)
        rank = np.minimum((1 - share) ** (1 / exponent), num).astype(np.int64) - 1
        return rank * 2_654_435_761 % num  # a prime: the popular ones are all over the table


def _hashed(numbers, num_buckets):
    """Buckets of whole numbers (Fibonacci hashing)."""
    spread = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (spread >> np.uint64(16)).astype(np.int64) % num_buckets


class WireHook(pl.estimator.SessionRunHook):
    """Counts what this worker and the parameter servers send each other in a step."""

    def __init__(self):
        self.megabytes = []

    def before_run(self, run_context):
        return pl.estimator.SessionRunArgs("megabytes")

    def after_run(self, run_context, run_values):
        self.megabytes.append(run_values.results)

    @property
    def bytes_per_step(self):
        """The mean; the first step, in which the tables are filled, does not count."""
        return 1e6 * float(np.mean(np.diff(self.megabytes)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model-dir", default="runs/recommender", help="where checkpoints go")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each table")
    parser.add_argument("--steps", type=int, default=4000, help="the global step to train to")
    parser.add_argument("--batch-size", type=int, default=1024, help="examples per worker and step")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    args = parser.parse_args()

    clicks = Clicks(args.rows, args.batch_size)
    num_tests = max(1, 50_000 // args.batch_size)

    def train_input_fn(input_context):
        batches = clicks.dataset(num_tests, num_tests + 10**9)
        return batches.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    def test_input_fn():
        return clicks.dataset(0, num_tests)

    num_servers = pl.cluster.resolve(os.environ).cluster_spec().num_tasks("ps")
    wire = WireHook()
    if num_servers:
        pieces = pl.strategies.MinSizePartitioner(64 << 10, max_shards=num_servers)
        strategy = pl.ParameterServerStrategy(variable_partitioner=pieces)
    else:
        strategy = pl.MultiWorkerMirroredStrategy(devices=["CPU:0"])
    recommender = pl.Estimator(
        model_fn,
        model_dir=args.model_dir,
        config=pl.RunConfig(
            train_distribute=strategy,
            eval_distribute=None if num_servers else strategy,
            log_step_count_steps=1000,
            tf_random_seed=1,
        ),
        params={"rows": args.rows, "learning_rate": args.learning_rate},
    )
    result = pl.train_and_evaluate(
        recommender,
        pl.TrainSpec(train_input_fn, args.steps, hooks=[wire] if num_servers else []),
        pl.EvalSpec(test_input_fn, steps=None),
    )
    if not recommender.config.is_chief or recommender.config.task_type == "evaluator":
        return  # the chief shows what came of it
    print(f"AUC {result.metrics['auc']:.4f}, at best {result.metrics['best']:.4f}")
    if len(wire.megabytes) > 1:
        table_bytes = 4 * args.rows * (WIDTH + 1)
        print(
            f"{wire.bytes_per_step / 1e3:.1f} kB on the wire for each step of a worker; "
            f"the tables have {table_bytes / 1e6:.1f} MB"
        )


if __name__ == "__main__":
    main()
