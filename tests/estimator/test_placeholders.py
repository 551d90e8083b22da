"""`tf.placeholder` in a `serving_input_receiver_fn`, as TensorFlow 1's scripts do."""

import numpy as np
import pytest

import paceline as pl
import paceline.compat.tf as tf
from paceline.estimator import export

from . import served
from .served import X, input_fn

ROUNDED = np.rint(X)
RAW = export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 3])})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained")
    return pl.Estimator(served.model_fn, path, params={"units": 4}).train(input_fn)


@pytest.mark.parametrize(
    ("receiver_fn", "inputs"),
    [
        (RAW, {"x": ROUNDED}),
        (served.passing_receiver_fn, {"request": ROUNDED}),
        (
            served.computing_receiver_fn,
            {"first": ROUNDED[:, 0].astype(np.int32), "rest": ROUNDED[:, 1:]},
        ),
        (served.csv_receiver_fn, {"csv_row": [f"{a},{b:.0f},text,{c}" for a, b, c in ROUNDED]}),
    ],
    ids=["raw", "passing", "computing", "csv"],
)
def test_a_loaded_model_answers_as_the_estimator_predicts(tmp_path, trained, receiver_fn, inputs):
    loaded = pl.estimator.load(trained.export_saved_model(tmp_path, receiver_fn))
    dataset = pl.Dataset.from_tensor_slices({"x": ROUNDED}).batch(48)
    expected = [row["y"] for row in trained.predict(lambda: dataset)]
    np.testing.assert_allclose(loaded(inputs)["y"], expected, rtol=1e-5)


def test_a_function_that_computes_can_be_found_again(tmp_path, trained):
    with pytest.raises(ValueError, match=r"cannot be imported .* define it at the top"):
        trained.export_saved_model(tmp_path, lambda: served.computing_receiver_fn())


def test_a_placeholder_that_is_no_input_is_refused(tmp_path, trained):
    def receiver_fn():
        x, other = (tf.placeholder(tf.float32, [None, 3], name=name) for name in ("x", "other"))
        return export.ServingInputReceiver({"x": x + other}, {"x": x})

    with pytest.raises(ValueError, match=r"tf.placeholder\('other'\).*not among the receiver_tens"):
        trained.export_saved_model(tmp_path, receiver_fn)


def test_nothing_feeds_a_placeholder_of_an_input_fn(tmp_path, trained):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    with pytest.raises(
        ValueError, match=r"made of <placeholder tf.placeholder\('x'\).*nothing feeds"
    ):
        trained.train(lambda: ({"x": x}, x))


def test_shapes_of_placeholders_are_told_and_asked_for():
    x = tf.placeholder(tf.float32, [None, None])
    x.set_shape([None, 3])
    x.set_shape(None)
    assert x.get_shape().as_list() == [None, 3]
    assert tf.expand_dims(x, -1).get_shape().as_list() == [None, 3, 1]
    with pytest.raises(ValueError, match=r"shape must fit .*\(None, 3\).* got \(None, 4\)"):
        x.set_shape([None, 4])
