"""A gradient of some rows changes a variable as the dense one does; lazily only when asked to."""

import numpy as np
import pytest

from paceline import Variable
from paceline.autodiff import IndexedSlices
from paceline.nn.optimizers import SGD, Adagrad, Adam, AdamW, Ftrl, RMSprop
from paceline.strategies import FixedShardsPartitioner, get_replica_context

OPTIMIZERS = {
    "SGD": lambda **options: SGD(0.1, **options),
    "momentum": lambda **options: SGD(0.1, momentum=0.9, **options),
    "Nesterov": lambda **options: SGD(0.1, momentum=0.9, nesterov=True, **options),
    "Adam": lambda **options: Adam(0.1, **options),
    "AdamW": lambda **options: AdamW(0.1, **options),
    "Adagrad": lambda **options: Adagrad(0.1, **options),
    "RMSprop": lambda **options: RMSprop(0.1, **options),
    "RMSprop, all": lambda **options: RMSprop(0.1, momentum=0.9, centered=True, **options),
    "Ftrl": lambda **options: Ftrl(0.1, l1_regularization_strength=0.1, **options),
    "clipnorm": lambda **options: Adam(0.1, clipnorm=0.5, **options),
}
every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))

ROWS, WIDTH = 7, 3


def gradient_of(step, replica, num_rows=ROWS, width=WIDTH):
    """Rows that differ from step to step, some of them twice; in step 2 none at all."""
    rng = np.random.default_rng([step, replica])
    rows = rng.integers(0, num_rows, 0 if step == 2 else 4)
    return IndexedSlices(rng.normal(size=(len(rows), width)), rows, (num_rows, width))


def train(strategy, make, num_steps=5, **options):
    """A table after steps along rows, and one after the same along whole gradients."""
    with strategy.scope():
        by_rows, whole = (Variable(np.ones((ROWS, WIDTH)), name=n) for n in ("rows", "whole"))
        optimizer = make(**options)

        def step(number):
            gradient = gradient_of(number, get_replica_context().replica_id_in_sync_group)
            optimizer.apply_gradients([(gradient, by_rows), (gradient.to_dense(), whole)])

        for number in range(num_steps):
            strategy.run(step, (number,))
    return by_rows.numpy(), whole.numpy()


@every_optimizer
def test_rows_and_whole_gradients_give_the_same_values(make, every_strategy):
    by_rows, whole = train(every_strategy, make)
    np.testing.assert_allclose(by_rows, whole, rtol=1e-12)


@every_optimizer
@pytest.mark.parametrize("num_shards", [2, 5])
def test_so_do_they_on_servers_that_have_no_row_of_a_step(make, num_shards, server_job):
    partitioner = FixedShardsPartitioner(num_shards)
    by_rows, whole = train(server_job(2, 1, partitioner=partitioner).strategy(), make)
    np.testing.assert_allclose(by_rows, whole, rtol=1e-12)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_so_do_they_over_workers_of_which_none_has_rows_in_a_step(name, on_workers):
    for by_rows, whole in on_workers(2, 2, lambda strategy, _: train(strategy, OPTIMIZERS[name])):
        np.testing.assert_allclose(by_rows, whole, rtol=1e-12)


@pytest.mark.parametrize("shape", [(9000, 16), (70_000,), (3, 40_000), (2, 5, 20_000)])
def test_a_large_table_changes_as_a_whole(shape):
    """Larger than what is updated at a time, by many rows or by long ones."""
    by_rows, whole = Variable(np.ones(shape)), Variable(np.ones(shape))
    optimizer = Adam(0.1)
    for step in range(3):
        rows = np.unique(np.random.default_rng(step).integers(0, shape[0], 50))
        slices = IndexedSlices(np.full((len(rows), *shape[1:]), 1.0 + step), rows, shape)
        optimizer.apply_gradients([(slices, by_rows), (slices.to_dense(), whole)])
    np.testing.assert_array_equal(by_rows.numpy(), whole.numpy())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("on_servers", [False, True], ids=["local", "on servers"])
def test_lazily_rows_that_are_not_read_stay_as_they_are(name, on_servers, mirrored, server_job):
    strategy = server_job(2, 1).strategy() if on_servers else mirrored(1)
    with strategy.scope():
        table = Variable(np.ones((3, 2)))
        optimizer = OPTIMIZERS[name](sparse="lazy")

        def read(row):
            slices = IndexedSlices(np.ones((1, 2)), np.array([row]), (3, 2))
            optimizer.apply_gradients([(slices, table)])

        strategy.run(read, (1,))
        after_one = table.numpy()
        strategy.run(read, (2,))
    np.testing.assert_array_equal(table.numpy()[:2], after_one[:2])
    np.testing.assert_array_equal(after_one[[0, 2]], 1)
    assert (after_one[1] != 1).all()
    assert (table.numpy()[2] != 1).all()


def test_other_ways_are_unknown():
    with pytest.raises(ValueError, match="sparse must be 'dense' or 'lazy', it is 'fast'"):
        Adam(sparse="fast")
