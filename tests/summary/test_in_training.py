"""What a run writes for TensorBoard, and in its history: as one process would have it."""

import json
import logging
from functools import partial

import numpy as np
import pytest

import paceline as pl
import paceline.compat.tf as tf
from paceline.estimator import SessionRunHook, StepCounterHook, SummarySaverHook
from paceline.estimator.saving import CheckpointShards
from paceline.nn import optimizers
from paceline.nn.optimizers import schedules
from paceline.strategies import VariableStore

X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32)


def model_fn(features, labels, mode, rate=0.1, evaluation_hooks=()):
    w = pl.get_variable("w", (3, 1), initializer=lambda shape, dtype, rng: np.ones(shape, dtype))
    error = features @ w - labels
    loss = np.mean(np.square(error))
    pl.summary.scalar("largest", np.max(features))
    pl.summary.scalar("mean/feature", np.mean(features))
    pl.summary.histogram("features", features)
    pl.summary.image("square", np.full((2, 2), 0.5))
    pl.summary.text("note", f"{len(features)} examples")
    if mode == pl.ModeKeys.EVAL:
        mean = pl.nn.metrics.Mean(name="mean_label")
        mean.update_state(labels)
        return pl.EstimatorSpec(
            mode,
            loss=loss,
            eval_metric_ops={"mean_label": mean},
            evaluation_hooks=list(evaluation_hooks),
        )
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(rate).minimize(loss))


def batches(size, shard=(1, 0)):
    """Each global batch of 12 is cut into the batches of the replicas, in order."""

    def input_fn():
        return pl.Dataset.from_tensor_slices((X, Y)).shard(*shard).batch(size)

    return input_fn


def estimator(directory, strategy=None, model=model_fn, **settings):
    config = pl.RunConfig(train_distribute=strategy, **{"save_summary_steps": 1, **settings})
    return pl.Estimator(model, directory, config)


def events(directory, task="worker-0"):
    lines = (directory / "history" / f"{task}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def of_kind(kind, found):
    return [event for event in found if event["event"] == kind]


def test_ob_03_a_run_writes_loss_rates_and_what_model_fn_shows(tmp_path, shown):
    config = {"save_summary_steps": 2, "log_step_count_steps": 1, "log_gradient_norm": True}
    estimator(tmp_path, **config).train(batches(8), steps=3)
    found = shown(tmp_path)
    assert sorted(found.names["scalars"]) == [
        "examples/sec",
        "global_step/sec",
        "gradient_norm",
        "largest",
        "learning_rate",
        "loss",
        "mean/feature",
    ]
    assert [step for step, _ in found.scalars("loss")] == [1, 3]
    assert [value for _, value in found.scalars("largest")] == [X[:8].max(), X[16:].max()]
    assert found.scalars("learning_rate") == [(1, np.float32(0.1)), (3, np.float32(0.1))]
    assert found.histogram("features").num == 24
    assert found.strings("note") == [b"8 examples"]
    assert found.plugin("square") == "images"


def test_the_gradient_norm_is_that_of_the_loss(tmp_path, shown):
    estimator(tmp_path, log_gradient_norm=True).train(batches(24), steps=1)
    gradient = 2 * X.T @ (X @ np.ones((3, 1), np.float32) - Y) / 24
    ((_, norm),) = shown(tmp_path).scalars("gradient_norm")
    assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-5)


def test_the_learning_rate_is_that_of_each_step(tmp_path, shown):
    schedule = schedules.ExponentialDecay(0.1, decay_steps=1, decay_rate=0.5)
    estimator(tmp_path, model=partial(model_fn, rate=schedule)).train(batches(8), steps=3)
    rates = [value for _, value in shown(tmp_path).scalars("learning_rate")]
    assert rates == pytest.approx([0.1, 0.05, 0.025])


def with_a_mean_of_what_was_shown(features, labels, mode):
    """Shows the update of a metric, and counts the updates in the metric itself."""
    mean = tf.metrics.mean(features)
    tf.summary.scalar("update", mean[1])
    tf.summary.scalar("value", mean[0])
    return model_fn(features, labels, mode)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("every", [1, 2])
def test_a_metrics_update_is_made_and_shown_where_a_summary_is(tmp_path, shown, every, replicas):
    """As TensorFlow 1 runs it: a summary that fetches an update is what makes it."""
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    run = estimator(tmp_path, strategy, with_a_mean_of_what_was_shown, save_summary_steps=every)
    run.train(batches(6 // replicas))
    steps = range(1, 5, every)
    parts = [X[6 * (step - 1) : 6 * step] for step in steps]
    expected = [np.mean(parts[: i + 1]) for i in range(len(parts))]
    for name in ("update", "value"):
        at, values = zip(*shown(tmp_path).scalars(name), strict=True)
        assert (at, values) == (tuple(steps), pytest.approx(expected, rel=1e-5))


def test_a_function_is_called_in_steps_that_show_it_only(tmp_path, shown):
    calls = []

    def model(features, labels, mode):
        pl.summary.scalar("calls", lambda: calls.append(mode) or len(calls))
        return model_fn(features, labels, mode)

    estimator(tmp_path, model=model, save_summary_steps=2).train(batches(6))
    assert [step for step, _ in shown(tmp_path).scalars("calls")] == [1, 3]
    assert len(calls) <= 3  # the call that creates variables may be one


@pytest.mark.parametrize("value", [None, object(), {"a": 1}, model_fn])
@pytest.mark.parametrize("kind", ["histogram", "image", "scalar"])
def test_a_summary_of_no_numbers_is_refused_by_what_it_is(tmp_path, kind, value):
    if (kind, value) == ("scalar", model_fn):
        value = lambda: None  # noqa: E731

    def model(features, labels, mode):
        getattr(pl.summary, kind)("x", value)
        return model_fn(features, labels, mode)

    with pytest.raises(TypeError, match="a summary must be a number, an array, a tensor or a"):
        estimator(tmp_path, model=model).train(batches(6))


def one_process(directory, shown):
    estimator(directory, log_gradient_norm=True).train(batches(12))
    return shown(directory)


def require_same(found, expected):
    for name in ("loss", "mean/feature", "gradient_norm", "learning_rate"):
        steps, values = zip(*found.scalars(name), strict=True)
        assert (steps, values) == (steps, pytest.approx([v for _, v in expected.scalars(name)]))
    own, other = found.histogram("features"), expected.histogram("features")
    assert list(own.bucket) == list(other.bucket)
    assert (own.num, own.min, own.max) == (other.num, other.min, other.max)


@pytest.mark.parametrize("replicas", [2, 3])
def test_es_20_replicas_show_what_one_shows(tmp_path, shown, replicas):
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    estimator(tmp_path / "many", strategy, log_gradient_norm=True).train(batches(12 // replicas))
    require_same(shown(tmp_path / "many"), one_process(tmp_path / "one", shown))


def test_es_20_workers_show_what_one_shows_and_the_chief_writes(tmp_path, shown, on_workers):
    def work(strategy, index):
        own = tmp_path / str(index)
        estimator(own, strategy, log_gradient_norm=True).train(batches(6, (2, index)))

    on_workers(2, 1, work)
    require_same(shown(tmp_path / "0"), one_process(tmp_path / "one", shown))
    assert not list((tmp_path / "1").glob("*tfevents*"))


def test_a_replica_without_examples_is_left_out_and_unequal_ones_count_by_examples(tmp_path, shown):
    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])

    def input_fn():  # replicas of 16 and 8, then one of none
        return pl.Dataset.from_tensor_slices((X, Y)).batch(16)

    estimator(tmp_path, strategy).train(input_fn)
    ((_, mean),) = shown(tmp_path).scalars("mean/feature")
    assert mean == pytest.approx(X.mean(), rel=1e-5)


@pytest.mark.parametrize("who", [0, 1])
def test_b8_summary_saver_of_one_worker_alone_shows_that_workers_part(
    tmp_path, shown, on_workers, who
):
    def work(strategy, index):
        hook = SummarySaverHook(save_steps=1, output_dir=tmp_path / f"hook{index}")
        hooks = [hook] if index == who else []
        estimator(tmp_path / str(index), strategy, save_summary_steps=0).train(
            batches(6, (2, index)), hooks
        )

    on_workers(2, 1, work)
    assert (tmp_path / "hook0").exists() == (who == 0)
    if who == 0:
        values = [value for _, value in shown(tmp_path / "hook0").scalars("mean/feature")]
        assert values == pytest.approx([X[0:12:2].mean(), X[12::2].mean()], rel=1e-5)


def test_workers_may_show_different_things(tmp_path, shown, on_workers):
    def work(strategy, index):
        def own_model_fn(features, labels, mode):
            pl.summary.scalar(f"of worker {index}", index)
            return model_fn(features, labels, mode)

        estimator(tmp_path / str(index), strategy, own_model_fn).train(batches(6, (2, index)))

    on_workers(2, 1, work)
    found = shown(tmp_path / "0")
    assert found.scalars("of worker 0") == [(1, 0.0), (2, 0.0)]
    assert found.scalars("of worker 1") == [(1, 1.0), (2, 1.0)]


def test_a_name_that_is_used_twice_is_numbered(tmp_path, shown):
    def twice(features, labels, mode):
        pl.summary.scalar("x", 1)
        pl.summary.scalar("x", 2)
        return model_fn(features, labels, mode)

    estimator(tmp_path, model=twice).train(batches(24))
    assert shown(tmp_path).scalars("x") == [(1, 1.0)]
    assert shown(tmp_path).scalars("x_1") == [(1, 2.0)]


def test_what_cannot_be_shown_ends_the_run_at_its_first_step(tmp_path):
    def wrong(features, labels, mode):
        pl.summary.scalar("x", features)
        return model_fn(features, labels, mode)

    with pytest.raises(TypeError, match="'x' must be one number, it is of shape"):
        estimator(tmp_path, model=wrong).train(batches(24))


def test_ob_03_b1_evaluate_writes_metrics_at_their_global_step_by_name(tmp_path, shown):
    trained = estimator(tmp_path)
    for _ in range(2):
        trained.train(batches(8), steps=3)
        trained.evaluate(batches(8))
        trained.evaluate(batches(8), name="again")
    for directory in ("eval", "eval_again"):
        assert len(list((tmp_path / directory).glob("*tfevents*"))) == 1
        found = shown(tmp_path / directory)
        assert found.names["scalars"] == ["loss", "mean_label"]
        assert found.scalars("mean_label") == [(step, pytest.approx(Y.mean())) for step in (3, 6)]


def test_b8_summary_saver_shows_the_first_step_of_an_evaluation_always(tmp_path, shown):
    hook = SummarySaverHook(save_steps=100, output_dir=tmp_path / "shown")
    model = partial(model_fn, evaluation_hooks=[hook])
    trained = estimator(tmp_path, model=model)
    trained.train(batches(8), steps=3)
    trained.evaluate(batches(8))
    assert shown(tmp_path / "shown").scalars("largest") == [(3, X[:8].max())]


@pytest.mark.parametrize("steps", [0, None])
def test_nothing_is_written_where_summaries_are_off(tmp_path, steps):
    off = estimator(tmp_path, save_summary_steps=steps)
    off.train(batches(8))
    off.evaluate(batches(8))
    written = {path.name for path in tmp_path.iterdir()}
    assert not [n for n in written if "tfevents" in n or n == "history"]
    # What early stopping reads is no summary.
    assert [path.name for path in (tmp_path / "eval").iterdir()] == ["metrics.json"]


class FailAt(SessionRunHook):
    def __init__(self, step):
        self._step = step

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self._step:
            raise OSError("the power went")


def test_a_run_that_is_continued_shows_each_step_once(tmp_path, shown):
    killed = estimator(tmp_path, save_checkpoints_steps=2)
    with pytest.raises(OSError, match="power"):
        killed.train(lambda: batches(4)().repeat(), hooks=[FailAt(5)], steps=8)
    saved = pl.checkpoint.list_checkpoints(tmp_path)[-1][1]
    estimator(tmp_path).train(lambda: batches(4)().repeat(), steps=3)
    steps = [step for step, _ in shown(tmp_path).scalars("loss")]
    assert steps == [*range(1, saved + 1), *range(saved + 1, saved + 4)]
    found = events(tmp_path)
    assert [event["step"] for event in of_kind("begin", found)] == [0, saved]
    assert of_kind("failure", found)[0]["error"] == "OSError: the power went"


def test_the_history_tells_what_a_run_did(tmp_path):
    trained = estimator(tmp_path, save_checkpoints_steps=2)
    trained.train(batches(8), steps=3)
    trained.evaluate(batches(8), name="all")
    found = events(tmp_path)
    kinds = [event["event"] for event in found]
    assert kinds[:3] == ["begin", "checkpoint", "steps"]
    assert kinds[-2:] == ["end", "evaluation"]
    begin, last = found[0], of_kind("steps", found)[-1]
    assert (begin["task"], begin["is_chief"], begin["last_step"]) == ("worker 0", True, 3)
    assert begin["config"]["save_summary_steps"] == "1"
    assert last["step"] == 3
    assert last["scalars"]["largest"] == X[16:].max()
    assert {event["step"] for event in of_kind("checkpoint", found)} == {0, 2, 3}
    assert of_kind("evaluation", found)[0]["metrics"]["mean_label"] == pytest.approx(Y.mean())
    assert of_kind("end", found)[0]["reason"] == "max_steps was reached"


def test_the_phases_of_the_steps_add_up_to_the_time_that_has_passed(tmp_path):
    estimator(tmp_path, save_summary_steps=100).train(lambda: batches(8)().repeat(), steps=401)
    steps = of_kind("steps", events(tmp_path))[1:]
    passed = steps[-1]["time"] - steps[0]["time"]
    assert sum(sum(e["phases"].values()) for e in steps[1:]) == pytest.approx(passed, rel=0.3)
    spent = {name for event in steps for name, secs in event["phases"].items() if secs}
    assert spent >= {"input", "forward", "backward", "communication", "update", "save", "other"}


def test_each_worker_notes_its_own_history(tmp_path, on_workers):
    def work(strategy, index):
        estimator(tmp_path, strategy).train(batches(6, (2, index)))

    on_workers(2, 1, work)
    first, second = events(tmp_path), events(tmp_path, "worker-1")
    assert [of_kind("steps", found)[-1]["step"] for found in (first, second)] == [2, 2]
    assert [found[0]["is_chief"] for found in (first, second)] == [True, False]
    assert of_kind("checkpoint", first)
    assert not of_kind("checkpoint", second)


def test_with_parameter_servers_the_chief_shows_its_own_steps(tmp_path, shown, server_job):
    job = server_job(2, 1, storage=CheckpointShards(3, str(tmp_path)))
    with VariableStore().building():
        run = estimator(tmp_path, job.strategy(), log_gradient_norm=True)
        run.train_and_report(batches(12))
    require_same(shown(tmp_path), one_process(tmp_path / "one", shown))
    steps = of_kind("steps", events(tmp_path))
    assert steps[-1]["phases"]["communication"] > 0


def test_a_disk_that_is_full_ends_no_run(tmp_path, caplog):
    (tmp_path / "history").write_text("in the way of a directory")
    with caplog.at_level(logging.WARNING):
        estimator(tmp_path).train(batches(8))
    (line,) = [r.getMessage() for r in caplog.records if "history" in r.getMessage()]
    assert line.startswith("The history of the run is not whole: ")


@pytest.mark.parametrize(
    "make",
    [
        SummarySaverHook,
        partial(SummarySaverHook, 1, 1.0, "d"),
        partial(SummarySaverHook, 1),
        partial(SummarySaverHook, 1, None, "d", pl.summary.FileWriter("d")),
        partial(StepCounterHook, 1, None, "d", pl.summary.FileWriter("d")),
    ],
)
def test_b8_summary_saver_and_step_counter_say_what_they_need(make):
    with pytest.raises(ValueError, match="exactly one of"):
        make()


def test_b8_step_counter_writes_where_it_is_told_to(tmp_path, shown):
    hook = StepCounterHook(every_n_steps=1, output_dir=tmp_path / "rates")
    estimator(tmp_path / "run", save_summary_steps=0).train(batches(8), [hook])
    found = shown(tmp_path / "rates")
    assert found.names["scalars"] == ["global_step/sec", "examples/sec"]
    ratio = found.scalars("examples/sec")[-1][1] / found.scalars("global_step/sec")[-1][1]
    assert ratio == pytest.approx(8, rel=1e-3)


@pytest.mark.parametrize("settings", [{}, {"save_summary_steps": 0}])
def test_a_run_that_is_asked_for_it_leaves_a_report_also_when_it_fails(tmp_path, settings):
    trained = estimator(tmp_path, report=True, **settings)
    with pytest.raises(OSError, match="power"):
        trained.train(batches(8), hooks=[FailAt(2)])
    assert "the power went" in (tmp_path / "report.html").read_text()
    trained.train(batches(8))
    trained.evaluate(batches(8))
    page = (tmp_path / "report.html").read_text()
    assert "ended: the input ended" in page
    assert "mean_label" in page
