"""What is aggregated over all workers can be asked for by hooks of some of them."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import SessionRunArgs, SessionRunHook
from paceline.nn import layers, metrics, optimizers

MEAN = "batch_normalization/moving_mean"
WIDTH = 3
NUM_STEPS = 3


class Asks(SessionRunHook):
    """Asks for names in some of the steps."""

    def __init__(self, names, steps):
        self.names = names
        self.steps = steps
        self.step = 0
        self.found = {}

    def before_run(self, run_context):
        return SessionRunArgs(self.names) if self.step in self.steps else None

    def after_run(self, run_context, run_values):
        if self.step in self.steps:
            self.found[self.step] = run_values.results
        self.step += 1


def model_fn(features, labels, mode):
    hidden = layers.BatchNormalization(momentum=0.5, dtype=np.float64)(features, training=True)
    loss = np.mean(np.square(layers.Dense(1, dtype=np.float64)(hidden) - labels))
    if mode == pl.ModeKeys.EVAL:
        total = metrics.Sum(name="total")
        total.update_state(labels)
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"total": total})
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


def batches_of(worker):
    rng = np.random.default_rng(worker)
    return rng.normal(size=(NUM_STEPS, 4, WIDTH)), np.full((NUM_STEPS, 4, 1), 1.0 + worker)


def input_fn_of(worker):
    return lambda: pl.Dataset.from_tensor_slices(batches_of(worker))


@pytest.mark.parametrize("steps", [{0}, {1}, {0, 1, 2}], ids=str)
@pytest.mark.parametrize("asking", [{0}, {1}, {0, 1}], ids=lambda who: f"workers {who}")
def test_hooks_of_any_worker_see_the_value_over_all(on_workers, tmp_path, asking, steps):
    """Also where other workers have no such hook, as with one of the chief alone."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        hook = Asks({"mean": MEAN, "loss": "loss"}, steps)
        estimator = pl.Estimator(model_fn, tmp_path, config)
        estimator.train_and_report(input_fn_of(index), hooks=[hook] if index in asking else [])
        return hook.found

    found = on_workers(2, 1, work)
    means = [np.zeros(WIDTH), np.zeros(WIDTH)]
    for step in range(NUM_STEPS):
        means = [0.5 * m + 0.5 * batches_of(w)[0][step].mean(axis=0) for w, m in enumerate(means)]
        for worker in asking if step in steps else ():
            seen = found[worker][step]["mean"]
            np.testing.assert_allclose(seen, np.mean(means, axis=0), rtol=1e-9)


def test_an_evaluation_hook_of_one_worker_sees_the_sum_over_all(on_workers, tmp_path):
    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
        estimator = pl.Estimator(model_fn, tmp_path, config)
        estimator.train(input_fn_of(index), steps=1)
        hook = Asks("total/total", {0, 1, 2})
        results = estimator.evaluate(input_fn_of(index), hooks=[hook] if index == 1 else [])
        return results["total"], hook.found

    (total, _), (_, seen) = on_workers(2, 1, work)
    assert seen == {step: (step + 1) * 4 * (1.0 + 2.0) for step in range(NUM_STEPS)}
    assert total == seen[NUM_STEPS - 1]
