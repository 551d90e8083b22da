"""Premade models learn the data sets of scikit-learn as well as its own models do (B1.canned)."""

from functools import cache

import numpy as np
import pytest

import paceline as pl
from paceline import estimator as est
from paceline import feature_column as fc
from paceline.nn import optimizers

datasets = pytest.importorskip("sklearn.datasets")
linear_model = pytest.importorskip("sklearn.linear_model")
model_selection = pytest.importorskip("sklearn.model_selection")


@cache
def split(name):
    """Features and labels to learn from, and to test with; scaled by those to learn from."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    classes = None if name == "diabetes" else y
    parts = model_selection.train_test_split(x, y, random_state=0, stratify=classes)
    x, x_test, y, y_test = parts
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-9
    if classes is None:
        y, y_test = ((labels - y.mean()) / y.std() for labels in (y, y_test))
    scaled = [((part - mean) / deviation).astype(np.float32) for part in (x, x_test)]
    return scaled[0], y, scaled[1], y_test


@cache
def of_scikit_learn(name):
    """The test accuracy of logistic regression, or the mean squared error of linear regression."""
    x, y, x_test, y_test = split(name)
    if name == "diabetes":
        model = linear_model.LinearRegression().fit(x, y)
        return np.mean(np.square(model.predict(x_test) - y_test))
    return linear_model.LogisticRegression(max_iter=2000).fit(x, y).score(x_test, y_test)


def learned(name, estimator, num_passes, batch_size=32):
    x, y, x_test, y_test = split(name)

    def data():
        data = pl.Dataset.from_tensor_slices(({"x": x}, y)).shuffle(len(x), seed=0)
        return data.repeat(num_passes).batch(batch_size, drop_remainder=True)

    return estimator.train(data).evaluate(lambda: ({"x": x_test}, y_test), steps=1)


def column(name):
    return fc.numeric_column("x", split(name)[0].shape[1])


CONFIG = pl.RunConfig(tf_random_seed=0)


def test_linear_regression_of_diabetes(tmp_path):
    estimator = est.LinearRegressor([column("diabetes")], tmp_path, config=CONFIG)
    found = learned("diabetes", estimator, num_passes=400, batch_size=331)
    assert found["average_loss"] <= 1.02 * of_scikit_learn("diabetes")


@pytest.mark.parametrize(
    ("name", "num_classes", "num_passes"),
    [("breast_cancer", 2, 15), ("wine", 3, 20), ("iris", 3, 100), ("digits", 10, 8)],
)
def test_logistic_regression(tmp_path, name, num_classes, num_passes):
    estimator = est.LinearClassifier([column(name)], tmp_path, n_classes=num_classes, config=CONFIG)
    assert learned(name, estimator, num_passes)["accuracy"] >= of_scikit_learn(name) - 0.02


@pytest.mark.parametrize(
    ("name", "num_classes", "floor", "options"),
    [
        ("breast_cancer", 2, 0.94, {}),
        ("breast_cancer", 2, 0.94, {"batch_norm": True, "dropout": 0.1}),
        ("wine", 3, 0.97, {"activation_fn": "tanh", "optimizer": "Adam"}),
        ("digits", 10, 0.95, {}),
    ],
)
def test_networks(tmp_path, name, num_classes, floor, options):
    estimator = est.DNNClassifier(
        [32], [column(name)], tmp_path, num_classes, config=CONFIG, **options
    )
    assert learned(name, estimator, num_passes=12)["accuracy"] >= floor


def test_a_network_predicts_diabetes_about_as_well_as_a_linear_model(tmp_path):
    estimator = est.DNNRegressor([16], [column("diabetes")], tmp_path, config=CONFIG)
    found = learned("diabetes", estimator, num_passes=30)
    assert found["average_loss"] <= 1.1 * of_scikit_learn("diabetes")


def test_buckets_bend_a_linear_model(tmp_path):
    """Iris' classes lie in the order of a petal's length: the middle one needs two bounds."""
    petal = fc.numeric_column("x", 4)
    columns = [fc.bucketized_column(petal, np.linspace(-1.5, 1.5, 9))]
    estimator = est.LinearClassifier(columns, tmp_path, n_classes=3, config=CONFIG)
    assert learned("iris", estimator, num_passes=40)["accuracy"] >= 0.92


def test_wide_and_deep(tmp_path):
    estimator = est.DNNLinearCombinedClassifier(
        tmp_path,
        linear_feature_columns=[column("breast_cancer")],
        dnn_feature_columns=[column("breast_cancer")],
        dnn_optimizer=optimizers.Adagrad(0.05),
        dnn_hidden_units=[32],
        config=CONFIG,
    )
    assert learned("breast_cancer", estimator, num_passes=12)["accuracy"] >= 0.94
