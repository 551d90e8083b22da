"""What is learned on parameter servers equals what replicas learn that are all in one process.

Servers and trainers are threads here; the rules, frames and checkpoints are those of processes.
"""

import threading

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline.estimator import LinearRegressor, SessionRunHook
from paceline.estimator.feature_column import numeric_column
from paceline.nn import layers, optimizers
from paceline.strategies import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
)

NUM_ROWS = 30
BATCH = 6


def model_fn(features, labels, mode, params):
    rows = layers.Embedding(NUM_ROWS, 4, name="table")(features["row"])
    hidden = layers.Dense(8, name="hidden")(np.concatenate([features["x"], rows], axis=1))
    if params.get("batch_norm"):
        training = mode == pl.ModeKeys.TRAIN
        hidden = layers.BatchNormalization(name="norm")(hidden, training=training)
    loss = np.mean(np.square(layers.Dense(1, name="out")(np.tanh(hidden)) - labels))
    train_op = params["optimizer"]().minimize(loss) if mode == pl.ModeKeys.TRAIN else None
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(input_context):
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 3)).astype(np.float32)
    rows = random.integers(0, NUM_ROWS, 240)
    dataset = pl.Dataset.from_tensor_slices(({"x": x, "row": rows}, x[:, :1]))
    count, index = input_context.num_input_pipelines, input_context.input_pipeline_id
    return dataset.batch(BATCH).shard(count, index).repeat()


def one_batch_input_fn():
    """The same batch in each step: a run that is cut in two ends like the one in one piece."""
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, 3)).astype(np.float32)
    return {"x": x, "row": random.integers(0, NUM_ROWS, BATCH)}, x[:, :1]


def config_of(model_dir, strategy, **more):
    return pl.RunConfig(
        model_dir=model_dir,
        train_distribute=strategy,
        tf_random_seed=1,
        save_checkpoints_steps=1000,
        **more,
    )


def trained(model_dir, strategy, num_steps, batches=input_fn, **params):
    """Train, and return the values of the last checkpoint."""
    estimator = pl.Estimator(model_fn, config=config_of(model_dir, strategy), params=params)
    estimator.train_and_report(batches, max_steps=num_steps)
    return values_in(model_dir)


def values_in(model_dir):
    return checkpoint.load(checkpoint.latest_checkpoint(model_dir)).arrays()


def train_on_servers(job, model_dir, num_steps, hooks=lambda rank: (), batches=input_fn, **params):
    """Train with all trainers of a job, and return the values of the last checkpoint."""

    def train(strategy, rank):
        estimator = pl.Estimator(model_fn, config=config_of(model_dir, strategy), params=params)
        estimator.train_and_report(batches, hooks=hooks(rank), max_steps=num_steps)

    job.train(train)
    return values_in(model_dir)


def require_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


OPTIMIZERS = {
    "SGD": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: optimizers.Adam(0.01),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
}
PARTITIONERS = {
    "whole": None,
    "3 shards": FixedShardsPartitioner(3),
    "at least 64 bytes": MinSizePartitioner(min_shard_bytes=64, max_shards=4),
    "at most 100 bytes": MaxSizePartitioner(max_shard_bytes=100),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("batch_norm", [False, True], ids=["", "batch norm"])
def test_one_worker_in_step_is_mirrored_over_one_replica_bit_for_bit(
    servers, tmp_path, optimizer, batch_norm
):
    params = {"optimizer": optimizer, "batch_norm": batch_norm}
    mirrored = pl.MirroredStrategy(["CPU:0"])
    expected = trained(tmp_path / "mirrored", mirrored, 12, **params)
    require_equal(train_on_servers(servers(2, 1), tmp_path / "ps", 12, **params), expected)


@pytest.mark.parametrize("max_staleness", [None, 0, 2])
@pytest.mark.parametrize("partitioner", PARTITIONERS.values(), ids=PARTITIONERS)
def test_es_22_how_variables_are_cut_changes_no_bit(servers, tmp_path, partitioner, max_staleness):
    params = {"optimizer": OPTIMIZERS["Adam"], "batch_norm": True}
    mirrored = pl.MirroredStrategy(["CPU:0"])
    expected = trained(tmp_path / "mirrored", mirrored, 8, **params)
    job = servers(3, 1, max_staleness, partitioner=partitioner)
    require_equal(train_on_servers(job, tmp_path / "ps", 8, **params), expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_two_workers_in_step_equal_two_replicas_to_rounding(servers, tmp_path, optimizer):
    params = {"optimizer": optimizer}
    mirrored = pl.MirroredStrategy(["CPU:0", "CPU:1"])
    expected = trained(tmp_path / "mirrored", mirrored, 12, **params)
    found = train_on_servers(servers(2, 2), tmp_path / "ps", 12, **params)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture
def goes_on(servers, tmp_path):
    """`goes_on(first, second)`: two runs of five steps end as one of ten, with all slots.

    Each of the two, given a model_dir and where to end, trains.
    """

    def compare(first, second):
        expected = first(tmp_path / "whole", 10)
        first(tmp_path / "cut", 5)
        require_equal(second(tmp_path / "cut", 10), expected)

    return compare


@pytest.fixture
def on_servers(servers):
    """`on_servers(number, partitioner)` trains there, given a model_dir and where to end."""

    def make(num_servers, partitioner=None):
        def train(model_dir, num_steps):
            job = servers(num_servers, 1, partitioner=partitioner)
            adam = OPTIMIZERS["Adam"]
            return train_on_servers(
                job, model_dir, num_steps, batches=one_batch_input_fn, optimizer=adam
            )

        return train

    return make


def on_mirrored(model_dir, num_steps):
    mirrored = pl.MirroredStrategy(["CPU:0"])
    adam = OPTIMIZERS["Adam"]
    return trained(model_dir, mirrored, num_steps, one_batch_input_fn, optimizer=adam)


@pytest.mark.parametrize(
    ("num_servers", "partitioner"),
    [
        (1, None),
        (2, None),
        (2, FixedShardsPartitioner(5)),
        (3, FixedShardsPartitioner(2)),
        (3, MaxSizePartitioner(max_shard_bytes=64)),
    ],
)
def test_a_table_split_in_two_is_restored_by_another_number_of_servers(
    goes_on, on_servers, num_servers, partitioner
):
    split = on_servers(2, FixedShardsPartitioner(2))
    goes_on(split, on_servers(num_servers, partitioner))


def test_es_22_a_table_split_in_two_is_restored_without_servers(goes_on, on_servers):
    goes_on(on_servers(2, FixedShardsPartitioner(2)), on_mirrored)


def test_a_table_in_one_piece_is_restored_by_servers(goes_on, on_servers):
    goes_on(on_mirrored, on_servers(2, FixedShardsPartitioner(2)))


class Clocks(SessionRunHook):
    """Notes how far each trainer is, and how far it is ahead of the slowest one."""

    def __init__(self, clocks, rank, pause):
        self._clocks = clocks
        self._rank = rank
        self._pause = pause
        self.lead = 0

    def after_run(self, run_context, run_values):
        self._clocks[self._rank] += 1
        if self._pause is not None:
            self._pause.wait(0.02)
        self.lead = max(self.lead, self._clocks[self._rank] - min(self._clocks))


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_nobody_is_further_ahead_than_the_bound_allows(servers, tmp_path, bound):
    """The slow one takes 20 ms a step, the fast one as little as it can."""
    clocks, hooks = [0, 0], []

    def watch(rank):
        hooks.append(Clocks(clocks, rank, threading.Event() if rank else None))
        return [hooks[-1]]

    job = servers(2, 2, bound)
    train_on_servers(job, tmp_path, 40, watch, optimizer=OPTIMIZERS["SGD"])
    # A step that was made is counted here a moment after it was counted on the servers.
    assert max(hook.lead for hook in hooks) <= bound + 2
    assert min(clocks) >= 40 // 2 - bound - 2


def test_without_a_bound_the_fast_one_runs_ahead(servers, tmp_path):
    clocks, hooks = [0, 0], []

    def watch(rank):
        hooks.append(Clocks(clocks, rank, threading.Event() if rank else None))
        return [hooks[-1]]

    train_on_servers(servers(2, 2, None), tmp_path, 200, watch, optimizer=OPTIMIZERS["SGD"])
    assert max(hook.lead for hook in hooks) > 20


class Figures(SessionRunHook):
    """Notes a figure of each step."""

    def __init__(self, name):
        self.values = []
        self._name = name

    def before_run(self, run_context):
        return pl.estimator.SessionRunArgs(self._name)

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def megabytes_a_step(job, model_dir, num_rows):
    """What a step with a table of so many rows sends and receives, when all is under way."""

    def model(features, labels, mode):
        rows = layers.Embedding(num_rows, 16, name="table")(features["row"])
        loss = np.mean(np.square(layers.Dense(1, name="out")(rows) - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adagrad(0.1).minimize(loss))

    def rows_input_fn():
        rows = np.random.default_rng(0).integers(0, num_rows, 640)
        labels = np.ones((640, 1), np.float32)
        return pl.Dataset.from_tensor_slices(({"row": rows}, labels)).batch(32)

    hook = Figures("megabytes")
    estimator = pl.Estimator(model, config=config_of(model_dir, job.strategy()))
    estimator.train_and_report(rows_input_fn, hooks=[hook])
    return (hook.values[-1] - hook.values[3]) / (len(hook.values) - 4)


def test_only_the_rows_of_a_batch_go_over_the_wire(servers, tmp_path):
    """32 rows of 16 float32 are 2 kB; the tables are 64 kB and 6.4 MB."""
    split = FixedShardsPartitioner(2)
    small, large = (
        megabytes_a_step(servers(2, 1, partitioner=split), tmp_path / str(n), n)
        for n in (1000, 100_000)
    )
    rows = 32 * 16 * 4 / 1e6
    assert 2 * rows <= small <= 2 * rows + 0.004, "rows pulled, and pushed, and little else"
    assert abs(large - small) < 0.0005


def test_g01_linear_regressor_on_parameter_servers(servers, tmp_path):
    """G-01: loss 1.0 at step 0, 2.877698e-13 at the last of ten, to the bit."""

    def feats_input_fn():
        return pl.Dataset.from_tensors(({"feats": [1.0]}, [1.0])).repeat(1000).batch(10)

    for max_staleness in (None, 0):
        hook = Figures("loss")
        config = config_of(tmp_path / str(max_staleness), servers(2, 1, max_staleness).strategy())
        regressor = LinearRegressor([numeric_column("feats")], optimizer="SGD", config=config)
        regressor.train_and_report(feats_input_fn, hooks=[hook], steps=10)
        assert hook.values[0] == 1.0
        assert np.float32(hook.values[-1]) == np.float32(2.877698e-13)
