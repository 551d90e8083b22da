"""Early stopping on any strategy (B9, B12; D-27, D-28)."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import (
    make_early_stopping_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from paceline.estimator.early_stopping import NoImprovement, Threshold
from paceline.estimator.eval_metrics import record_eval_metrics
from paceline.estimator.evaluator import read_end_marker
from paceline.nn import optimizers

from .test_workers_in_roles import Job, cluster_of

NAN = float("nan")

# What each hook sees, one evaluation every ten steps from step 10 on, and the step of the last
# evaluation by which it lets training stop; None: it goes on.
HISTORIES = {
    "higher": [
        (Threshold("m", 0, 5, True), [1, 5, 6, 2], 30),
        (Threshold("m", 0, 5, True), [5, NAN], None),
        (Threshold("m", 40, 5, True), [9, 1, 1, 1], None),
        (Threshold("m", 40, 5, True), [9, 1, 1, 9], 40),
    ],
    "lower": [
        (Threshold("m", 0, 5, False), [9, 5, 4], 30),
        (Threshold("m", 0, 5, False), [5, NAN], None),
    ],
    "no increase": [
        (NoImprovement("m", 0, 20, True), [1, 2, 3, 3], None),
        (NoImprovement("m", 0, 20, True), [1, 2, 3, 3, 2], 50),
        (NoImprovement("m", 0, 20, True), [3, 2, 2, 9], 30),
        (NoImprovement("m", 30, 20, True), [9, 1, 1, 2, 2], None),
        (NoImprovement("m", 0, 20, True), [NAN, 1, NAN, 1], 40),
        (NoImprovement("m", 0, 20, True), [NAN, NAN, NAN, NAN], None),
    ],
    "no decrease": [
        (NoImprovement("m", 0, 20, False), [3, 2, 2, 1], None),
        (NoImprovement("m", 0, 20, False), [3, 2, 2, 3], 40),
    ],
    "nothing": [
        (Threshold("m", 0, 5, True), [], None),
        (NoImprovement("m", 0, 20, False), [], None),
    ],
}


@pytest.mark.parametrize(
    ("criterion", "values", "step"),
    [case for cases in HISTORIES.values() for case in cases],
    ids=str,
)
def test_b9_criteria(criterion, values, step):
    history = {10 * (i + 1): {"m": value} for i, value in enumerate(values)}
    stopping = [s for s in history if criterion.reason({k: history[k] for k in history if k <= s})]
    assert (stopping[0] if stopping else None) == step


def test_b9_a_missing_metric_is_named_with_those_that_there_are():
    with pytest.raises(KeyError, match=r"step 3 has no metric 'auc'.*it has accuracy, loss"):
        Threshold("auc", 0, 1, True).reason({3: {"loss": 1, "accuracy": 1}})


def test_d_27_the_history_outlives_the_checkpoints(linear_model_fn, tmp_path, input_fn, one_pass):
    """D-27: a small file, in the order of steps, of evaluations with and without a name."""
    config = pl.RunConfig(save_checkpoints_steps=1, keep_checkpoint_max=2)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    results = {}
    for step in (1, 2, 3, 12):
        estimator.train(input_fn, max_steps=step)
        results[step] = estimator.evaluate(one_pass)
    history = read_eval_metrics(estimator.eval_dir())
    assert list(history) == [1, 2, 3, 12]
    for step, metrics in history.items():
        assert {**metrics, "global_step": step} == results[step]
    estimator.evaluate(one_pass, name="val")
    assert list(read_eval_metrics(estimator.eval_dir("val"))) == [12]
    assert read_eval_metrics(tmp_path / "nowhere") == {}


def test_the_checkpoint_of_another_model_is_no_part_of_the_history(
    linear_model_fn, tmp_path, input_fn, one_pass
):
    other = pl.Estimator(linear_model_fn, tmp_path / "other").train(input_fn, steps=2)
    estimator = pl.Estimator(linear_model_fn, tmp_path / "own").train(input_fn, steps=1)
    estimator.evaluate(one_pass, checkpoint_path=other.latest_checkpoint())
    assert read_eval_metrics(estimator.eval_dir()) == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"a": {}}', '{"1": 2}'])
def test_a_damaged_history_says_so(tmp_path, text):
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(ValueError, match=r"metrics.json in .* is damaged .*; delete it"):
        read_eval_metrics(tmp_path)


def test_a_history_with_values_that_are_no_numbers_is_read_back(tmp_path):
    record_eval_metrics(str(tmp_path), 10, {"loss": NAN, "x": float("inf")})
    record_eval_metrics(str(tmp_path), 5, {"loss": 1.5})
    history = read_eval_metrics(tmp_path)
    assert list(history) == [5, 10]
    assert np.isnan(history[10]["loss"])
    assert history[10]["x"] == float("inf")


def still_model_fn(features, labels, mode):
    """A model that learns nothing: its loss is the same at each evaluation."""
    loss = np.mean(np.square(features @ pl.get_variable("w", (3, 1), initializer=0.5) - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.0).minimize(loss))


HOW_OFTEN = {
    "by steps": {"run_every_secs": None, "run_every_steps": 1},
    "by seconds": {"run_every_secs": 1e-9},
}
STRATEGIES = {
    "default": lambda: None,
    "one device": lambda: pl.OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
    "central storage": lambda: pl.CentralStorageStrategy(["CPU:0", "CPU:1"]),
}


def train_and_evaluate(strategy, directory, input_fn, eval_fn, hook, name=None):
    config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=2)
    estimator = pl.Estimator(still_model_fn, directory, config)
    return pl.train_and_evaluate(
        estimator,
        pl.TrainSpec(input_fn, max_steps=1000, hooks=[hook(estimator)]),
        pl.EvalSpec(eval_fn, throttle_secs=0, name=name),
    )


@pytest.mark.parametrize("how_often", HOW_OFTEN)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_b9_b12_early_stopping_strategy_is_any_of_one_process(
    tmp_path, input_fn, one_pass, lines, strategy, how_often
):
    """By seconds, too: the strategy has no say in that, which refused them in TensorFlow."""

    def hook(estimator):
        return stop_if_no_decrease_hook(estimator, "loss", 4, **HOW_OFTEN[how_often])

    result = train_and_evaluate(STRATEGIES[strategy](), tmp_path, input_fn, one_pass, hook)
    # Evaluated at 2, 4 and 6; the step that is made when it is found is the last.
    assert result.global_step == 7
    assert result.ended == "a hook asked to stop"
    assert read_end_marker(str(tmp_path)).global_step == 7
    why = "Early stopping: from step 2 to 6 loss has not fallen below "
    assert sum(line.startswith(why) for line in lines()) == 1


@pytest.mark.parametrize(("workers", "replicas"), [(2, 1), (2, 2), (3, 1)])
def test_b9_all_workers_stop_after_the_same_step_and_the_chief_alone_decides(
    on_workers, tmp_path, input_fn, one_pass, workers, replicas
):
    asked = []

    def work(strategy, index):
        def should_stop():
            asked.append(index)
            return len(asked) == 4

        def hook(estimator):
            return make_early_stopping_hook(estimator, should_stop, None, 1)

        return train_and_evaluate(strategy, tmp_path, input_fn, one_pass, hook).global_step

    assert on_workers(workers, replicas, work) == [4] * workers
    assert asked == [0] * 4


def test_d_28_an_evaluator_beside_a_job_that_stops_early_ends_with_it(tmp_path, input_fn, one_pass):
    """And it is what the chief stops by: nobody else evaluates."""

    def main(strategy, task):
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=2)
        estimator = pl.Estimator(still_model_fn, tmp_path, config)
        hook = stop_if_no_decrease_hook(estimator, "loss", 4, **HOW_OFTEN["by steps"])
        return pl.train_and_evaluate(
            estimator,
            pl.TrainSpec(input_fn, hooks=[hook]),  # there is no other end
            pl.EvalSpec(one_pass, start_delay_secs=0, throttle_secs=0),
        )

    job = Job(main)
    job.start_all(cluster_of("chief worker evaluator"))
    ended = job.wait()
    (step,) = {result.global_step for result in ended.values()}
    assert step >= 7
    assert ended["evaluator 0"].metrics["global_step"] == step


def test_b9_a_run_that_is_started_again_stops_after_its_first_step(tmp_path, input_fn, one_pass):
    def hook(estimator):
        return stop_if_no_decrease_hook(estimator, "loss", 4, **HOW_OFTEN["by steps"])

    ends = [
        train_and_evaluate(None, tmp_path, input_fn, one_pass, hook).global_step for _ in range(2)
    ]
    assert ends == [7, 8]


def test_d_27_evaluations_with_a_name_are_found_by_their_directory(
    tmp_path, input_fn, one_pass, lines
):
    """D-27, tensorflow#25272: without it nothing would ever stop, so there is a warning."""

    def in_val(estimator):
        how = {**HOW_OFTEN["by steps"], "eval_dir": estimator.eval_dir("val")}
        return stop_if_no_increase_hook(estimator, "loss", 4, **how)

    result = train_and_evaluate(None, tmp_path / "a", input_fn, one_pass, in_val, name="val")
    assert result.global_step == 7

    def wrong(estimator):
        return stop_if_no_increase_hook(estimator, "loss", 4, **HOW_OFTEN["by steps"])

    def at_ten():
        return input_fn().take(10)

    train_and_evaluate(None, tmp_path / "b", at_ten, one_pass, wrong, name="val")
    assert any("pass eval_dir=estimator.eval_dir('val')" in line for line in lines())


@pytest.mark.parametrize(
    ("make", "threshold"), [(stop_if_higher_hook, -1), (stop_if_lower_hook, 1e9)]
)
def test_b9_a_threshold_stops_with_the_first_evaluation_from_min_steps_on(
    tmp_path, input_fn, one_pass, make, threshold
):
    def hook(estimator):
        return make(estimator, "loss", threshold, min_steps=4, **HOW_OFTEN["by steps"])

    assert train_and_evaluate(None, tmp_path, input_fn, one_pass, hook).global_step == 5


REFUSED = [
    ({"run_every_secs": 60, "run_every_steps": 10}, ValueError, "pass run_every_secs=None"),
    ({"run_every_secs": None, "run_every_steps": None}, ValueError, "exactly one of"),
    ({"run_every_secs": -1}, ValueError, "must be > 0"),
    ({"should_stop_fn": True}, TypeError, "must be a function without arguments"),
    ({"estimator": "runs/1"}, TypeError, "must be a paceline.Estimator"),
]


@pytest.mark.parametrize(("given", "kind", "words"), REFUSED)
def test_what_cannot_be_meant_is_refused(estimator, given, kind, words):
    arguments = {"estimator": estimator, "should_stop_fn": lambda: False, **given}
    with pytest.raises(kind, match=words):
        make_early_stopping_hook(**arguments)
