"""The life of a hook, and the hooks that come with the package (semantics.md B8)."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    LoggingTensorHook,
    NanTensorHook,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunHook,
    StepCounterHook,
    StopAtStepHook,
)
from paceline.nn import optimizers


class Diary(SessionRunHook):
    """Writes down what it is told."""

    def __init__(self, fetches=None, stop_after=None):
        self.entries = []
        self.results = []
        self._fetches = fetches
        self._stop_after = stop_after

    def begin(self):
        self.entries.append("begin")

    def after_create_session(self, session, coord=None):
        self.entries.append(f"created at {session.global_step}")

    def before_run(self, run_context):
        self.entries.append("before")
        return SessionRunArgs(self._fetches) if self._fetches is not None else None

    def after_run(self, run_context, run_values):
        self.entries.append("after")
        self.results.append(run_values.results)
        if run_context.session.global_step == self._stop_after:
            run_context.request_stop()

    def end(self, session):
        self.entries.append(f"end at {session.global_step}")


def test_a_hook_is_told_of_the_run_in_order(estimator, input_fn):
    diary = Diary()
    estimator.train(input_fn, hooks=[diary], steps=2)
    assert diary.entries == [
        "begin", "created at 0", "before", "after", "before", "after", "end at 2",
    ]  # fmt: skip


def test_end_is_called_at_the_end_of_the_data(estimator, one_pass):
    diary = Diary()
    estimator.train(one_pass, hooks=[diary])
    assert diary.entries[-3:] == ["after", "before", "end at 6"]


def test_after_another_exception_neither_after_run_nor_end_is_called(input_fn, tmp_path):
    def model_fn(features, labels, mode):
        loss = np.mean(features * pl.get_variable("w", (), initializer=1.0))
        if int(pl.get_or_create_global_step()) == 1:
            raise KeyError("boom")
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))

    diary = Diary()
    with pytest.raises(KeyError, match="boom"):
        pl.Estimator(model_fn, tmp_path).train(input_fn, hooks=[diary])
    assert diary.entries == ["begin", "created at 0", "before", "after", "before"]


def test_a_hook_gets_the_values_that_it_asks_for(estimator, input_fn):
    diary = Diary(fetches={"l": "loss", "s": ["global_step", "step"], "w": "w"})
    estimator.train(input_fn, hooks=[diary], steps=2)
    first, second = diary.results
    assert first["s"] == [1, 0]
    assert second["s"] == [2, 1]
    assert 0 < first["l"] != second["l"] > 0
    assert second["w"].shape == (3, 1)


def test_asking_for_what_is_not_there_names_what_is(estimator, input_fn):
    with pytest.raises(ValueError, match=r"'accuracy'; there are loss, step, global_step, .*w"):
        estimator.train(input_fn, hooks=[Diary(fetches="accuracy")], steps=1)


def test_a_hook_can_end_the_run_after_all_hooks_of_the_step(estimator, input_fn):
    stopper, other = Diary(stop_after=2), Diary()
    estimator.train(input_fn, hooks=[stopper, other])
    assert other.entries.count("after") == 2
    assert other.entries[-1] == "end at 2"


def test_hooks_of_the_spec_take_part(input_fn, tmp_path):
    diary = Diary()

    def model_fn(features, labels, mode):
        loss = np.mean(features * pl.get_variable("w", (), initializer=1.0))
        op = optimizers.SGD().minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=op, training_hooks=[diary])

    pl.Estimator(model_fn, tmp_path).train(input_fn, steps=2)
    assert diary.entries.count("after") == 2
    assert diary.entries[0] == "begin"


@pytest.mark.parametrize(("arguments", "last"), [({"num_steps": 3}, 5), ({"last_step": 4}, 4)])
def test_stop_at_step(estimator, input_fn, arguments, last):
    estimator.train(input_fn, steps=2)
    estimator.train(input_fn, hooks=[StopAtStepHook(**arguments)])
    assert int(estimator.get_variable_value("global_step")) == last


def test_stop_at_step_takes_exactly_one_limit():
    with pytest.raises(ValueError, match="exactly one"):
        StopAtStepHook()
    with pytest.raises(ValueError, match="exactly one"):
        StopAtStepHook(num_steps=1, last_step=2)


def test_a_nan_loss_can_end_the_run_quietly_and_is_not_saved(input_fn, tmp_path, lines):
    saved = []

    class Context:
        """Enough of a run for hooks."""

        global_step = 7
        loss = float("nan")
        end_is_agreed = False

        def values(self):
            return {}

    class RunContext:
        session = Context()
        stopped = False

        def request_stop(self):
            self.stopped = True

    run_context = RunContext()
    hook = NanTensorHook(fail_on_nan_loss=False)
    hook.after_run(run_context, pl.estimator.SessionRunValues())
    assert run_context.stopped
    CheckpointSaverHook(lambda *args: saved.append(args)).end(Context())
    assert not saved
    assert any("Step 7 is not saved" in line for line in lines())


def test_logging_tensor_logs_by_local_steps_and_shows_the_time_from_the_second_line_on(
    estimator, input_fn, lines
):
    hook = LoggingTensorHook({"l": "loss", "n": "step"}, every_n_iter=2, at_end=True)
    estimator.train(input_fn, steps=10)
    estimator.train(input_fn, hooks=[hook], steps=3)
    mine = [line for line in lines() if line.startswith("l = ")]
    assert [line.split("n = ")[1].split(" ")[0] for line in mine] == ["10", "12", "12"]
    assert "sec" not in mine[0]
    assert "sec" in mine[1]


def test_logging_tensor_takes_a_formatter(estimator, input_fn, lines):
    hook = LoggingTensorHook(["loss"], at_end=True, formatter=lambda values: f"<{sorted(values)}>")
    estimator.train(input_fn, hooks=[hook], steps=1)
    assert "<['loss']>" in lines()


def test_the_step_counter_warns_of_a_step_that_does_not_move(lines):
    """ES-06."""

    class RunContext:
        class session:  # noqa: N801
            global_step = 3

    hook = StepCounterHook(every_n_steps=100)
    hook.after_create_session(RunContext.session)
    for _ in range(22):
        hook.after_run(RunContext, None)
    (warning,) = [line for line in lines() if "has not increased" in line]
    assert "for 20 steps (it is 3); pass a train op that comes from optimizer.minimize" in warning


class Listener(CheckpointSaverListener):
    def __init__(self, stop_at=None):
        self.entries = []
        self._stop_at = stop_at

    def begin(self):
        self.entries.append("begin")

    def before_save(self, session, global_step_value):
        self.entries.append(f"before {global_step_value}")

    def after_save(self, session, global_step_value):
        self.entries.append(f"after {global_step_value}")
        return global_step_value == self._stop_at

    def end(self, session, global_step_value):
        self.entries.append(f"end {global_step_value}")


def test_listeners_hear_of_each_checkpoint(linear_model_fn, input_fn, tmp_path):
    """CK-11."""
    listener = Listener()
    config = pl.RunConfig(save_checkpoints_steps=2)
    pl.Estimator(linear_model_fn, tmp_path, config).train(
        input_fn, steps=3, saving_listeners=[listener]
    )
    assert listener.entries == [
        "begin", "before 0", "after 0", "before 2", "after 2", "before 3", "after 3", "end 3",
    ]  # fmt: skip


def test_a_listener_can_end_the_run(linear_model_fn, input_fn, tmp_path):
    config = pl.RunConfig(save_checkpoints_steps=2)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    estimator.train(input_fn, saving_listeners=[Listener(stop_at=4)])
    assert int(estimator.get_variable_value("global_step")) == 4


class TestTimer:
    def test_it_triggers_first_always_and_never_twice_for_one_step(self):
        timer = SecondOrStepTimer(every_steps=3)
        assert timer.should_trigger_for_step(5)
        timer.update_last_triggered_step(5)
        assert not timer.should_trigger_for_step(5)

    def test_it_triggers_every_so_many_steps(self):
        timer = SecondOrStepTimer(every_steps=3)
        timer.update_last_triggered_step(5)
        assert [timer.should_trigger_for_step(s) for s in (6, 7, 8, 9)] == [
            False,
            False,
            True,
            True,
        ]

    def test_it_triggers_every_so_many_seconds(self):
        now = [0.0]
        timer = SecondOrStepTimer(every_secs=10, clock=lambda: now[0])
        assert timer.update_last_triggered_step(0) == (None, None)
        now[0] = 9.9
        assert not timer.should_trigger_for_step(1)
        now[0] = 10.0
        assert timer.should_trigger_for_step(1)
        assert timer.update_last_triggered_step(4) == (10.0, 4)

    @pytest.mark.parametrize("arguments", [{}, {"every_secs": 1, "every_steps": 1}])
    def test_it_takes_exactly_one_interval(self, arguments):
        with pytest.raises(ValueError, match="exactly one"):
            SecondOrStepTimer(**arguments)
