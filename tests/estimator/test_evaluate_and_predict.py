"""Estimator.evaluate and Estimator.predict."""

import json
import logging

import numpy as np
import pytest

import paceline as pl


@pytest.fixture
def trained(estimator, input_fn):
    return estimator.train(input_fn, steps=3)


def test_b1_evaluate_gives_metrics_loss_and_step(trained, one_pass):
    results = trained.evaluate(one_pass)
    assert list(results) == ["global_step", "loss", "mean_label"]
    assert results["global_step"] == 3


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [48, 8, 7, 5])
def test_es_21_b10_streaming_exact_metrics_and_loss_over_batches_and_replicas(
    linear_model_fn, input_fn, examples, tmp_path, replicas, batch_size
):
    """Ruling 6, ES-21: the means over all examples, never means of means."""
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    config = pl.RunConfig(eval_distribute=strategy)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, steps=3)
    x, y = examples
    results = estimator.evaluate(lambda: pl.Dataset.from_tensor_slices((x, y)).batch(batch_size))
    w = estimator.get_variable_value("w")
    assert results["loss"] == pytest.approx(np.mean((x @ w - y) ** 2), rel=1e-6)
    assert results["mean_label"] == pytest.approx(np.mean(y), rel=1e-6)


@pytest.mark.parametrize(("to_train", "to_evaluate"), [(2, 1), (1, 2)])
def test_es_09_training_and_evaluation_have_a_strategy_each(
    linear_model_fn, examples, tmp_path, to_train, to_evaluate
):
    """One replica on the same global batches is the oracle."""

    def run(name, to_train, to_evaluate):
        config = pl.RunConfig(
            train_distribute=pl.MirroredStrategy([f"CPU:{i}" for i in range(to_train)]),
            eval_distribute=pl.MirroredStrategy([f"CPU:{i}" for i in range(to_evaluate)]),
        )
        estimator = pl.Estimator(linear_model_fn, tmp_path / name, config)
        data = pl.Dataset.from_tensor_slices(examples)
        estimator.train(lambda: data.batch(16 // to_train).repeat(), steps=3)
        found = estimator.evaluate(lambda: data.batch(7))
        return found, estimator.get_variable_value("w")

    found, weights = run("two strategies", to_train, to_evaluate)
    expected, expected_weights = run("one replica", 1, 1)
    assert found == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-6)


def test_evaluation_takes_as_many_batches_as_it_is_told(trained, examples):
    results = trained.evaluate(lambda: pl.Dataset.from_tensor_slices(examples).batch(8), steps=2)
    assert results["mean_label"] == pytest.approx(np.mean(examples[1][:16]), rel=1e-6)


def test_evaluating_twice_does_not_add_up(trained, one_pass):
    assert trained.evaluate(one_pass) == trained.evaluate(one_pass)


@pytest.mark.parametrize("hooks", [(), [pl.estimator.SessionRunHook()]])
@pytest.mark.parametrize("replicas", [1, 2])
def test_b1_evaluate_counts_the_same_with_and_without_hooks(
    linear_model_fn, trained, examples, hooks, replicas
):
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    estimator = pl.Estimator(
        linear_model_fn, trained.model_dir, pl.RunConfig(eval_distribute=strategy)
    )
    results = estimator.evaluate(
        lambda: pl.Dataset.from_tensor_slices(examples).batch(7), hooks=hooks
    )
    assert results["mean_label"] == pytest.approx(np.mean(examples[1]), rel=1e-6)


def test_a_given_checkpoint_is_evaluated(trained, one_pass, lines):
    """CK-06."""
    start = f"{trained.model_dir}/model.ckpt-0"
    assert trained.evaluate(one_pass, checkpoint_path=start)["global_step"] == 0
    assert any(line.endswith(start) for line in lines() if "Restoring" in line)


def test_b1_evaluate_without_a_checkpoint_takes_the_initial_values_with_a_warning(
    estimator, one_pass, examples, caplog
):
    results = estimator.evaluate(one_pass)
    assert results["loss"] == pytest.approx(np.mean(examples[1] ** 2), rel=1e-6)
    (warning,) = [r for r in caplog.records if "initial values" in r.getMessage()]
    assert warning.levelno == logging.WARNING
    assert estimator.model_dir in warning.getMessage()


def test_without_a_checkpoint_nothing_is_predicted_unless_asked_for(estimator, one_pass, examples):
    """A misspelt model_dir must not give noise."""
    with pytest.raises(ValueError, match=r"no checkpoint in .*model, and .* allow_untrained=True"):
        next(estimator.predict(one_pass))
    untrained = list(estimator.predict(one_pass, allow_untrained=True))
    assert [p["y"] for p in untrained] == [0.0] * 48


def test_a_warm_start_is_enough_to_predict_with(trained, linear_model_fn, one_pass, tmp_path):
    warm = pl.Estimator(linear_model_fn, tmp_path / "other", warm_start_from=trained.model_dir)
    expected = [p["y"] for p in trained.predict(one_pass)]
    np.testing.assert_array_equal([p["y"] for p in warm.predict(one_pass)], expected)


def test_metrics_are_python_numbers_that_json_takes(trained, one_pass):
    results = trained.evaluate(one_pass)
    assert json.loads(json.dumps(results)) == results
    assert {name: type(v) for name, v in results.items()} == {
        "global_step": int, "loss": float, "mean_label": float,
    }  # fmt: skip


def test_a_metric_with_several_values_is_an_array_in_every_task():
    result = pl.estimator.TrainAndEvaluateResult({"m": np.ones((2, 2), "f4"), "l": 0.5}, 3, "end")
    told = pl.estimator.TrainAndEvaluateResult.from_text(result.as_text())
    np.testing.assert_array_equal(told.metrics["m"], np.ones((2, 2), np.float32))
    assert (told.metrics["m"].dtype, told.metrics["l"]) == (np.float32, 0.5)
    assert isinstance(told.metrics["l"], float)


def test_evaluation_changes_nothing(trained, one_pass):
    before = trained.get_variable_value("w")
    trained.evaluate(one_pass)
    np.testing.assert_array_equal(trained.get_variable_value("w"), before)
    assert trained.latest_checkpoint().endswith("-3")


def test_b1_predict_gives_example_by_example(trained, examples, one_pass):
    predictions = list(trained.predict(one_pass))
    expected = examples[0] @ trained.get_variable_value("w")
    np.testing.assert_array_equal([p["y"] for p in predictions], expected)


def test_b1_predict_gives_batches_on_request(trained, one_pass):
    batches = list(trained.predict(one_pass, yield_single_examples=False))
    assert [b["y"].shape for b in batches] == [(8, 1)] * 6


def test_features_need_no_labels_to_predict(trained, examples):
    predictions = trained.predict(lambda: pl.Dataset.from_tensor_slices(examples[0]).batch(8))
    assert len(list(predictions)) == 48


def test_predict_keys_choose(trained, one_pass):
    assert set(next(trained.predict(one_pass, predict_keys=["twice"]))) == {"twice"}


def test_b1_predict_refuses_unknown_keys_with_those_there_are(trained, one_pass):
    with pytest.raises(ValueError, match=r"predict_keys names z; the predictions are twice, y"):
        next(trained.predict(one_pass, predict_keys=["z"]))


def test_d_19_two_predictions_can_be_interleaved(trained, one_pass):
    first, second = trained.predict(one_pass), trained.predict(one_pass)
    pairs = list(zip(first, second, strict=True))
    assert len(pairs) == 48
    assert all(a["y"] == b["y"] for a, b in pairs)


def test_b1_variables_can_be_read_from_the_newest_checkpoint(trained):
    assert trained.get_variable_names() == ["global_step", "sgd/iterations", "w"]
    with pytest.raises(ValueError, match=r"'v' is not in .*model.ckpt-3"):
        trained.get_variable_value("v")


def test_b1_variables_are_not_there_without_a_checkpoint(estimator):
    assert estimator.latest_checkpoint() is None
    with pytest.raises(ValueError, match="train first"):
        estimator.get_variable_names()


def test_the_loss_of_an_evaluation_may_be_a_number(tmp_path):
    def model_fn(features, labels, mode):
        return pl.EstimatorSpec(mode, loss=0.25)

    estimator = pl.Estimator(model_fn, tmp_path)
    dataset = pl.Dataset.from_tensor_slices((np.zeros((4, 1)), np.zeros(4))).batch(2)
    assert estimator.evaluate(lambda: dataset)["loss"] == 0.25
