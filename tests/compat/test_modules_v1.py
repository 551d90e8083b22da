"""Modules of TensorFlow 1 that scripts import: tf.contrib and tensorflow.python."""

from importlib import import_module

import pytest

import paceline as pl
import paceline.compat.tf as tf


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("contrib.data", "shuffle_and_repeat"),
        ("contrib.factorization", "KMeansClustering"),
        ("contrib.learn.io", "numpy_input_fn"),
        ("contrib.training", "HParams"),
        ("python.client.device_lib", "list_local_devices"),
        ("python.estimator.model_fn", "ModeKeys"),
        ("python.feature_column.feature_column", "numeric_column"),
        ("python.framework.dtypes", "float32"),
        ("python.lib.io.file_io", "FileIO"),
        ("python.platform.gfile", "Exists"),
        ("python.platform.tf_logging", "info"),
        ("python.saved_model.signature_constants", "PREDICT_INPUTS"),
        ("python.util.nest", "flatten"),
    ],
)
def test_mb_24_a_module_is_imported_and_is_an_attribute(name, has):
    above, _, last = f"paceline.compat.tf.{name}".rpartition(".")
    found = tf
    for part in name.split("."):
        found = getattr(found, part)
    assert getattr(found, has) is not None
    imported = {}
    exec(f"from {above} import {last} as taken", imported)
    assert getattr(imported["taken"], has) is getattr(found, has)
    assert getattr(import_module(f"{above}.{last}"), has) is getattr(found, has)


def test_mb_24_devices_are_listed_with_their_types():
    found = tf.python.client.device_lib.list_local_devices()
    assert "CPU" in [device.device_type for device in found]


def test_mb_24_hyperparameters_are_read_from_text_and_dicts():
    given = tf.contrib.training.HParams(rate=0.1, units=[8, 4], name="a", big=False, steps=3)
    assert given.parse("rate=1,units=[1, 2,3],name=b c,big=true") is given
    given.override_from_dict({"steps": 5, "rate": 2})
    given.add_hparam("more", None)
    assert given.values() == {
        "rate": 2.0,
        "units": [1, 2, 3],
        "name": "b c",
        "big": True,
        "steps": 5,
        "more": None,
    }
    assert (given.rate, "units" in given, given.get("none", 7)) == (2.0, True, 7)
    assert given.parse_json(given.to_json()).values() == given.values()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda h: h.parse("steps=x"), ValueError, "steps must be int, got 'x'"),
        (lambda h: h.parse("steps=[1]"), ValueError, "steps must be one value"),
        (lambda h: h.parse("units=1"), ValueError, "units must be a list"),
        (lambda h: h.parse("steps"), ValueError, "must be name=value"),
        (lambda h: h.parse("stesp=1"), KeyError, "no hyperparameter is named 'stesp'"),
        (lambda h: h.override_from_dict({"steps": 1.5}), ValueError, "steps must be int"),
        (lambda h: h.add_hparam("steps", 1), ValueError, "'steps' is taken"),
    ],
)
def test_mb_24_hyperparameters_keep_their_names_and_types(call, error, says):
    given = tf.contrib.training.HParams(steps=3, units=[1])
    with pytest.raises(error, match=says):
        call(given)


def test_mb_24_contrib_keras_is_keras():
    from paceline.compat.tf.contrib import keras

    assert keras is tf.contrib.keras is tf.keras


def test_mb_24_contrib_says_what_to_use_instead():
    with pytest.raises(AttributeError, match="train_and_evaluate"):
        _ = tf.contrib.learn.Experiment
    assert tf.contrib.learn.RunConfig is pl.estimator.RunConfig


def test_mb_24_old_names_of_saving(tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model(tf.ones([1, 2]))
    tf.keras.models.save_model(model, tmp_path / "model")
    loaded = tf.keras.models.load_model(tmp_path / "model")
    assert loaded(tf.ones([1, 2])).shape == (1, 1)
    estimator = pl.estimator.Estimator
    assert estimator.export_savedmodel is estimator.export_saved_model
