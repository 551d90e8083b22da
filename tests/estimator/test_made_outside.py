"""Layers, optimizers, metrics and variables that are made outside a `model_fn` and used in it."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import layers, metrics, optimizers


def squared_error(outputs, labels):
    return np.mean(np.square(outputs - labels))


def model_with(layer, optimizer):
    """A model that uses the given layer and optimizer, or makes its own where there is none."""

    def model_fn(features, labels, mode, params):
        dense = layer or layers.Dense(1, kernel_initializer="zeros", name="linear")
        outputs = dense(features)
        loss = squared_error(outputs, labels)
        if mode != pl.ModeKeys.TRAIN:
            return pl.EstimatorSpec(mode, loss=loss)
        used = optimizer or params.get("optimizer") or optimizers.Adam(0.05)
        return pl.EstimatorSpec(mode, loss=loss, train_op=used.minimize(loss))

    return model_fn


def trained(directory, input_fn, model_fn, params=None, strategy=None):
    """Values and losses of two calls of train, and of an evaluation of each end."""
    config = pl.RunConfig(tf_random_seed=1, train_distribute=strategy)
    estimator = pl.Estimator(model_fn, directory, config, params=params)
    found = []
    for _ in range(2):
        estimator.train(input_fn, steps=5)
        names = [n for n in estimator.get_variable_names() if n != "global_step"]
        found += [estimator.get_variable_value(name) for name in sorted(names)]
        path = estimator.latest_checkpoint()
        found.append(estimator.evaluate(input_fn, steps=2, checkpoint_path=path)["loss"])
    first = estimator.evaluate(input_fn, steps=2, checkpoint_path=f"{directory}/model.ckpt-5")
    return [*found, first["loss"], estimator.get_variable_value("global_step")]


@pytest.mark.parametrize("devices", [None, ["CPU:0", "CPU:1"]], ids=["1 replica", "2 replicas"])
@pytest.mark.parametrize("outside", ["layer", "optimizer", "optimizer in params", "both"])
def test_what_is_made_outside_trains_and_is_saved_like_what_is_made_inside(
    outside, devices, tmp_path, input_fn
):
    dense = layers.Dense(1, kernel_initializer="zeros", name="linear")
    adam = optimizers.Adam(0.05)
    layer = dense if outside in ("layer", "both") else None
    optimizer = adam if outside in ("optimizer", "both") else None
    params = {"optimizer": adam} if outside == "optimizer in params" else {}

    def strategy():
        return devices and pl.MirroredStrategy(devices)

    inside = trained(tmp_path / "inside", input_fn, model_with(None, None), {}, strategy())
    found = trained(tmp_path / "o", input_fn, model_with(layer, optimizer), params, strategy())
    for ours, theirs in zip(found, inside, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_second_model_directory_begins_anew_with_the_same_objects(tmp_path, input_fn):
    model_fn = model_with(layers.Dense(1, kernel_initializer="zeros"), optimizers.Adam(0.05))
    first, second = (trained(tmp_path / name, input_fn, model_fn) for name in "ab")
    for ours, theirs in zip(first, second, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_layer_from_outside_and_one_made_inside_do_not_share_a_name(tmp_path, input_fn):
    outside = layers.Dense(1, name="twice")

    def model_fn(features, labels, mode):
        inside = layers.Dense(1, name="twice")
        loss = squared_error(inside(features) + outside(features), labels)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

    with pytest.raises(ValueError, match="another object has the name 'twice'"):
        pl.Estimator(model_fn, tmp_path).train(input_fn, steps=1)


def test_a_variable_from_outside_is_refused_before_it_is_lost(tmp_path, input_fn):
    outside = pl.Variable(np.zeros((3, 1), np.float32), name="made outside")

    def model_fn(features, labels, mode):
        loss = squared_error(features @ outside, labels)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

    with pytest.raises(ValueError, match=r"outside the model \(made outside\).*nor saved"):
        pl.Estimator(model_fn, tmp_path).train(input_fn, steps=1)


def test_a_metric_from_outside_is_refused_before_it_counts_twice(tmp_path, input_fn):
    outside = metrics.Mean()

    def model_fn(features, labels, mode):
        outside.update_state(labels)
        loss = squared_error(layers.Dense(1)(features), labels)
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": outside})

    with pytest.raises(ValueError, match=r"eval_metric_ops\['mean'\] uses variables.*counting"):
        pl.Estimator(model_fn, tmp_path).evaluate(input_fn, steps=1)


def test_a_layer_keeps_its_weights_outside_while_a_model_uses_it(tmp_path, input_fn):
    outside = layers.Dense(1)
    before = outside(np.ones((2, 3), np.float32)).numpy()

    def model_fn(features, labels, mode):
        loss = squared_error(outside(features), labels)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

    pl.Estimator(model_fn, tmp_path).train(input_fn, steps=2)
    np.testing.assert_array_equal(outside(np.ones((2, 3), np.float32)).numpy(), before)
