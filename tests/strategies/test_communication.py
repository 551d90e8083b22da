"""CO-07, CO-11, CO-12: how workers talk to each other, and what gradients look like on the way."""

import logging

import numpy as np
import pytest

import paceline as pl
from paceline.cluster import SimpleClusterResolver
from paceline.collectives import DEFAULT_SILENCE_SECS, DEFAULT_TIMEOUT_SECS
from paceline.nn import optimizers
from paceline.strategies.workers.joining import BYTES_PER_PACK, join_workers

Implementation = pl.CommunicationImplementation


@pytest.mark.parametrize("spelling", ["RING", "ring", Implementation.RING])
def test_an_implementation_is_named_in_any_case(spelling):
    assert Implementation.parse(spelling) is Implementation.RING


@pytest.mark.parametrize("wrong", ["GLOO", "", 3, None])
def test_an_unknown_implementation_lists_the_known_ones(wrong):
    """CO-07."""
    with pytest.raises(ValueError, match="one of AUTO, RING, NCCL, MPI, not"):
        pl.CommunicationOptions(implementation=wrong)


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("bytes_per_pack", -1, "at least 0"),
        ("timeout_seconds", 0, "> 0"),
        ("timeout_seconds", float("nan"), "> 0"),
        ("start_timeout_secs", -1, "> 0"),
        ("silence_secs", 2.9, "at least 3.0"),
        ("silence_secs", float("nan"), "at least 3.0"),
        ("wire_dtype", "float8", "'float16' or None"),
        ("links", ("shm", "udp"), "some of shm, tcp, grpc, mpi"),
        ("links", (), "some of shm, tcp, grpc, mpi"),
    ],
)
def test_options_out_of_range_are_refused(option, value, rule):
    with pytest.raises(ValueError, match=f"{option} must be {rule}, (it is|they are) "):
        pl.CommunicationOptions(**{option: value})


def test_a_short_token_is_refused_and_not_shown():
    with pytest.raises(ValueError, match="token must have at least 16 characters, it has 6") as e:
        pl.CommunicationOptions(token="secret")
    assert "secret" not in str(e.value)


def test_in_a_merge_what_is_not_the_default_wins():
    """CO-12."""
    first = pl.CommunicationOptions(bytes_per_pack=1 << 20, timeout_seconds=5)
    second = pl.CommunicationOptions(timeout_seconds=7, implementation="RING")
    assert first.merge(second) == pl.CommunicationOptions(
        bytes_per_pack=1 << 20, timeout_seconds=7, implementation="RING"
    )
    assert first.merge(pl.CommunicationOptions()) == first


@pytest.mark.parametrize("name", ["timeout_seconds", "silence_secs"])
def test_co_12_the_documented_defaults_are_the_real_ones(name):
    """Both in the docstring of the options, by their numbers."""
    told = " ".join(pl.CommunicationOptions.__doc__.partition(f"{name}: ")[2].split())
    secs = {"timeout_seconds": DEFAULT_TIMEOUT_SECS, "silence_secs": DEFAULT_SILENCE_SECS}[name]
    assert told.partition("default of ")[2].startswith(f"{secs:.0f} s.")


def test_a_token_is_not_printed():
    assert "hush" not in repr(pl.CommunicationOptions(token="hush" * 4))


def test_two_ways_of_saying_the_same_are_refused():
    with pytest.raises(ValueError, match="both given"):
        pl.MultiWorkerMirroredStrategy("RING", communication_options=pl.CommunicationOptions())


@pytest.mark.host
def test_nccl_without_gpus_warns_and_goes_on(caplog):
    """CO-07, CO-09."""
    with caplog.at_level(logging.WARNING, "paceline"):
        alone = join_workers(
            SimpleClusterResolver({"worker": ["localhost:1"]}, task_type="worker", task_id=0),
            pl.CommunicationOptions(implementation="NCCL"),
        )
    assert alone is None
    assert "communication is NCCL, but paceline finds no GPU here" in caplog.text


def gradients_of_workers(on_workers, gradients, **options):
    """What each of the workers has after summing `gradients[worker]`, a list of arrays."""

    def work(strategy, index):
        with strategy.scope():
            variables = [pl.get_variable(f"v{i}", g.shape) for i, g in enumerate(gradients[index])]
            optimizer = optimizers.SGD(1.0)
        before = [v.numpy() for v in variables]
        pairs = list(zip(gradients[index], variables, strict=True))
        strategy.run(lambda: optimizer.apply_gradients(pairs))
        return [b - v.numpy() for b, v in zip(before, variables, strict=True)]

    return on_workers(len(gradients), 1, work, **options)


@pytest.mark.parametrize("num_workers", [2, 3])
def test_float16_on_the_wire_changes_gradients_by_its_precision(num_workers, on_workers):
    rng = np.random.default_rng(0)
    gradients = [[rng.normal(size=1000).astype(np.float32)] for _ in range(num_workers)]
    exact = sum(g for (g,) in gradients)
    found = [g for (g,) in gradients_of_workers(on_workers, gradients, wire_dtype=np.dtype("f2"))]
    assert all((f == found[0]).all() for f in found)
    error = np.abs(found[0] - exact).max()
    assert 0 < error < 4 * num_workers * 2.0**-11


def test_gradients_that_float16_cannot_hold_are_an_error_on_every_worker(on_workers):
    seen = []

    def work(strategy, index):
        with strategy.scope():
            variable = pl.get_variable("v", ())
            optimizer = optimizers.SGD(1.0)
        gradient = np.float32(1e5)
        with pytest.raises(FloatingPointError, match=r"not finite in float16.*65504.*wire_dtype"):
            strategy.run(lambda: optimizer.apply_gradients([(gradient, variable)]))
        seen.append(index)

    on_workers(2, 1, work, wire_dtype=np.dtype("f2"))
    assert sorted(seen) == [0, 1]


@pytest.mark.parametrize("bytes_per_pack", [1, 64, BYTES_PER_PACK, 1 << 40])
def test_the_size_of_packs_changes_no_result(bytes_per_pack, on_workers):
    rng = np.random.default_rng(0)
    gradients = [[rng.normal(size=n).astype(np.float32) for n in (3, 40, 1, 7)] for _ in range(2)]
    for found in gradients_of_workers(on_workers, gradients, bytes_per_pack=bytes_per_pack):
        for i, difference in enumerate(found):
            assert np.allclose(difference, gradients[0][i] + gradients[1][i], atol=1e-6)


@pytest.mark.parametrize("overlaps", [True, False])
def test_when_packs_travel_changes_no_result(overlaps, on_workers):
    def work(strategy, index):
        strategy.extended.workers.communicator.overlaps = overlaps
        with strategy.scope():
            variables = [pl.get_variable(f"v{i}", (50,)) for i in range(4)]
            optimizer = optimizers.SGD(1.0)
        pairs = [(np.full(50, index + 1, np.float32), v) for v in variables]
        for _ in range(3):
            strategy.run(lambda: optimizer.apply_gradients(pairs))
        return [v.numpy()[0] for v in variables]

    assert on_workers(3, 1, work, bytes_per_pack=1) == [[-18.0] * 4] * 3


def test_many_small_gradients_travel_in_few_packs(on_workers):
    """CO-11: a thousand of 4 KB."""
    started = []

    def work(strategy, index):
        communicator = strategy.extended.workers.communicator
        start = communicator.start_all_reduce
        with strategy.scope():
            variables = [pl.get_variable(f"v{i}", (1000,)) for i in range(1000)]
            optimizer = optimizers.SGD(1.0)
        pairs = [(np.ones(1000, np.float32), v) for v in variables]
        if index == 0:
            communicator.start_all_reduce = lambda a, name, **how: (
                started.append(name) or start(a, name, **how)
            )
        strategy.run(lambda: optimizer.apply_gradients(pairs))

    on_workers(2, 1, work)
    assert 2 <= len(started) <= 10
