"""`overlap=True` where batches are empty, and at the end: the exchange of a step counts once."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.estimator.saving import CheckpointShards
from paceline.nn import optimizers

from ...threads import in_threads

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


class Notes(SessionRunHook):
    """What a trainer has at its end."""

    def end(self, session):
        self.step = session.global_step
        self.values = {name: v.numpy() for name, v in session.store.variables.items()}


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1), initializer=0.0)
    table = pl.get_variable("table", (5, 1), initializer=0.0)
    rows = np.take(table, np.array([1, 2, 1]), axis=0)
    loss = np.mean(np.square(features @ w - labels)) + np.mean(np.square(rows - 1))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(0.05).minimize(loss))


def batches_of(sizes):
    ends = np.cumsum(sizes)
    return [(X[end - n : end], Y[end - n : end]) for n, end in zip(sizes, ends, strict=True)]


@pytest.fixture
def run(server_job, tmp_path):
    """`run(sizes, num_replicas, overlaps)`: `Notes` of each trainer, given its batches' sizes."""
    counter = iter(range(100))

    def run(sizes, num_replicas=1, overlaps=True, max_staleness=None):
        model_dir = tmp_path / f"{next(counter)}"
        storage = CheckpointShards(3, str(model_dir))
        job = server_job(2, len(sizes), max_staleness, overlaps=overlaps, storage=storage)
        notes = [Notes() for _ in sizes]

        def train(rank):
            strategy = job.strategy(rank, num_replicas)
            config = pl.RunConfig(model_dir=str(model_dir), train_distribute=strategy)
            data = batches_of(sizes[rank])
            pl.Estimator(model_fn, config=config).train_and_report(
                lambda: pl.Dataset.from_generator(lambda: iter(data)), hooks=[notes[rank]]
            )
            strategy.extended.job.share_result("")

        in_threads(len(sizes), train)
        return notes

    return run


@pytest.mark.parametrize("max_staleness", [None, 2])
@pytest.mark.parametrize(
    ("sizes", "num_replicas"),
    [([0, 4, 4, 0, 0, 4, 4, 0], 1), ([4, 4, 0, 0, 4, 4, 0, 0], 2)],
    ids=["one replica", "two replicas"],
)
def test_batches_that_are_empty_are_passed_over(run, max_staleness, sizes, num_replicas):
    full = [n for n in sizes if n]
    (expected,) = run([full], num_replicas, max_staleness=max_staleness)
    (found,) = run([sizes], num_replicas, max_staleness=max_staleness)
    assert found.step == expected.step == len(full) // num_replicas
    for name, value in expected.values.items():
        np.testing.assert_array_equal(found.values[name], value, err_msg=name)


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("sizes", [([4, 0], [0, 0, 4, 0]), ([0, 4, 4], [4, 0, 4, 4])])
def test_each_trainer_has_its_own_last_step_at_the_end(run, overlaps, sizes):
    chief, other = run(sizes, overlaps=overlaps)
    own = sum(n > 0 for n in sizes[1])
    assert chief.step == sum(n > 0 for n in sizes[0]) + own
    assert other.step >= own
    assert other.values["global_step"] == other.step
    assert np.any(other.values["w"])
