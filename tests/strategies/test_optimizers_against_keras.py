"""Optimizers go where Keras's go, on every strategy, whether gradients are whole or of rows."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices
from paceline.nn import optimizers
from paceline.strategies import Variable, get_replica_context

PEERS = Path(__file__).parents[1] / "peers"
SPEC = importlib.util.spec_from_file_location("cases", PEERS / "make_keras_optimizers.py")
cases = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cases)
KERAS = dict(np.load(PEERS / "keras_optimizers.npz"))
WHOLE = ("Lamb", "Adafactor")
"""Those that look at whole variables, which parameter servers refuse."""


def made(case, **more):
    return getattr(optimizers, cases.CASES[case][0])(**cases.options(case), **more)


def flat(variables):
    return np.concatenate([np.ravel(v.numpy()) for v in variables])


def trained(strategy, optimizer, rows=False, rank=0):
    """The variables after each step, in which this worker's replicas have parts of the gradient."""
    n = strategy.num_replicas_in_sync

    def step(gradients):
        # Parts that differ, and add up to the whole with little rounding.
        replica = get_replica_context()
        share = (replica.replica_id_in_sync_group + 1) / (n * (n + 1) / 2)
        given = [share * g for g in gradients]
        if rows:
            given[0] = IndexedSlices(given[0], np.arange(len(given[0])), given[0].shape)
        optimizer.apply_gradients(zip(given, variables, strict=True))

    path = []
    with strategy.scope():
        variables = [
            Variable(start, name=name)
            for start, name in zip(cases.starts(), cases.SHAPES, strict=True)
        ]
    for gradients in cases.gradients():
        strategy.run(step, (gradients,))
        path.append(flat(variables))
    if optimizer.use_ema:
        optimizer.finalize_variable_values(variables)
        path.append(flat(variables))
    return np.stack(path)


@pytest.mark.parametrize("case", cases.CASES)
def test_an_optimizer_goes_where_keras_goes(case, mirrored):
    for num_replicas, rows in (1, False), (1, True), (2, False), (2, True):
        found = trained(mirrored(num_replicas), made(case), rows)
        np.testing.assert_allclose(found, KERAS[case], rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("case", cases.CASES)
def test_an_optimizer_does_so_on_two_workers(case, on_workers):
    if "clipped" in case:
        pytest.skip("clipping is after the sum, which tests of clipping see to")
    for found in on_workers(2, 1, lambda strategy, index: trained(strategy, made(case))):
        np.testing.assert_allclose(found, KERAS[case], rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("case", cases.CASES)
def test_an_optimizer_does_so_on_parameter_servers_or_refuses(case, server_job):
    strategy = server_job(2, 1, 0).strategy(num_replicas=2)
    if cases.CASES[case][0] in WHOLE:
        with pytest.raises(ValueError, match="looks at whole variables, which parameter servers"):
            trained(strategy, made(case))
        return
    found = trained(strategy, made(case))
    np.testing.assert_allclose(found, KERAS[case], rtol=2e-4, atol=2e-6)


SPARSE = [case for case in cases.CASES if "accumulated" not in case]


def few_rows(optimizer, dense, num_steps=6):
    """A table after steps that each read some of its rows; as rows, or as the whole they mean."""
    rng = np.random.default_rng(2)
    table = Variable(rng.normal(size=(6, 2)), name="table")
    for step in range(num_steps):
        rows = np.array([step % 4, 1, 1])
        slices = IndexedSlices(rng.normal(size=(3, 2)), rows, (6, 2))
        optimizer.apply_gradients([(slices.to_dense() if dense else slices, table)])
    return table.numpy()


@pytest.mark.parametrize("case", cases.CASES)
def test_rows_are_what_the_dense_gradient_with_zeros_is(case):
    np.testing.assert_allclose(
        few_rows(made(case), dense=False), few_rows(made(case), dense=True), rtol=1e-12
    )


@pytest.mark.parametrize("case", SPARSE)
def test_lazily_rows_that_were_not_read_stay_or_it_is_refused(case):
    if cases.CASES[case][0] in WHOLE:
        with pytest.raises(ValueError, match="sparse='lazy' changes single rows, and"):
            made(case, sparse="lazy")
        return
    start = np.random.default_rng(2).normal(size=(6, 2))
    table = few_rows(made(case, sparse="lazy"), dense=False)
    assert (table[4:] == start[4:]).all()
    assert (table[:4] != start[:4]).any(axis=1).all()
