"""What goes wrong behind a step is raised after the next one, or at the end."""

import threading

import pytest

import paceline as pl
import paceline.checkpoint.writing as save_module
from paceline.checkpoint import CheckpointError, list_checkpoints
from paceline.estimator import SessionRunHook


@pytest.fixture
def disk_full_at(monkeypatch):
    """`disk_full_at(step)`: the save of that step fails in the background."""
    write = save_module.write_part

    def fill(step):
        def write_part(draft, *arguments):
            if f"model.ckpt-{step}-" in draft:
                raise OSError(28, "No space left on device", draft)
            return write(draft, *arguments)

        monkeypatch.setattr(save_module, "write_part", write_part)

    return fill


class Steps(SessionRunHook):
    """Lists the steps, each of which ends when nothing is being written any more."""

    def __init__(self):
        self.seen = []

    def after_create_session(self, session, coord=None):
        self._wait()

    def after_run(self, run_context, run_values):
        self.seen.append(run_context.session.global_step)
        self._wait()

    def _wait(self):
        for thread in threading.enumerate():
            if thread.name == "paceline-save":
                thread.join()


@pytest.mark.parametrize(("step", "seen"), [(0, []), (2, [1, 2]), (4, [1, 2, 3, 4])])
def test_a_failed_save_ends_the_run_after_the_next_step(
    linear_model_fn, input_fn, tmp_path, disk_full_at, step, seen
):
    """And not at the next save, which may be ten minutes away."""
    disk_full_at(step)
    steps = Steps()
    config = pl.RunConfig(save_checkpoints_steps=2)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    with pytest.raises(CheckpointError, match="the disk is full"):
        estimator.train(input_fn, hooks=[steps], steps=100)
    assert steps.seen == seen
    assert [s for _, s in list_checkpoints(tmp_path)] == [*range(0, step, 2)]


def test_a_failed_last_save_is_an_error_of_train(linear_model_fn, input_fn, tmp_path, disk_full_at):
    disk_full_at(3)
    with pytest.raises(CheckpointError, match="the disk is full"):
        pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=3)


def test_all_workers_end_when_the_chief_cannot_save(
    on_workers, linear_model_fn, input_fn, tmp_path, disk_full_at
):
    disk_full_at(2)

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=2)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        estimator.train(input_fn, hooks=[Steps()] if index == 0 else [], steps=100)

    with pytest.raises(CheckpointError, match="the disk is full"):
        on_workers(2, 1, work)
