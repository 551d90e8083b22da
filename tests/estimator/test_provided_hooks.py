"""The hooks that TensorFlow's scripts bring along, with their arguments (B8)."""

import pytest

import paceline as pl
from paceline.checkpoint import list_checkpoints
from paceline.estimator import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    InMemoryEvaluatorHook,
    ProfilerHook,
    SecondOrStepTimer,
    SessionRunHook,
    StopAtCheckpointStepHook,
    read_eval_metrics,
)


class Listener(CheckpointSaverListener):
    """Notes what it is told, and may end the run."""

    def __init__(self, stop_at=None):
        self.told = []
        self._stop_at = stop_at

    def begin(self):
        self.told.append("begin")

    def before_save(self, session, global_step_value):
        self.told.append(f"before {global_step_value}")

    def after_save(self, session, global_step_value):
        self.told.append(f"after {global_step_value}")
        return global_step_value == self._stop_at

    def end(self, session, global_step_value):
        self.told.append(f"end {global_step_value}")


TOLD = [
    "begin", "before 0", "after 0", "before 2", "after 2", "before 4", "after 4", "before 5",
    "after 5", "end 5",
]  # fmt: skip


def steps_in(directory):
    return sorted(step for _, step in list_checkpoints(directory))


def brought(model_fn, hook):
    """The same model, which brings a hook for the chief."""

    def brings(features, labels, mode):
        return model_fn(features, labels, mode)._replace(training_chief_hooks=[hook])

    return brings


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("by", ["call", "spec"])
def test_b8_checkpoint_saver_says_when_the_run_saves_in_place_of_its_config(
    on_workers, linear_model_fn, input_fn, tmp_path, by, num_workers
):
    """Its listeners hear of each checkpoint, as do those of the run; on the chief."""
    listeners, others = ([Listener() for _ in range(num_workers)] for _ in "ab")

    def work(strategy, index):
        hook = CheckpointSaverHook(tmp_path, save_steps=2, listeners=[listeners[index]])
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=1)
        model_fn = brought(linear_model_fn, hook) if by == "spec" else linear_model_fn
        estimator = pl.Estimator(model_fn, tmp_path, config)
        hooks = [hook] if by == "call" else []
        estimator.train(input_fn, hooks, steps=5, saving_listeners=[others[index]])

    on_workers(num_workers, 1, work)
    assert steps_in(tmp_path) == [0, 2, 4, 5]
    assert [listener.told for listener in listeners] == [TOLD, []][:num_workers]
    assert [listener.told for listener in others] == [TOLD, []][:num_workers]


@pytest.mark.parametrize("step", [0, 2])
def test_b8_checkpoint_saver_listeners_can_end_the_run(estimator, input_fn, step):
    listener = Listener(stop_at=step)
    hook = CheckpointSaverHook(estimator.model_dir, save_steps=2, listeners=[listener])
    estimator.train(input_fn, [hook])
    assert steps_in(estimator.model_dir) == [0, step or 1]


NOT_MEANT = {
    "how often": ({}, "exactly one of every_secs and every_steps"),
    "a saver": ({"save_steps": 1, "saver": object()}, "leave saver, scaffold"),
    "a scaffold": ({"save_steps": 1, "scaffold": object()}, "leave saver, scaffold"),
    "a name": ({"save_steps": 1, "checkpoint_basename": "best"}, "is called model.ckpt-STEP"),
}


@pytest.mark.parametrize("what", NOT_MEANT)
def test_b8_checkpoint_saver_refuses_what_it_cannot_do(tmp_path, what):
    arguments, words = NOT_MEANT[what]
    with pytest.raises(ValueError, match=words):
        CheckpointSaverHook(tmp_path, **arguments)


def test_b8_checkpoint_saver_saves_where_the_run_does_and_once(estimator, input_fn, tmp_path):
    def hook(directory):
        return CheckpointSaverHook(directory, save_steps=1)

    with pytest.raises(ValueError, match=r"saves in its model_dir .*paceline.checkpoint.save"):
        estimator.train(input_fn, [hook(tmp_path / "elsewhere")], steps=1)
    with pytest.raises(ValueError, match="two CheckpointSaverHooks"):
        estimator.train(input_fn, [hook(estimator.model_dir), hook(estimator.model_dir)], steps=1)
    estimator.train(input_fn, steps=1)
    with pytest.raises(ValueError, match="only training saves"):
        estimator.evaluate(input_fn, 1, [hook(estimator.model_dir)])


@pytest.mark.parametrize("workers", [1, 2])
def test_b8_final_ops_keeps_the_values_of_the_end(
    on_workers, linear_model_fn, input_fn, tmp_path, workers
):
    """Also of the chief alone."""

    def work(strategy, index):
        hook = FinalOpsHook({"step": "global_step", "weights": ["w"]})
        assert hook.final_ops_values is None
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        estimator.train(input_fn, hooks=[hook] if index == 0 else [], steps=3)
        return hook.final_ops_values, estimator.get_variable_value("w")

    values, weights = on_workers(workers, 1, work)[0]
    assert values["step"] == 3
    assert values["weights"][0].tolist() == weights.tolist()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FinalOpsHook("loss", {"x": 1}), "no session to take a final_ops_feed_dict"),
        (lambda: FeedFnHook(lambda: {"x": 1}), r"no placeholders .* let input_fn give"),
        (ProfilerHook, "exactly one of save_steps, save_secs and steps"),
    ],
    ids=["FinalOpsHook", "FeedFnHook", "ProfilerHook"],
)
def test_b8_final_ops_feed_fn_profiler_say_what_they_cannot_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("every", [2, 3, 100])
def test_b8_in_memory_evaluator_sees_the_weights_as_they_are(
    linear_model_fn, input_fn, one_pass, tmp_path, every
):
    """Before the first step, every so many, and at the end; no checkpoint is made for it."""
    config = pl.RunConfig(save_checkpoints_steps=1, keep_checkpoint_max=None)
    estimator = pl.Estimator(linear_model_fn, tmp_path / "model", config)
    seen = []

    class Noted(SessionRunHook):
        def end(self, session):
            seen.append(session.global_step)

    def hook(name):
        return InMemoryEvaluatorHook(
            estimator, one_pass, hooks=[Noted()], name=name, every_n_iter=every
        )

    estimator.train(input_fn, [hook("live")], steps=7)
    steps = sorted({*range(0, 7, every), 7})
    assert seen == steps
    live = read_eval_metrics(estimator.eval_dir("live"))
    for step, found in live.items():
        saved = estimator.evaluate(one_pass, checkpoint_path=f"{tmp_path}/model/model.ckpt-{step}")
        assert saved == {**found, "global_step": step}
    assert list(live) == steps
    # It begins anew in the next run.
    seen.clear()
    estimator.train(input_fn, [hook("live")], steps=1)
    assert seen == [7, 8]


def test_b8_in_memory_evaluator_is_for_one_process(
    on_workers, linear_model_fn, input_fn, one_pass, tmp_path
):
    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        hook = InMemoryEvaluatorHook(estimator, one_pass)
        with pytest.raises(ValueError, match=r"evaluates in one process.*use train_and_evaluate"):
            estimator.train(input_fn, [hook], steps=1)

    on_workers(2, 1, work)


def test_b8_stop_at_checkpoint_step_ends_there(estimator, input_fn):
    hook = StopAtCheckpointStepHook(estimator.model_dir, last_step=4, wait_after_file_check_secs=1)
    estimator.train(input_fn, [hook])
    assert steps_in(estimator.model_dir)[-1] == 4


def test_b8_global_step_waiter_is_refused_where_all_make_each_step_together(estimator, input_fn):
    with pytest.raises(ValueError, match="nobody makes one while this worker waits"):
        estimator.train(input_fn, [GlobalStepWaiterHook(3)], steps=1)
    estimator.train(input_fn, [GlobalStepWaiterHook(0)], steps=1)


def test_b8_second_or_step_timer_can_be_reset():
    timer = SecondOrStepTimer(every_steps=10)
    timer.update_last_triggered_step(3)
    assert timer.last_triggered_step() == 3
    assert not timer.should_trigger_for_step(4)
    timer.reset()
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(4)
