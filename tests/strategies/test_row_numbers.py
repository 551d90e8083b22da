"""Workers whose inputs number rows in other dtypes train the same."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import layers, optimizers
from paceline.strategies import VariableStore

from ..threads import in_threads

ROWS = [[[0, 2, 2], [4]], [[1, 2], []]]  # by worker and step: one has no example in the last


def trained(strategy, rank, dtypes, lookup):
    """The table after a loop over the rows of a worker."""
    with VariableStore(seed=1).building():
        with strategy.scope():
            optimizer = optimizers.Adam(0.1)
            embedding = layers.Embedding(5, 2, name="table", dtype="float64")

        def step(numbers):
            with pl.GradientTape() as tape:
                loss = np.sum(np.square(lookup(embedding, numbers)))
            (table,) = embedding.trainable_weights
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        for numbers in ROWS[rank]:
            strategy.run(step, (np.array(numbers, dtypes[rank]),))
        with strategy.scope():
            return embedding.get_weights()[0]


def by_index(embedding, numbers):
    embedding(numbers[:0])
    return embedding.trainable_weights[0][numbers]


LOOKUPS = {"a layer": lambda embedding, numbers: embedding(numbers), "an index": by_index}


@pytest.mark.parametrize("dtypes", [("int64", "int32"), ("int32", "int64"), ("uint8", "uint64")])
@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
@pytest.mark.parametrize("place", ["workers", "servers in step"])
def test_row_numbers_of_any_dtype_are_of_the_same_rows(
    on_workers, server_job, place, lookup, dtypes
):
    def on_both(dtypes):
        def work(strategy, rank):
            return trained(strategy, rank, dtypes, lookup)

        if place == "workers":
            return on_workers(2, 1, work)
        job = server_job(2, 2, 0)
        return in_threads(2, lambda rank: work(job.strategy(rank), rank))

    expected = on_both(("int64", "int64"))
    for table in on_both(dtypes):
        np.testing.assert_array_equal(table, expected[0])
