"""train_and_evaluate in roles (B4, B5, B6, D-02): every task of a job runs the same lines.

The tasks are threads of this process, each with a TF_CONFIG of its own, joined by RING.
"""

import contextvars
import json
import threading

import numpy as np
import pytest

import paceline as pl
from paceline.cluster import ClusterError, TFConfigClusterResolver, free_ports
from paceline.estimator import (
    CheckpointSaverListener,
    NanLossDuringTrainingError,
    SessionRunHook,
)
from paceline.estimator.roles import start_delay_secs

LIMIT_SECS = 60
MAX_STEPS = 6


def cluster_of(text):
    """A cluster with a free port for each task, from words such as "chief worker worker"."""
    kinds = text.split()
    cluster = {}
    for kind, port in zip(kinds, free_ports(len(kinds)), strict=True):
        cluster.setdefault(kind, []).append(f"127.0.0.1:{port}")
    return cluster


def sparse(cluster):
    """The same as a map from index to address for each role, as some platforms write it."""
    return {
        kind: {str(i): address for i, address in enumerate(addresses)}
        for kind, addresses in cluster.items()
    }


def tf_config(cluster, kind, index, key="cluster"):
    return json.dumps({key: cluster, "task": {"type": kind, "index": index}})


class Job:
    """Starts tasks as threads, each with the same `main(strategy, task)`.

    `task` is the role and the index, as in "worker 1".
    """

    def __init__(self, main):
        self._main = main
        self._threads = {}
        self.results = {}

    def start(self, kind, index, config):
        task = f"{kind} {index}"
        run = contextvars.copy_context().run
        thread = threading.Thread(target=run, args=(self._run, task, config), daemon=True)
        self._threads[task] = thread
        thread.start()

    def start_all(self, cluster, written=None, key="cluster"):
        """Every task that is listed in `cluster`, told of it as `written`."""
        for kind, addresses in cluster.items():
            for index in range(len(addresses)):
                self.start(kind, index, tf_config(written or cluster, kind, index, key))

    def is_running(self, task):
        return self._threads[task].is_alive()

    def wait(self):
        """The results of all tasks by name; raises what one of them has raised."""
        for thread in self._threads.values():
            thread.join(LIMIT_SECS)
        assert not any(map(self.is_running, self._threads))
        for result in self.results.values():
            if isinstance(result, BaseException):
                raise result
        return self.results

    def _run(self, task, config):
        communicator = None
        try:
            strategy = pl.MultiWorkerMirroredStrategy(
                cluster_resolver=TFConfigClusterResolver(environ={"TF_CONFIG": config}),
                communication_options=pl.CommunicationOptions(
                    timeout_seconds=30, start_timeout_secs=30
                ),
            )
            if strategy.extended.num_workers > 1:
                communicator = strategy.extended.workers.communicator
            self.results[task] = self._main(strategy, task)
        except BaseException as error:
            self.results[task] = error
        if communicator is not None:
            failed = isinstance(self.results[task], BaseException)
            communicator.close(repr(self.results[task]) if failed else "")


@pytest.fixture
def job(linear_model_fn, tmp_path, input_fn, one_pass):
    """`job(**hooks)`: a job of the usual script, with hooks for training and for evaluation."""

    def make(train_hooks=(), eval_hooks=(), listeners=(), max_steps=MAX_STEPS):
        def main(strategy, task):
            config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=2)
            return pl.train_and_evaluate(
                pl.Estimator(linear_model_fn, tmp_path, config),
                pl.TrainSpec(
                    input_fn,
                    max_steps,
                    [h(task) for h in train_hooks],
                    [h(task) for h in listeners],
                ),
                pl.EvalSpec(
                    one_pass,
                    hooks=[h(task) for h in eval_hooks],
                    start_delay_secs=0,
                    throttle_secs=0,
                ),
            )

        return Job(main)

    return make


class Evaluations:
    """Makes hooks that note which task evaluated which step."""

    def __init__(self):
        self.steps = {}

    def __call__(self, task):
        notes = self.steps

        class Note(SessionRunHook):
            def end(self, session):
                notes.setdefault(task, []).append(session.global_step)

        return Note()


@pytest.mark.parametrize(
    ("listed", "write", "key"),
    [
        ("worker worker evaluator", dict, "cluster"),
        ("chief worker evaluator", dict, "cluster"),
        ("worker evaluator", dict, "cluster"),
        ("chief worker evaluator", sparse, "cluster"),
        ("chief worker evaluator", sparse, "sparseCluster"),
    ],
)
def test_d_02_with_an_evaluator_in_the_cluster_workers_evaluate_at_the_end_only(
    job, listed, write, key
):
    """Ruling 7, D-03: each role returns the final metrics."""
    cluster, evaluations = cluster_of(listed), Evaluations()
    started = job(eval_hooks=[evaluations])
    started.start_all(cluster, write(cluster), key)
    results = started.wait()
    assert {task: result.global_step for task, result in results.items()} == dict.fromkeys(
        results, MAX_STEPS
    )
    assert {result.ended for result in results.values()} == {"max_steps was reached"}
    assert evaluations.steps.pop("evaluator 0")[-1] == MAX_STEPS
    assert list(evaluations.steps.values()) == [[MAX_STEPS]] * (len(results) - 1)
    assert {result.metrics["global_step"] for result in results.values()} == {MAX_STEPS}


@pytest.mark.parametrize(
    "listed",
    [
        "worker worker",
        "chief worker",
        pytest.param("master worker", id="B4.master_local"),  # a master evaluates itself
        "chief",
    ],
)
def test_d_02_an_evaluator_outside_the_cluster_needs_nothing_but_model_dir(job, listed):
    """The workers do not know of it, and evaluate too."""
    cluster, evaluations = cluster_of(listed), Evaluations()
    started = job(eval_hooks=[evaluations])
    started.start_all(cluster)
    if "master" not in cluster:
        started.start("evaluator", 0, tf_config(cluster, "evaluator", 0))
    for task, result in started.wait().items():
        assert result.global_step == result.metrics["global_step"] == MAX_STEPS, task
        assert evaluations.steps[task][-1] == MAX_STEPS


def test_b3_master_has_no_evaluator_beside_it():
    """It evaluates itself."""
    config = tf_config(cluster_of("master worker"), "evaluator", 0)
    with pytest.raises(ClusterError, match="rename 'master' to 'chief'"):
        TFConfigClusterResolver(environ={"TF_CONFIG": config})


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_cl_15_b4_evaluator_may_start_before_during_or_after_training(job, when):
    cluster, started_both = cluster_of("worker worker evaluator"), threading.Event()

    class WaitAtStep3(SessionRunHook):
        def __init__(self, task):
            self._task = task

        def after_run(self, run_context, run_values):
            if run_context.session.global_step == 3 and when != "after":
                assert started_both.wait(LIMIT_SECS)

    started = job(train_hooks=[WaitAtStep3])

    def start_evaluator():
        started.start("evaluator", 0, tf_config(cluster, "evaluator", 0))
        started_both.set()

    if when == "before":
        start_evaluator()
        assert started.is_running("evaluator 0")
    for index in range(2):
        started.start("worker", index, tf_config(cluster, "worker", index))
    if when == "during":
        start_evaluator()
    if when == "after":
        started.wait()
        start_evaluator()
    results = started.wait()
    assert results["evaluator 0"].metrics["global_step"] == MAX_STEPS
    assert results["worker 0"].global_step == MAX_STEPS


def test_d_28_the_evaluator_leaves_when_training_is_stopped_early(job):
    class StopAt3(SessionRunHook):
        def __init__(self, task):
            self._wants_to = task == "worker 1"

        def after_run(self, run_context, run_values):
            if self._wants_to and run_context.session.global_step == 3:
                run_context.request_stop()

    started = job(train_hooks=[StopAt3], max_steps=None)
    started.start_all(cluster_of("chief worker worker evaluator"))
    results = started.wait()
    assert {task: result.global_step for task, result in results.items()} == dict.fromkeys(
        results, 3
    )
    assert results["evaluator 0"].metrics["global_step"] == 3
    assert {result.ended for result in results.values()} == {"a hook asked to stop on worker 2"}


def test_b4_chief_alone_tells_saving_listeners(job):
    told = []

    class Listener(CheckpointSaverListener):
        def __init__(self, task):
            self._task = task

        def after_save(self, session, global_step_value):
            told.append((self._task, global_step_value))

    started = job(listeners=[Listener])
    started.start_all(cluster_of("chief worker evaluator"))
    started.wait()
    assert told == [("chief 0", step) for step in (0, 2, 4, 6)]


def test_a_listener_on_the_chief_ends_the_run_of_all(job):
    class Listener(CheckpointSaverListener):
        def __init__(self, task):
            pass

        def after_save(self, session, global_step_value):
            return global_step_value == 4

    started = job(listeners=[Listener], max_steps=100)
    started.start_all(cluster_of("worker worker"))
    assert {result.global_step for result in started.wait().values()} == {4}


def test_b4_chief_alone_runs_training_chief_hooks(tmp_path, linear_model_fn, input_fn):
    ran = []

    def main(strategy, task):
        class Hook(SessionRunHook):
            def begin(self):
                ran.append(task)

        def model_fn(features, labels, mode):
            spec = linear_model_fn(features, labels, mode)
            return pl.EstimatorSpec(
                mode, loss=spec.loss, train_op=spec.train_op, training_chief_hooks=[Hook()]
            )

        config = pl.RunConfig(train_distribute=strategy)
        pl.Estimator(model_fn, tmp_path, config).train(input_fn, steps=1)

    started = Job(main)
    started.start_all(cluster_of("chief worker worker"))
    started.wait()
    assert ran == ["chief 0"]


@pytest.mark.parametrize("kind", ["evaluator", "ps"])
def test_b1_train_is_refused_where_nobody_trains(
    kind, monkeypatch, linear_model_fn, tmp_path, input_fn
):
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster_of("chief ps evaluator"), kind, 0))
    estimator = pl.Estimator(linear_model_fn, tmp_path)
    with pytest.raises(ValueError, match=f"this process is {kind} 0, which does not train"):
        estimator.train(input_fn, steps=1)
    assert not list(tmp_path.iterdir())


def test_d_20_parameter_servers_that_nothing_uses_are_refused(
    monkeypatch, linear_model_fn, tmp_path, input_fn
):
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster_of("chief ps"), "chief", 0))
    with pytest.raises(ValueError, match=r"1 parameter servers \(ps\).*leave them out"):
        pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=1)


def test_es_16_workers_that_would_train_apart_are_refused(
    monkeypatch, linear_model_fn, tmp_path, input_fn
):
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster_of("chief worker"), "worker", 0))
    with pytest.raises(ValueError, match="train_distribute=MultiWorkerMirroredStrategy"):
        pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=1)


def test_b3_evaluator_number_two_is_refused(monkeypatch, linear_model_fn, tmp_path, one_pass):
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster_of("chief worker"), "evaluator", 1))
    estimator = pl.Estimator(linear_model_fn, tmp_path)
    with pytest.raises(ClusterError, match="there is only one evaluator"):
        pl.train_and_evaluate(estimator, pl.TrainSpec(one_pass), pl.EvalSpec(one_pass))


def test_an_evaluator_without_model_dir_is_refused(monkeypatch, linear_model_fn):
    """B12: it would wait for ever in a temporary directory of its own."""
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster_of("chief worker"), "evaluator", 0))
    with pytest.raises(ValueError, match="model_dir is not given, and an evaluator cannot know"):
        pl.Estimator(linear_model_fn)


def test_an_evaluator_finds_model_dir_in_tf_config(
    monkeypatch, linear_model_fn, tmp_path, input_fn, one_pass
):
    """And a chief that is alone with it needs no strategy."""
    specs = pl.TrainSpec(input_fn, max_steps=2), pl.EvalSpec(one_pass, start_delay_secs=0)
    results = []
    for kind in ("chief", "evaluator"):
        config = {"cluster": {"chief": ["localhost:1"]}, "task": {"type": kind, "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps({**config, "model_dir": str(tmp_path)}))
        results.append(pl.train_and_evaluate(pl.Estimator(linear_model_fn), *specs))
    trained, evaluated = results
    assert trained == evaluated
    assert evaluated.global_step == 2


def test_evaluation_on_several_workers_takes_the_chiefs_checkpoint(
    on_workers, linear_model_fn, tmp_path, input_fn, one_pass
):
    """The others need not see its files, if they evaluate together."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path / str(index), config)
        estimator.train(input_fn, steps=3)
        return estimator.evaluate(one_pass)

    first, second = on_workers(2, 1, work)
    assert first == second
    assert first["global_step"] == 3
    assert not (tmp_path / "1").exists()


def test_workers_that_evaluate_apart_take_the_chiefs_checkpoint_too(
    on_workers, linear_model_fn, tmp_path, input_fn, one_pass
):
    """Never what a directory of their own happens to hold; without it they fail."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path / str(index), config)
        specs = pl.TrainSpec(input_fn, max_steps=2), pl.EvalSpec(one_pass)
        return pl.train_and_evaluate(estimator, *specs)

    first, second = on_workers(2, 1, work)
    assert first == second
    assert first.metrics["global_step"] == 2


def test_b12_chief_leaves_first_no_worker_returns_before_the_last_checkpoint_is_written(
    on_workers, linear_model_fn, tmp_path, input_fn
):
    """B12: the next line of a script finds it, on every worker."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        estimator.train(input_fn, steps=3)
        return int(estimator.get_variable_value("global_step"))

    assert on_workers(3, 1, work) == [3, 3, 3]


def test_ruling_4_a_worker_without_data_keeps_taking_part_until_max_steps(
    on_workers, linear_model_fn, tmp_path, examples
):
    """The others' examples are then all that count."""

    def train(num_workers, name):
        def work(strategy, index):
            data = pl.Dataset.from_tensor_slices(examples).batch(8)
            mine = data.take(1) if index == 1 else data.repeat()
            config = pl.RunConfig(train_distribute=strategy)
            estimator = pl.Estimator(linear_model_fn, tmp_path / name, config)
            return estimator.train_and_report(lambda: mine, max_steps=20)

        ends = on_workers(num_workers, 1, work)
        assert {(end.global_step, end.reason) for end in ends} == {(20, "max_steps was reached")}
        return pl.Estimator(linear_model_fn, tmp_path / name).get_variable_value("w")

    # The one batch of the second worker is the first one of the other: the mean stays the same.
    np.testing.assert_allclose(train(2, "two"), train(1, "one"), rtol=1e-6)


def test_ruling_10_a_loss_that_is_nan_on_one_worker_ends_all_and_is_not_saved(
    on_workers, linear_model_fn, tmp_path, examples
):
    x, y = examples
    raised = []

    def work(strategy, index):
        mine = x.copy()
        mine[20] = np.nan if index == 1 else 0
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=1)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        try:
            estimator.train(lambda: pl.Dataset.from_tensor_slices((mine, y)).batch(8))
        except NanLossDuringTrainingError as error:
            raised.append(str(error))

    on_workers(2, 1, work)
    assert len(raised) == 2
    assert all("loss of step 3 is nan, by that of worker 1; the step" in told for told in raised)
    steps = [step for _, step in pl.checkpoint.list_checkpoints(tmp_path)]
    assert steps == [0, 1, 2]


class AskForLoss(SessionRunHook):
    def __init__(self):
        self.values = []

    def before_run(self, run_context):
        return pl.estimator.SessionRunArgs("loss")

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def test_es_21_hooks_may_ask_for_the_loss_where_evaluation_shards_are_unequal(
    on_workers, linear_model_fn, tmp_path, examples
):
    x, y = examples

    def work(strategy, index):
        config = pl.RunConfig(eval_distribute=strategy)
        mine = slice(index * 40, 40 if index == 0 else None)
        hook = AskForLoss()
        found = pl.Estimator(linear_model_fn, tmp_path, config).evaluate(
            lambda: pl.Dataset.from_tensor_slices((x[mine], y[mine])).batch(8), hooks=[hook]
        )
        return found["loss"], len(hook.values)

    (first, five), (second, one) = on_workers(2, 1, work)
    assert (five, one) == (5, 1)
    assert first == second == pytest.approx(np.mean(y**2), rel=1e-6)


def test_es_21_a_worker_without_data_to_evaluate_is_named_on_all(
    on_workers, linear_model_fn, tmp_path, examples
):
    errors = []

    def work(strategy, index):
        config = pl.RunConfig(eval_distribute=strategy)
        part = tuple(array[: 0 if index == 1 else 8] for array in examples)
        try:
            pl.Estimator(linear_model_fn, tmp_path, config).evaluate(
                lambda: pl.Dataset.from_tensor_slices(part).batch(4)
            )
        except ValueError as error:
            errors.append(str(error))

    on_workers(2, 1, work)
    assert len(errors) == 2
    for text in errors:
        assert "no batch to evaluate on worker 1 of 2: the dataset is empty" in text


@pytest.mark.parametrize(
    ("cap", "waits"),
    [(None, [0, 0, 0]), (0, [0, 0, 0]), (3, [3, 3, 3]), (12, [5, 10, 12]), (60, [5, 10, 15])],
)
def test_b4_worker_begins_after_the_one_before_it_where_asked(cap, waits):
    assert [start_delay_secs(cap, task_id) for task_id in range(3)] == waits
