"""`Checkpoint`: the parts of a training loop of one's own, under any strategy."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import Checkpoint, CheckpointError, Saver, list_checkpoints, load
from paceline.nn import layers, metrics, optimizers
from paceline.strategies import VariableStore

STRATEGIES: dict[str, Callable[[], Any]] = {
    "default": pl.get_strategy,
    "one device": lambda: pl.OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
}
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function as in a process of its own, where no names are taken."""

    def call() -> Any:
        with VariableStore().building():
            return function(*arguments)

    return contextvars.copy_context().run(call)


class Loop:
    """A model, an optimizer with slots, a metric and data, trained by hand."""

    def __init__(self, strategy: Any, name: str = "dense", late: bool = False) -> None:
        self.strategy = strategy
        with strategy.scope():
            shape = {} if late else {"input_shape": (3,)}
            self.model = layers.Dense(2, name=name, **shape)
            self.optimizer = optimizers.Adam(0.1, name=f"{name}/adam")
            self.metric = metrics.Mean(name=f"{name}/mean")
        self.batches = iter(pl.Dataset.from_tensor_slices(X).shuffle(8, seed=1).repeat().batch(4))
        self.checkpoint = Checkpoint(
            model=self.model, optimizer=self.optimizer, metric=self.metric, batches=self.batches
        )
        self.losses: list[float] = []

    def step(self) -> None:
        batch = next(self.batches)

        def replica_step() -> Any:
            with pl.GradientTape() as tape:
                loss = np.mean(np.square(self.model(batch))) / self.strategy.num_replicas_in_sync
            variables = self.model.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            self.metric.update_state(loss)
            return loss

        losses = self.strategy.experimental_local_results(self.strategy.run(replica_step))
        self.losses.append(float(np.sum([loss.numpy() for loss in losses])))

    def steps(self, num: int) -> None:
        for _ in range(num):
            self.step()

    def values(self) -> dict[str, np.ndarray]:
        return self.checkpoint.arrays()


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Any:
    return STRATEGIES[request.param]()


@pytest.mark.parametrize("late", [False, True], ids=["built", "late"])
def test_a_loop_goes_on_as_if_it_had_not_been_interrupted(
    tmp_path: Path, strategy: Any, late: bool
) -> None:
    """CK-09, CK-13: also where weights and slots are created after the restore."""

    def straight() -> tuple[list[float], dict[str, np.ndarray]]:
        loop = Loop(strategy)
        loop.steps(3)
        loop.checkpoint.save(tmp_path, 3)
        loop.steps(3)
        return loop.losses[3:], loop.values()

    def resumed() -> tuple[list[float], dict[str, np.ndarray]]:
        loop = Loop(strategy, late=late)
        path = loop.checkpoint.latest(tmp_path)
        assert path is not None
        with strategy.scope():
            assert loop.checkpoint.restore(path).step == 3
        assert any("adam" in name for name in loop.checkpoint.pending)
        loop.steps(3)
        assert loop.checkpoint.pending == ()
        return loop.losses, loop.values()

    losses, expected = apart(straight)
    found_losses, found = apart(resumed)
    assert found_losses == losses
    assert_equal(found, expected)


@pytest.mark.parametrize("other", STRATEGIES)
def test_what_one_strategy_saved_another_restores(
    tmp_path: Path, strategy: Any, other: str
) -> None:
    """CK-02."""

    def first() -> dict[str, np.ndarray]:
        loop = Loop(strategy)
        loop.steps(2)
        loop.checkpoint.save(tmp_path, 2)
        return loop.values()

    def second() -> dict[str, np.ndarray]:
        loop = Loop(STRATEGIES[other]())
        loop.checkpoint.restore(tmp_path)  # the newest in it
        return loop.values()

    expected = apart(first)
    assert_equal(apart(second), expected)


def test_on_several_workers_all_collect_and_one_writes(on_workers: Any, tmp_path: Path) -> None:
    """CK-07."""

    def work(strategy: Any, index: int) -> float:
        with strategy.scope():
            total = pl.Variable(
                0.0,
                name="total",
                synchronization=pl.VariableSynchronization.ON_READ,
                aggregation=pl.VariableAggregation.SUM,
            )
        strategy.run(lambda: total.assign_add(1.0))
        checkpoint = Checkpoint(total=total)
        path = checkpoint.save(tmp_path, 1, write=index == 0)
        assert (path is None) == (index > 0)
        strategy.extended.workers.communicator.barrier("saved")
        total.assign(50.0)
        checkpoint.restore(tmp_path)
        return float(total.numpy())

    assert on_workers(2, 2, work) == [4.0, 4.0]
    assert load(tmp_path / "model.ckpt-1").read("total/total") == 4.0


def test_arrays_and_variables_by_any_names(tmp_path: Path) -> None:
    arrays = {"w": np.arange(3.0), "n": np.array(7)}
    variables = {"first": pl.Variable(1.0, name="x"), "second": pl.Variable(2.0, name="y")}
    checkpoint = Checkpoint(arrays=arrays, vars=variables)
    path = checkpoint.save(tmp_path, 5)
    names = ["arrays/w", "arrays/n", "vars/first", "vars/second"]
    assert load(path).names == tuple(names)
    kept = arrays["w"]
    for array in arrays.values():
        array[...] = 0
    variables["first"].assign(9.0)
    assert checkpoint.restore(path).step == 5
    assert arrays["w"] is kept
    assert kept.tolist() == [0, 1, 2]
    assert arrays["n"] == 7
    assert variables["first"].item() == 1


def test_a_part_can_be_restored_without_the_others(tmp_path: Path) -> None:
    one, two = {"x": np.ones(2)}, {"x": np.full(2, 2.0)}
    path = Checkpoint(one=one, two=two).save(tmp_path, 1)
    found = {"x": np.zeros(2)}
    Checkpoint(two=found).restore(path)
    assert found["x"].tolist() == [2, 2]


def test_saving_behind_the_loop(tmp_path: Path) -> None:
    arrays = {"x": np.zeros(3)}
    batches = iter(pl.Dataset.range(10))
    checkpoint = Checkpoint(arrays=arrays, batches=batches)
    with Saver(tmp_path) as saver:
        for step in range(3):
            arrays["x"][:] = next(batches)
            saver.save(step, checkpoint.arrays(), state=checkpoint.state())
    checkpoint.restore(list_checkpoints(tmp_path)[1][0])
    assert arrays["x"].tolist() == [1, 1, 1]
    assert next(batches) == 2


def test_what_is_pending_is_not_lost_by_a_save(tmp_path: Path) -> None:

    def first() -> dict[str, np.ndarray]:
        loop = Loop(pl.get_strategy())
        loop.steps(1)
        loop.checkpoint.save(tmp_path, 1)
        return loop.values()

    def second() -> None:
        loop = Loop(pl.get_strategy(), late=True)
        loop.checkpoint.restore(tmp_path)
        loop.checkpoint.save(tmp_path, 2)

    expected = apart(first)
    apart(second)
    assert_equal(load(tmp_path / "model.ckpt-2").arrays(), expected)


@pytest.mark.parametrize(
    ("saved", "wanted", "message"),
    [
        ({"a": np.ones(2)}, {"a": np.ones(3)}, r"'part' from .*model.ckpt-1'.*'a' has float64 of"),
        ({"a": np.ones(2)}, {"a": np.ones(2, np.float32)}, "float64 of .* and here float32"),
        ({"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(2)}, "'b' is not in it; it has a"),
        ({"a": np.ones(2), "b": np.ones(2)}, {"a": np.ones(2)}, "nothing here takes its 'b'"),
        ({}, {"a": np.ones(2)}, "'a' is not in it; it has nothing of this part"),
    ],
)
def test_nothing_is_changed_unless_everything_fits(
    tmp_path: Path, saved: dict, wanted: dict, message: str
) -> None:
    path = Checkpoint(first={"x": np.ones(1)}, part=saved).save(tmp_path, 1)
    first = {"x": np.zeros(1)}
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(first=first, part=wanted).restore(path)
    assert first["x"] == 0


def test_nothing_is_changed_where_an_iterator_refuses_its_state(tmp_path: Path) -> None:
    def of(batch: int) -> Any:
        return iter(pl.Dataset.range(12).batch(batch))

    path = Checkpoint(x={"x": np.ones(1)}, one=of(2), two=of(2)).save(tmp_path, 1)
    x, one, two = {"x": np.zeros(1)}, of(2), of(4)
    next(one), next(two)
    with pytest.raises(CheckpointError, match=r"cannot restore 'two' from .*model.ckpt-1"):
        Checkpoint(x=x, one=one, two=two).restore(path)
    assert x["x"] == 0
    assert next(one).tolist() == [2, 3]
    assert next(two).tolist() == [4, 5, 6, 7]


def test_a_state_that_was_not_saved(tmp_path: Path) -> None:
    path = Checkpoint(x={"x": np.ones(1)}).save(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"cannot restore 'data' .*saved without this part"):
        Checkpoint(data=iter(pl.Dataset.range(3))).restore(path)


def test_where_there_is_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoint.latest(tmp_path) is None
    with pytest.raises(CheckpointError, match=f"there is no checkpoint in '{tmp_path}'"):
        Checkpoint().restore(tmp_path)
    assert os.listdir(tmp_path) == []


def test_two_variables_of_one_name_are_refused(tmp_path: Path) -> None:
    class Two:
        def __init__(self) -> None:
            self.variables = [apart(partial(pl.Variable, 1.0, name="x")) for _ in range(2)]

    with pytest.raises(ValueError, match="two variables are called 'x'"):
        Checkpoint(two=Two()).save(tmp_path, 1)


@pytest.mark.parametrize("part", [3, [np.ones(2)], {"x": 1.0}, None])
def test_what_cannot_be_a_part(part: object) -> None:
    with pytest.raises(TypeError, match="part must have variables, be a variable"):
        Checkpoint(part=part)
