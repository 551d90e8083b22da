"""train_and_evaluate in one process (semantics.md B5)."""

import pytest

import paceline as pl
from paceline.estimator import SessionRunHook


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


def test_every_checkpoint_but_the_first_is_evaluated(linear_model_fn, tmp_path, input_fn, one_pass):
    _, result, steps = run(linear_model_fn, tmp_path, input_fn, one_pass, throttle_secs=0)
    assert steps == [2, 4, 6]
    assert result.metrics["global_step"] == result.global_step == 6
    assert result.ended == "max_steps was reached"


def test_throttled_evaluation_still_comes_at_the_end(linear_model_fn, tmp_path, input_fn, one_pass):
    _, result, steps = run(linear_model_fn, tmp_path, input_fn, one_pass, throttle_secs=600)
    assert steps == [6]
    assert set(result.metrics) == {"loss", "mean_label", "global_step"}


def test_metrics_are_those_of_the_last_checkpoint(linear_model_fn, tmp_path, input_fn, one_pass):
    estimator, result, _ = run(linear_model_fn, tmp_path, input_fn, one_pass)
    assert result.metrics == estimator.evaluate(one_pass)


def test_the_result_unpacks_as_metrics_and_exports(linear_model_fn, tmp_path, input_fn, one_pass):
    """D-03."""
    metrics, exports = run(linear_model_fn, tmp_path, input_fn, one_pass)[1]
    assert metrics["global_step"] == 6
    assert list(exports) == []


def test_it_says_that_the_input_ended(linear_model_fn, tmp_path, one_pass):
    """D-29."""
    _, result, _ = run(linear_model_fn, tmp_path, one_pass, one_pass, max_steps=100)
    assert result.global_step == 6
    assert result.ended == "the input ended"


def test_a_finished_run_is_evaluated_but_not_trained(linear_model_fn, tmp_path, input_fn, one_pass):
    run(linear_model_fn, tmp_path, input_fn, one_pass)
    _, result, steps = run(linear_model_fn, tmp_path, input_fn, one_pass)
    assert steps == [6]
    assert "before" in result.ended


def test_a_hundred_batches_are_evaluated_by_default(linear_model_fn, tmp_path, input_fn, lines):
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
def test_specs_refuse_what_makes_no_sense(make):
    """ES-14."""
    with pytest.raises(ValueError, match=r"Spec: .* must be"):
        make(lambda: None)


def test_specs_have_tensorflows_defaults():
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
