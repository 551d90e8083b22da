"""The life of a hook, and the hooks that come with the package (B8)."""

import json
from unittest.mock import Mock

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import (
    CheckpointSaverListener,
    LoggingTensorHook,
    NanTensorHook,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    StepCounterHook,
    StopAtStepHook,
)
from paceline.estimator.hooks import RunSaver
from paceline.nn import optimizers
from paceline.training import Counts


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


def test_a_mock_of_a_hook_is_told_of_the_run(estimator, input_fn):
    """Users test with them. It is an instance of the class by `isinstance` alone."""
    hook = Mock(spec=SessionRunHook)
    hook.before_run.return_value = SessionRunArgs("loss")
    listener = Mock(spec=CheckpointSaverListener)
    listener.after_save.return_value = None
    estimator.train(input_fn, hooks=[hook], steps=2, saving_listeners=[listener])
    names = [call[0] for call in hook.method_calls]
    assert names == ["begin", "after_create_session", *["before_run", "after_run"] * 2, "end"]
    assert isinstance(hook.after_run.call_args[0][1].results, float)
    assert listener.after_save.call_count == 2


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


ONE_RUN = ["begin", "created at 2", "before", "after", "before", "after", "end at 2"]


@pytest.mark.parametrize(
    ("verb", "field"),
    [("evaluate", "evaluation_hooks"), ("predict", "prediction_hooks")],
)
def test_b8_life_cycle_of_evaluations_and_predictions_is_that_of_training(
    estimator, linear_model_fn, input_fn, examples, verb, field
):
    """B8.life_cycle: hooks of the call and of the spec; `before_run` comes before the step."""
    estimator.train(input_fn, steps=2)
    of_call, of_spec = Diary(), Diary()

    def model_fn(features, labels, mode):
        for diary in (of_call, of_spec):
            diary.entries.append("model")
        spec = linear_model_fn(features, labels, mode)
        fields = {name: getattr(spec, name) for name in ("predictions", "loss")}
        return pl.EstimatorSpec(mode, **fields, **{field: [of_spec]})

    again = pl.Estimator(model_fn, estimator.model_dir)
    two_batches = lambda: pl.Dataset.from_tensor_slices(examples).take(16).batch(8)  # noqa: E731
    result = getattr(again, verb)(two_batches, hooks=[of_call])
    list(result)  # predictions are made when they are taken
    without_model = [e for e in of_call.entries if e != "model"]
    assert without_model == [e for e in of_spec.entries if e != "model"] == ONE_RUN
    # The first call of the model creates variables and the model's hooks, and counts for nothing.
    assert of_call.entries[:6] == ["begin", "model", "created at 2", "before", "model", "after"]
    assert of_call.entries[6:9] == ["before", "model", "after"]


def test_a_hook_can_end_a_prediction(estimator, input_fn, one_pass):
    estimator.train(input_fn, steps=2)
    stopper = Diary(stop_after=2)
    predictions = list(estimator.predict(one_pass, hooks=[stopper]))
    assert len(predictions) == 8, "those of one batch"
    assert stopper.entries[-1] == "end at 2"


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_a_hook_of_a_tensorflow_script_is_given_a_coordinator(estimator, one_pass, verb):
    class Hook(SessionRunHook):
        def after_create_session(self, session, coord):
            assert not coord.should_stop()
            coord.request_stop()
            assert coord.should_stop()

    diary = Diary()
    estimator.train(one_pass, steps=1)
    result = getattr(estimator, verb)(one_pass, hooks=[Hook(), diary])
    assert result is estimator or list(result)
    assert diary.entries.count("after") == 1


@pytest.mark.parametrize("verb", ["train", "evaluate"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_b8_fetches_are_the_loss_itself_and_variables(one_pass, tmp_path, lines, verb, replicas):
    """B8.fetches, as in every TensorFlow script: LoggingTensorHook({"loss": loss})."""

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (3, 1), initializer=0.5)
        loss = np.mean(np.square(features @ w - labels))
        hook = LoggingTensorHook({"l": loss, "named": "loss", "w": w}, every_n_iter=1)
        return pl.EstimatorSpec(
            mode,
            loss=loss,
            train_op=optimizers.SGD(0.1).minimize(loss),
            training_hooks=[hook],
            evaluation_hooks=[hook],
        )

    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    getattr(pl.Estimator(model_fn, tmp_path, config), verb)(one_pass)
    mine = [line for line in lines() if line.startswith("l = ")]
    assert len(mine) == 6 // replicas
    for line in mine:
        loss, named, w = line.split(" (")[0].split(", ", 2)
        assert loss.removeprefix("l = ") == named.removeprefix("named = ")
        assert np.shape(json.loads(w.removeprefix("w = "))) == (3, 1)
    assert len({line.split(",")[0] for line in mine}) == len(mine), "each step has its own loss"


def test_a_list_of_tensors_to_log_holds_names():
    with pytest.raises(TypeError, match=r"give a dict with a label .*, such as \{'loss': loss\}"):
        LoggingTensorHook([pl.Tensor(1.0)], every_n_iter=1)


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
def test_b8_stop_at_step_counts_from_here_or_from_the_beginning(
    estimator, input_fn, arguments, last
):
    estimator.train(input_fn, steps=2)
    estimator.train(input_fn, hooks=[StopAtStepHook(**arguments)])
    assert int(estimator.get_variable_value("global_step")) == last


def test_b8_stop_at_step_takes_exactly_one_limit():
    with pytest.raises(ValueError, match="exactly one"):
        StopAtStepHook()
    with pytest.raises(ValueError, match="exactly one"):
        StopAtStepHook(num_steps=1, last_step=2)


def test_b8_nan_tensor_can_end_the_run_quietly_and_nothing_is_saved(writer, lines):
    class Context:
        """Enough of a run for hooks."""

        global_step = 7
        loss = float("nan")
        workers_with_bad_loss = ()
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
    RunSaver("", writer).end(Context())
    assert writer.calls == ["wait"]
    assert any("Step 7 is not saved" in line for line in lines())


def test_b8_logging_tensor_counts_local_steps_and_shows_the_time_from_the_second_line_on(
    estimator, input_fn, lines
):
    hook = LoggingTensorHook({"l": "loss", "n": "step"}, every_n_iter=2, at_end=True)
    estimator.train(input_fn, steps=10)
    estimator.train(input_fn, hooks=[hook], steps=3)
    mine = [line for line in lines() if line.startswith("l = ")]
    assert [line.split("n = ")[1].split(" ")[0] for line in mine] == ["10", "12", "12"]
    assert "sec" not in mine[0]
    assert "sec" in mine[1]


def test_b8_logging_tensor_takes_a_formatter(estimator, input_fn, lines):
    hook = LoggingTensorHook(["loss"], at_end=True, formatter=lambda values: f"<{sorted(values)}>")
    estimator.train(input_fn, hooks=[hook], steps=1)
    assert "<['loss']>" in lines()


def test_es_06_b8_step_counter_warns_of_a_step_that_does_not_move(lines):
    class RunContext:
        class session:  # noqa: N801
            global_step = 3
            num_examples = 8
            counts = Counts()

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


def test_ck_11_b8_checkpoint_saver_listener_hears_of_each_checkpoint(
    linear_model_fn, input_fn, tmp_path
):
    listener = Listener()
    config = pl.RunConfig(save_checkpoints_steps=2)
    pl.Estimator(linear_model_fn, tmp_path, config).train(
        input_fn, steps=3, saving_listeners=[listener]
    )
    assert listener.entries == [
        "begin", "before 0", "after 0", "before 2", "after 2", "before 3", "after 3", "end 3",
    ]  # fmt: skip


def test_ck_11_each_save_has_a_line_when_it_begins_and_one_when_it_is_on_disk(
    linear_model_fn, input_fn, tmp_path, lines
):
    config = pl.RunConfig(save_checkpoints_steps=2)
    pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, steps=3)
    told = [line for line in lines() if "model.ckpt-" in line]
    assert told == [
        line
        for step in (0, 2, 3)
        for line in (
            f"Saving checkpoints for {step} into {tmp_path}/model.ckpt-{step}.",
            f"The checkpoint of step {step} is on disk: {tmp_path}/model.ckpt-{step}",
        )
    ]


def test_b8_checkpoint_saver_listener_can_end_the_run(linear_model_fn, input_fn, tmp_path):
    config = pl.RunConfig(save_checkpoints_steps=2)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    estimator.train(input_fn, saving_listeners=[Listener(stop_at=4)])
    assert int(estimator.get_variable_value("global_step")) == 4


class TestTimer:
    def test_b8_second_or_step_timer_triggers_first_always_and_never_twice_for_one_step(self):
        timer = SecondOrStepTimer(every_steps=3)
        assert timer.should_trigger_for_step(5)
        timer.update_last_triggered_step(5)
        assert not timer.should_trigger_for_step(5)

    def test_b8_second_or_step_timer_triggers_every_so_many_steps(self):
        timer = SecondOrStepTimer(every_steps=3)
        timer.update_last_triggered_step(5)
        assert [timer.should_trigger_for_step(s) for s in (6, 7, 8, 9)] == [
            False,
            False,
            True,
            True,
        ]

    def test_b8_second_or_step_timer_triggers_every_so_many_seconds(self):
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


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
@pytest.mark.parametrize("hook", [Diary, "loss", None, lambda: None])
def test_what_is_no_hook_is_refused(estimator, one_pass, verb, hook):
    """A class instead of an object, most of the time."""
    estimator.train(one_pass, steps=1)
    with pytest.raises(TypeError, match=r"one is .*; give an instance of such a class"):
        list(getattr(estimator, verb)(one_pass, hooks=[hook]))


@pytest.mark.parametrize(
    "make",
    [
        lambda often: LoggingTensorHook(["loss"], every_n_iter=often),
        lambda often: LoggingTensorHook(["loss"], every_n_secs=often),
        lambda often: StepCounterHook(every_n_steps=often),
        lambda often: SecondOrStepTimer(every_secs=often),
    ],
)
@pytest.mark.parametrize("often", [0, -1])
def test_how_often_is_more_than_never(make, often):
    with pytest.raises(ValueError, match="must be > 0"):
        make(often)


def test_a_context_is_made_as_in_tensorflow(estimator, input_fn):
    """Tests of users make one; in a run the step itself asks for nothing."""
    session = Mock()
    context = SessionRunContext(original_args=SessionRunArgs("loss"), session=session)
    assert (context.original_args.fetches, context.session) == ("loss", session)
    seen = []

    class Looks(SessionRunHook):
        def before_run(self, run_context):
            seen.append(run_context.original_args)

    estimator.train(input_fn, hooks=[Looks()], steps=1)
    assert seen == [SessionRunArgs(None)]
