"""Baseline estimators (B1.canned): scikit-learn's dummies are what they learn."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import log_loss, mean_squared_error

import paceline as pl
from paceline.estimator import (
    BaselineClassifier,
    BaselineEstimator,
    BaselineRegressor,
    PoissonRegressionHead,
)
from paceline.nn import optimizers

X, TARGETS = load_diabetes(return_X_y=True)
TARGETS = TARGETS / 100
WINES, CULTIVARS = load_wine(return_X_y=True)
NAMES = np.array(["barolo", "grignolino", "barbera"])
WEIGHTS = np.where(CULTIVARS == 2, 3.0, 1.0)


def dataset(features, labels, repeat=1):
    def input_fn():
        data = pl.Dataset.from_tensor_slices((features, labels))
        return data.shuffle(len(labels), seed=0).repeat(repeat).batch(len(labels))

    return input_fn


def test_a_regressor_learns_the_mean(tmp_path):
    model = BaselineRegressor(tmp_path).train(dataset({"x": X}, TARGETS, 200))
    expected = DummyRegressor().fit(X, TARGETS).predict(X)
    found = np.array([p["predictions"][0] for p in model.predict(dataset({"x": X}, TARGETS))])
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    error = mean_squared_error(TARGETS, expected)
    assert model.evaluate(dataset({"x": X}, TARGETS))["average_loss"] == pytest.approx(
        error, rel=1e-3
    )


@pytest.mark.parametrize("weight", [None, "w"])
def test_a_classifier_learns_how_frequent_classes_are(tmp_path, weight):
    words = NAMES[CULTIVARS]
    features = {"x": WINES, "w": WEIGHTS}
    options = {"weight_column": weight, "label_vocabulary": NAMES.tolist()}
    model = BaselineClassifier(tmp_path, n_classes=3, **options)
    model.train(dataset(features, words, 300))
    sample_weight = WEIGHTS if weight else None
    dummy = DummyClassifier(strategy="prior").fit(WINES, CULTIVARS, sample_weight)
    found = next(model.predict(dataset(features, words)))
    np.testing.assert_allclose(found["probabilities"], dummy.predict_proba(WINES[:1])[0], atol=5e-3)
    results = model.evaluate(dataset(features, words))
    expected = log_loss(CULTIVARS, dummy.predict_proba(WINES), sample_weight=sample_weight)
    assert results["average_loss"] == pytest.approx(expected, rel=2e-3)
    accuracy = dummy.score(WINES, CULTIVARS, sample_weight)
    assert results["accuracy"] == pytest.approx(accuracy)


def test_two_classes_have_the_metrics_of_two(tmp_path):
    labels = (CULTIVARS > 0).astype(int)
    model = BaselineClassifier(tmp_path).train(dataset(WINES, labels, 100))
    results = model.evaluate(dataset(WINES, labels))
    assert results["accuracy"] == results["accuracy_baseline"] == pytest.approx(labels.mean())
    assert results["auc"] == 0.5


def test_ftrl_takes_steps_of_three_tenths(tmp_path):
    """TensorFlow's default: w ← -(z - σ·w) / (√n / 0.3) of a squared error of one label of 1."""
    one = dataset({"x": [[0.0]]}, [1.0])
    named, given = (
        BaselineRegressor(tmp_path / name, optimizer=optimizer).train(one)
        for name, optimizer in (("a", "Ftrl"), ("b", optimizers.Ftrl(0.3)))
    )
    bias = named.get_variable_value("baseline/bias")
    np.testing.assert_array_equal(bias, given.get_variable_value("baseline/bias"))
    assert bias == pytest.approx(0.3 * 2 / np.sqrt(4.1), rel=1e-6)


def test_any_head_will_do(tmp_path):
    counts = np.array([0.0, 1.0, 2.0, 5.0])
    model = BaselineEstimator(PoissonRegressionHead(), tmp_path)
    model.train(dataset({"x": counts}, counts, 200))
    found = next(model.predict(dataset({"x": counts}, counts)))
    assert found["predictions"] == pytest.approx(2.0, rel=1e-2)


def test_baselines_learn_on_a_card(tmp_path, a_card):
    config = pl.RunConfig(train_distribute=pl.OneDeviceStrategy("GPU:0"))
    card = BaselineRegressor(tmp_path / "card", config=config)
    host = BaselineRegressor(tmp_path / "host")
    biases = [
        model.train(dataset({"x": X}, TARGETS, 5)).get_variable_value("baseline/bias")
        for model in (card, host)
    ]
    np.testing.assert_allclose(*biases, rtol=1e-6)


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"must be a Head.*it is 'mse'"):
        BaselineEstimator("mse", tmp_path)
    with pytest.raises(ValueError, match="no optimizer is called 'Best'"):
        BaselineRegressor(tmp_path, optimizer="Best")
