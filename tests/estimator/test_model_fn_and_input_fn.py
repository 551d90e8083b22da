"""How the user's functions are called, and which variables a model_fn finds."""

from functools import partial

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, optimizers


def spec(features, mode):
    loss = np.mean(features * pl.get_variable("w", (), initializer=1.0))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))


def only_features(features):
    return spec(features, "train")


def features_and_mode(features, mode):
    return spec(features, mode)


def all_arguments(features, labels, mode, params, config):
    assert labels is None
    assert params == {"a": 1}
    assert config.tf_random_seed == 5
    return spec(features, mode)


def bound(features, mode, params, scale):
    assert (params, scale) == ({"mine": 2}, 3)
    return spec(features, mode)


X = np.ones((6, 2), np.float32)


@pytest.mark.parametrize(
    ("model_fn", "params"),
    [
        (only_features, None),
        (features_and_mode, None),
        (all_arguments, {"a": 1}),
        (partial(bound, params={"mine": 2}, scale=3), None),
    ],
)
def test_es_02_model_fn_gets_the_arguments_that_it_names(model_fn, params, tmp_path):
    config = pl.RunConfig(tf_random_seed=5)
    estimator = pl.Estimator(model_fn, tmp_path, config, params=params)
    estimator.train(lambda: pl.Dataset.from_tensor_slices(X).batch(2), steps=1)


def test_input_fn_gets_the_arguments_that_it_names(tmp_path):
    """IN-01."""
    seen = {}

    def with_all(mode, params, config, input_context):
        seen.update(mode=mode, params=params, seed=config.tf_random_seed, context=input_context)
        return pl.Dataset.from_tensor_slices(X).batch(2)

    def with_context(input_context):
        seen.update(alone=input_context)
        return pl.Dataset.from_tensor_slices(X).batch(2)

    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])
    config = pl.RunConfig(tf_random_seed=5, train_distribute=strategy)

    def model_fn(features, mode, params):
        return spec(features, mode)

    estimator = pl.Estimator(model_fn, tmp_path, config, params={"a": 1})
    estimator.train(with_all, steps=1)
    estimator.train(with_context, steps=1)
    assert seen["mode"] == "train"
    assert seen["params"] == {"a": 1}
    assert seen["seed"] == 5
    expected = pl.InputContext(num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=2)
    assert seen["context"] == seen["alone"] == expected


def test_one_batch_may_stand_for_a_dataset(tmp_path):
    """IN-02: a pair of arrays is used in every step."""

    def model_fn(features, labels, mode):
        assert features["x"].shape == (6, 2)
        assert labels.shape == (6,)
        return spec(features["x"], mode)

    estimator = pl.Estimator(model_fn, tmp_path)
    estimator.train(lambda: ({"x": X}, np.zeros(6)), steps=3)
    assert int(estimator.get_variable_value("global_step")) == 3


def test_es_03_mode_keys_equal_their_strings():
    assert pl.ModeKeys.TRAIN == "train"
    assert pl.ModeKeys.EVAL == "eval"
    assert pl.ModeKeys.PREDICT == "infer"


@pytest.mark.parametrize("replicas", [1, 2])
def test_layers_built_anew_find_their_weights(tmp_path, replicas):
    calls = []

    def model_fn(features, mode):
        calls.append(1)
        model = Sequential([layers.Dense(3, activation="relu"), layers.Dense(1)])
        loss = np.mean(np.square(model(features)))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam().minimize(loss))

    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    config = pl.RunConfig(train_distribute=strategy)
    estimator = pl.Estimator(model_fn, tmp_path, config)
    estimator.train(lambda: pl.Dataset.from_tensor_slices(X).repeat(4).batch(2), steps=5)
    assert len(calls) == 5 * replicas
    weights = [n for n in estimator.get_variable_names() if n.startswith("dense")]
    assert weights == ["dense/bias", "dense/kernel", "dense_1/bias", "dense_1/kernel"]


def test_variables_made_directly_are_found_again_too(tmp_path):
    def model_fn(features, mode):
        w = pl.Variable(1.0, name="mine")
        loss = np.mean(features) * w
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.25).minimize(loss))

    estimator = pl.Estimator(model_fn, tmp_path)
    estimator.train(lambda: pl.Dataset.from_tensor_slices(X).repeat().batch(2), steps=4)
    assert estimator.get_variable_value("mine") == 0.0


def test_what_model_fn_does_to_params_ends_with_the_call(tmp_path):
    """B1.construction: not only one level deep."""
    params = {"rate": 0.1, "sizes": [2, 3], "deep": {"list": [1]}}

    def model_fn(features, mode, params):
        assert (params.pop("rate"), params["sizes"].pop(), params["deep"]["list"].pop()) == (
            0.1, 3, 1,
        )  # fmt: skip
        return spec(features, mode)

    def input_fn(params):
        params["deep"].clear()
        return pl.Dataset.from_tensor_slices(X).batch(2)

    estimator = pl.Estimator(model_fn, tmp_path, params=params)
    estimator.params["deep"]["list"].append(2)
    estimator.train(input_fn, steps=3)
    assert estimator.params == params == {"rate": 0.1, "sizes": [2, 3], "deep": {"list": [1]}}


def test_input_fn_gets_an_empty_dict_where_no_params_are_given(tmp_path):
    def input_fn(params):
        assert params == {}
        return pl.Dataset.from_tensor_slices(X).batch(2)

    pl.Estimator(features_and_mode, tmp_path).train(input_fn, steps=1)


def test_b1_construction_copies_params(tmp_path):
    params = {"list": [1]}
    seen = []

    def model_fn(features, mode, params):
        seen.append(params["list"])
        return spec(features, mode)

    estimator = pl.Estimator(model_fn, tmp_path, params=params)
    params["list"].append(2)
    estimator.train(lambda: pl.Dataset.from_tensor_slices(X).batch(2), steps=1)
    assert seen == [[1]]


def test_a_model_that_predicts_is_given_no_labels(tmp_path):
    """As in TensorFlow, where a model may tell by them that it predicts."""
    seen = []

    def model_fn(features, labels, mode):
        seen.append(labels)
        return pl.EstimatorSpec(mode, predictions=features)

    estimator = pl.Estimator(model_fn, tmp_path)
    data = pl.Dataset.from_tensor_slices((np.ones((4, 1)), np.ones(4))).batch(2)
    assert len(list(estimator.predict(lambda: data, allow_untrained=True))) == 4
    assert seen == [None, None]
