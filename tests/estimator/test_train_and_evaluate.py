"""train_and_evaluate in one process (B5)."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import CheckpointError, Saver, read_metrics, record_metrics, save
from paceline.estimator import SessionRunHook
from paceline.estimator.evaluator import EndMarker, read_end_marker, write_end_marker


class Evaluations(SessionRunHook):
    """Notes the global steps that are evaluated."""

    def __init__(self):
        self.steps = []

    def end(self, session):
        self.steps.append(session.global_step)


def run(model_fn, tmp_path, input_fn, eval_fn, max_steps=6, **options):
    estimator = pl.Estimator(model_fn, tmp_path, pl.RunConfig(save_checkpoints_steps=2))
    evaluations = Evaluations()
    result = pl.train_and_evaluate(
        estimator,
        pl.TrainSpec(input_fn, max_steps=max_steps),
        pl.EvalSpec(eval_fn, hooks=[evaluations], **options),
    )
    return estimator, result, evaluations.steps


def test_b5_local_mode_evaluates_every_checkpoint_but_the_first(
    linear_model_fn, tmp_path, input_fn, one_pass
):
    _, result, steps = run(linear_model_fn, tmp_path, input_fn, one_pass, throttle_secs=0)
    assert steps == [2, 4, 6]
    assert result.metrics["global_step"] == result.global_step == 6
    assert result.ended == "max_steps was reached"


def test_b5_local_mode_evaluates_at_the_end_though_throttled(
    linear_model_fn, tmp_path, input_fn, one_pass
):
    _, result, steps = run(linear_model_fn, tmp_path, input_fn, one_pass, throttle_secs=600)
    assert steps == [6]
    assert set(result.metrics) == {"loss", "mean_label", "global_step"}


def test_metrics_are_those_of_the_last_checkpoint(linear_model_fn, tmp_path, input_fn, one_pass):
    estimator, result, _ = run(linear_model_fn, tmp_path, input_fn, one_pass)
    assert result.metrics == estimator.evaluate(one_pass)


def test_d_03_b5_return_value_unpacks_as_metrics_and_exports(
    linear_model_fn, tmp_path, input_fn, one_pass
):
    metrics, exports = run(linear_model_fn, tmp_path, input_fn, one_pass)[1]
    assert metrics["global_step"] == 6
    assert list(exports) == []


def test_d_29_it_says_that_the_input_ended(linear_model_fn, tmp_path, one_pass):
    _, result, _ = run(linear_model_fn, tmp_path, one_pass, one_pass, max_steps=100)
    assert result.global_step == 6
    assert result.ended == "the input ended"


def test_d_13_a_finished_run_is_evaluated_but_not_trained(
    linear_model_fn, tmp_path, input_fn, one_pass
):
    run(linear_model_fn, tmp_path, input_fn, one_pass)
    _, result, steps = run(linear_model_fn, tmp_path, input_fn, one_pass)
    assert steps == [6]
    assert "before" in result.ended


def test_b5_specs_have_a_hundred_batches_evaluated(linear_model_fn, tmp_path, input_fn, lines):
    """B5: unlike Estimator.evaluate."""
    run(linear_model_fn, tmp_path, input_fn, input_fn, max_steps=1)
    assert any("Evaluation [100/100]" in line for line in lines())


@pytest.mark.parametrize(
    "make",
    [
        lambda fn: pl.TrainSpec(fn, max_steps=0),
        lambda fn: pl.EvalSpec(fn, steps=0),
        lambda fn: pl.EvalSpec(fn, throttle_secs=-1),
        lambda fn: pl.EvalSpec(fn, start_delay_secs=-1),
    ],
)
def test_es_14_specs_refuse_what_makes_no_sense(make):
    with pytest.raises(ValueError, match=r"Spec: .* must be"):
        make(lambda: None)


def test_b5_specs_have_tensorflows_defaults():
    spec = pl.EvalSpec(lambda: None)
    assert (spec.steps, spec.name, spec.start_delay_secs, spec.throttle_secs) == (
        100,
        None,
        120,
        600,
    )
    assert pl.TrainSpec(lambda: None).max_steps is None


def test_wrong_arguments_are_named(estimator):
    with pytest.raises(TypeError, match="needs a TrainSpec"):
        pl.train_and_evaluate(estimator, None, None)


def test_a_job_that_is_refused_leaves_the_end_mark_of_the_last_one(
    linear_model_fn, tmp_path, input_fn, one_pass
):
    _, result, _ = run(linear_model_fn, tmp_path, input_fn, one_pass)
    mark = read_end_marker(tmp_path)
    assert mark == EndMarker(result.global_step, result.ended)
    empty = lambda: pl.Dataset.from_tensor_slices(np.zeros((0, 3), np.float32))  # noqa: E731
    with Saver(tmp_path), pytest.raises(CheckpointError, match="belongs to another job"):
        run(linear_model_fn, tmp_path, input_fn, one_pass, max_steps=8)
    with pytest.raises(ValueError, match="the dataset is empty"):
        run(linear_model_fn, tmp_path, empty, one_pass, max_steps=8)
    assert read_end_marker(tmp_path) == mark


def test_a_run_that_goes_on_has_no_end_mark(linear_model_fn, tmp_path, input_fn, one_pass):
    class Look(SessionRunHook):
        def after_run(self, run_context, run_values):
            found.append(read_end_marker(tmp_path))

    found = []
    run(linear_model_fn, tmp_path, input_fn, one_pass)
    estimator = pl.Estimator(linear_model_fn, tmp_path)
    pl.train_and_evaluate(
        estimator, pl.TrainSpec(input_fn, max_steps=8, hooks=[Look()]), pl.EvalSpec(one_pass)
    )
    assert found == [None, None]
    assert read_end_marker(tmp_path).global_step == 8


def test_the_result_says_where_the_best_checkpoint_is(
    linear_model_fn, tmp_path, input_fn, one_pass
):
    estimator, result, steps = run(linear_model_fn, tmp_path, input_fn, one_pass, throttle_secs=0)
    losses = {step: read_metrics(tmp_path / f"model.ckpt-{step}")["loss"] for step in steps}
    best = min(losses, key=losses.get)
    assert result.best_checkpoint == estimator.best_checkpoint() == f"{tmp_path}/model.ckpt-{best}"
    assert type(result).from_text(result.as_text()).best_checkpoint == result.best_checkpoint
    worst = max(losses, key=losses.get)
    assert estimator.best_checkpoint("loss", "max") == f"{tmp_path}/model.ckpt-{worst}"


def test_which_value_of_another_metric_is_the_best_has_to_be_said(linear_model_fn, tmp_path):
    estimator = pl.Estimator(linear_model_fn, tmp_path)
    with pytest.raises(ValueError, match="whether the best 'accuracy' is 'min' or 'max'"):
        estimator.best_checkpoint("accuracy")
    assert estimator.best_checkpoint("accuracy", "max") is None
    config = pl.RunConfig(keep_checkpoint_best="accuracy", keep_checkpoint_best_mode="max")
    for step, accuracy in ((1, 0.5), (2, 0.75), (3, 0.25)):
        record_metrics(save(tmp_path, step, {}), {"accuracy": accuracy, "loss": 1 / step})
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    assert estimator.best_checkpoint() == f"{tmp_path}/model.ckpt-2"
    assert estimator.best_checkpoint("loss") == f"{tmp_path}/model.ckpt-3"


@pytest.mark.parametrize(
    ("max_steps", "is_at_end"), [(None, True), (3, True), (5, True), (6, False)]
)
def test_a_task_that_is_started_again_can_ask_whether_training_has_ended(
    tmp_path, max_steps, is_at_end
):
    assert pl.estimator.training_ended(tmp_path, max_steps) is None  # nor has it begun
    end = EndMarker(5, "max_steps was reached")
    write_end_marker(str(tmp_path), end)
    assert pl.estimator.training_ended(tmp_path, max_steps) == (end if is_at_end else None)


RESTARTED = """
import sys
import paceline as pl

end = pl.estimator.training_ended(sys.argv[1], max_steps=5)
if end is not None:
    sys.exit(f"ended at step {end.global_step}")
pl.MultiWorkerMirroredStrategy()
"""


def test_a_chief_whose_workers_have_ended_ends_too_when_it_asks_before_it_waits(tmp_path):
    write_end_marker(str(tmp_path), EndMarker(5, "max_steps was reached"))
    workers = ["127.0.0.1:1", "127.0.0.1:2"]
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
    done = subprocess.run(
        [sys.executable, "-c", RESTARTED, tmp_path],
        env={**os.environ, "TF_CONFIG": json.dumps(cluster)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr.strip().endswith("ended at step 5")
