"""A model that a served one is loaded from: at the top of a module, as who loads it needs it."""

import numpy as np

import paceline as pl
import paceline.compat.tf as tf
from paceline.estimator import export
from paceline.nn import layers, metrics, optimizers

X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
Y = np.square(X) @ np.array([[1.0], [-2.0], [0.5]], np.float32)


def model_fn(features, labels, mode, params):
    """Two layers, with statistics and dropout in between."""
    training = mode == pl.ModeKeys.TRAIN
    hidden = layers.Dense(params["units"], activation="tanh")(features["x"])
    hidden = layers.Dropout(0.5, seed=1)(layers.BatchNormalization()(hidden, training), training)
    outputs = layers.Dense(1)(hidden)
    predictions = {"y": outputs, "sign": np.sign(outputs)}
    if mode == pl.ModeKeys.PREDICT:
        both = {"serving_default": {"y": outputs}, "half": export.RegressionOutput(outputs / 2)}
        return pl.EstimatorSpec(mode, predictions=predictions, export_outputs=both)
    loss = np.mean(np.square(outputs - labels))
    mean = metrics.Mean(name="mean")
    mean.update_state(labels)
    return pl.EstimatorSpec(
        mode,
        predictions=predictions,
        loss=loss,
        train_op=optimizers.Adam(0.01).minimize(loss),
        eval_metric_ops={"mean": mean},
    )


def failing_model_fn(features, mode):
    w = pl.get_variable("w", (3, 1))
    if mode == pl.ModeKeys.PREDICT and not np.any(features["x"]):
        raise ArithmeticError("zeros are no input")
    return pl.EstimatorSpec(
        mode,
        predictions=features["x"] @ w,
        loss=np.mean(features["x"] @ w),
        train_op=[],
    )


def words_model_fn(features, mode):
    """Text, whole numbers, and as many values as a message has."""
    known = np.asarray(features["word"])[:, 0] == "yes"
    given = np.asarray(features["many"])
    total = np.where(given > 0, given, 0).sum(axis=1)
    bias = pl.get_variable("bias", (), initializer=0.5)
    scores = known + total.astype(np.float32) + bias
    labels = np.where(known, "known", "unknown")[:, np.newaxis]
    output = export.ClassificationOutput(scores=scores, classes=labels)
    return pl.EstimatorSpec(
        mode, predictions=scores, loss=np.mean(scores), train_op=[], export_outputs={"c": output}
    )


def doubled(inputs):
    """Features of one input, as a request sends it."""
    return {"x": 2 * inputs["half"]}


def first_three(inputs):
    return {"x": inputs["half"][:, :3]}


def input_fn():
    return pl.Dataset.from_tensor_slices(({"x": X}, Y)).batch(8)


RECEIVER_FN = export.build_raw_serving_input_receiver_fn(
    {"x": pl.TensorSpec([None, 3], np.float32)}
)


def passing_receiver_fn():
    """One input under another name than the feature, as TensorFlow 1's scripts write it."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    return export.ServingInputReceiver({"x": x}, {"request": x})


def computing_receiver_fn():
    """The feature is made of two inputs."""
    inputs = {
        "first": tf.compat.v1.placeholder(dtype=tf.int32, shape=[None]),
        "rest": tf.placeholder_with_default(np.zeros((1, 2), np.float32), shape=[None, 2]),
    }
    first = tf.expand_dims(tf.cast(inputs["first"], tf.float32), -1)
    return export.ServingInputReceiver({"x": tf.concat([first, inputs["rest"]], 1)}, inputs)


def csv_receiver_fn():
    """The feature is made of the columns of lines."""
    row = tf.placeholder(shape=[None], dtype=tf.string)
    columns = tf.io.decode_csv(tf.expand_dims(row, -1), [[0.0], [0], [""], [0.0]])
    named = dict(zip(["a", "b", "text", "c"], columns, strict=True))
    named.pop("text")
    x = tf.concat([tf.cast(column, tf.float32) for column in named.values()], axis=1)
    return export.ServingInputReceiver({"x": x}, {"csv_row": row})
