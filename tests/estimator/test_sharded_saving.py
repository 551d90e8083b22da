"""RunConfig(save_checkpoints_sharded=True): every worker writes a part of each checkpoint."""

import numpy as np
import pytest

import paceline as pl
import paceline.checkpoint.saver as together_module
from paceline.checkpoint import CheckpointError, list_checkpoints, load
from paceline.estimator import SessionRunHook
from paceline.estimator.hooks import RunSaver
from paceline.nn import optimizers
from paceline.strategies import VariableStore


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1), initializer=0.0)
    table = pl.get_variable("table", (50, 4), initializer=1.0)
    loss = np.mean(np.square(features @ w - labels)) + np.mean(table) * 0.1
    train_op = optimizers.Adam(0.1).minimize(loss) if mode == "train" else None
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.fixture
def train(on_workers, input_fn, tmp_path):
    def train(num_workers, name, sharded, max_steps=5, hooks=()):
        def work(strategy, index):
            config = pl.RunConfig(
                train_distribute=strategy,
                tf_random_seed=1,
                save_checkpoints_steps=2,
                save_checkpoints_sharded=sharded,
            )
            estimator = pl.Estimator(model_fn, tmp_path / name, config)
            estimator.train(input_fn, max_steps=max_steps, hooks=[h(index) for h in hooks])

        on_workers(num_workers, 1, work)
        return [path for path, _ in list_checkpoints(tmp_path / name)]

    return train


def test_values_are_collected_only_when_the_save_before_is_written(writer):
    """Parameter servers hold one moment at a time: the next one would take the other's place."""

    class Run:
        """Enough of a run for the hook."""

        global_step = 0
        loss = None
        end_is_agreed = False
        store = VariableStore()

        def arrays(self):
            writer.calls.append("arrays")
            return {}

        def input_states(self):
            writer.calls.append("states")
            return []

        def lend(self, copies):
            writer.calls.append("lend")

    hook = RunSaver("", writer, save_steps=1)
    hook.after_create_session(Run())
    assert writer.calls == ["prepare", "arrays", "states", "save", "lend"]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_the_same_is_saved_by_one_as_by_all(train, num_workers):
    whole, parts = train(num_workers, "whole", False), train(num_workers, "parts", True)
    assert [load(path).step for path in parts] == [0, 2, 4, 5]
    for one, other in zip(whole, parts, strict=True):
        assert load(other).num_writers == num_workers
        assert load(one).state == load(other).state
        expected = load(one).arrays()
        found = load(other).arrays()
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)


def test_another_number_of_workers_goes_on(train):
    train(3, "model", True, 4)
    train(2, "model", True, 6)
    paths = train(1, "model", True, 7)
    assert [load(path).num_writers for path in paths[-3:]] == [3, 2, 1]
    assert load(paths[-1]).step == 7


def test_a_worker_that_cannot_write_ends_the_run(train, monkeypatch):
    write = together_module.write_part

    def write_part(draft, *arguments):
        if "model.ckpt-2-" in draft:
            raise OSError(28, "No space left on device", draft)
        return write(draft, *arguments)

    monkeypatch.setattr(together_module, "write_part", write_part)
    with pytest.raises(CheckpointError, match="the disk is full"):
        train(2, "model", True, 100)


def test_a_worker_that_dies_does_not_keep_the_chief_waiting(train, monkeypatch, tmp_path):
    """Its part will never come, and the checkpoint before stays the newest."""

    class Dies(SessionRunHook):
        def __init__(self, index):
            self._index = index

        def after_run(self, run_context, run_values):
            if self._index == 1 and run_context.session.global_step == 2:
                raise RuntimeError("killed")

    write = together_module._write_and_report

    def write_and_report(draft, *arguments):
        if "model.ckpt-2-" not in draft:
            write(draft, *arguments)

    monkeypatch.setattr(together_module, "_write_and_report", write_and_report)
    with pytest.raises(RuntimeError, match="killed"):
        train(2, "model", True, 100, [Dies])
    assert [step for _, step in list_checkpoints(tmp_path / "model")] == [0]
