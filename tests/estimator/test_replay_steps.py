"""`RunConfig(replay_steps=True)`: steps without calls of `model_fn` that are the same steps."""

import gc
import itertools
import json
import random
import re
import weakref

import numpy as np
import pytest

import paceline as pl
from paceline.nn import initializers, layers, losses, metrics, optimizers

from ..hooks import Losses
from . import replays
from .replays import assert_same

STEPS = 10
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(20, 6, 6, 1)).astype(np.float32)
FLAT = IMAGES.reshape(20, 36)
WORDS = RNG.integers(0, 9, (20, 4))
LABELS = RNG.integers(0, 3, 20)


def classifier(*hidden):
    """A `model_fn` of layers that are made anew in each call."""

    def model_fn(features, labels, mode):
        h = features
        for make in (*hidden, lambda: layers.Dense(3)):
            layer = make()
            h = layer(h, training=mode == "train") if isinstance(layer, layers.Layer) else layer(h)
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, h)
        if mode != "train":
            return pl.EstimatorSpec(mode, loss=loss)
        schedule = optimizers.schedules.ExponentialDecay(0.1, 3, 0.9)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(schedule).minimize(loss))

    return model_fn


def with_two_optimizers(features, labels, mode):
    h = layers.Dense(4, "tanh", name="first")(layers.Flatten()(features))
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, layers.Dense(3)(h))
    penalty = 0.01 * np.sum(np.square(pl.get_variable("first/kernel", (36, 4))))
    first = optimizers.SGD(0.1).minimize(loss)
    second = optimizers.SGD(0.1, name="second").minimize(penalty, global_step=None)
    return pl.EstimatorSpec(mode, loss=loss + penalty, train_op=[first, second])


def with_variables_of_its_own(features, labels, mode):
    w = pl.get_variable("w", (36, 3), initializer=initializers.Ones())
    seen = pl.get_variable("seen", (), np.int64, 0, trainable=False)
    logits = np.reshape(features, (len(features), -1)) @ w
    seen.assign_add(np.sum(labels))
    pl.summary.scalar("largest", np.max(logits))
    chosen = np.where(np.arange(3) == labels[:, None], logits, 0).sum(axis=1)
    loss = np.mean(np.log(np.sum(np.exp(logits), axis=1)) - chosen)
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


MODELS = {
    "dense": (classifier(layers.Flatten, lambda: layers.Dense(4, "relu")), IMAGES),
    "convolution": (
        classifier(
            lambda: layers.Conv2D(2, 3, activation="relu"), layers.MaxPooling2D, layers.Flatten
        ),
        IMAGES,
    ),
    "batch normalization": (
        classifier(layers.Flatten, lambda: layers.Dense(4), layers.BatchNormalization),
        IMAGES,
    ),
    "dropout and noise": (
        classifier(
            layers.Flatten,
            lambda: layers.Dropout(0.5),
            lambda: layers.GaussianNoise(0.1),
            lambda: layers.GaussianDropout(0.1),
        ),
        IMAGES,
    ),
    "rows of a table": (
        classifier(lambda: layers.Embedding(9, 2), layers.Flatten),
        WORDS,
    ),
    "mixed precision": (
        classifier(layers.Flatten, lambda: layers.Dense(4, dtype="mixed_float16")),
        IMAGES,
    ),
    "functions of NumPy's": (
        classifier(lambda: lambda x: np.tanh(np.reshape(x / 2 - 0.5, (len(x), 36)))),
        IMAGES,
    ),
    "two optimizers": (with_two_optimizers, IMAGES),
    "variables of its own": (with_variables_of_its_own, IMAGES),
}


def trained(model_fn, features, directory, replayed, strategy=None, batch=5, **options):
    """The losses of some steps and the last checkpoint, and how often `model_fn` was called."""
    calls = []

    def counted(features, labels, mode):
        calls.append(mode)
        return model_fn(features, labels, mode)

    estimator = pl.Estimator(counted, directory, replays.config(replayed, strategy, **options))
    return *replays.trained(estimator, (features, LABELS), STEPS, batch), len(calls)


@pytest.mark.parametrize(("model_fn", "features"), MODELS.values(), ids=MODELS)
def test_losses_and_checkpoints_are_the_same_to_the_bit(tmp_path, model_fn, features):
    expected = trained(model_fn, features, tmp_path / "called", replayed=False)
    found = trained(model_fn, features, tmp_path / "replayed", replayed=True)
    assert_same(found, expected)
    assert (expected[2], found[2]) == (STEPS, 3)


def test_features_in_another_order_are_taken_by_their_names(tmp_path):
    def model_fn(features, labels, mode):
        together = np.concatenate([features["a"], features["b"]], axis=1)
        loss = np.mean(np.square(layers.Dense(1)(together) - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

    def batches():
        for number, rows in enumerate(FLAT.reshape(10, 2, 36)):
            names = "ab" if number < 4 else "ba"
            features = {name: rows[:, [0 if name == "a" else 1]] for name in names}
            yield features, features["a"] - 2 * features["b"]

    found = []
    for replayed in (False, True):
        estimator = pl.Estimator(model_fn, tmp_path / str(replayed), replays.config(replayed))
        hook = Losses()
        estimator.train(lambda: pl.Dataset.from_generator(batches), [hook])
        found.append(hook.values)
    assert found[0] == found[1]


def test_batches_of_another_size_are_followed_by_themselves(tmp_path):
    model_fn, features = MODELS["dense"]  # in batches of 8, 8, 4, 8, 8, 4, 8, 8, 4, 8
    expected = trained(model_fn, features, tmp_path / "called", replayed=False, batch=8)
    found = trained(model_fn, features, tmp_path / "replayed", replayed=True, batch=8)
    assert_same(found, expected)
    assert found[2] == 1 + 2 + 2


def test_no_more_than_16_kinds_of_batches_are_followed(tmp_path):
    sizes = [n for _ in range(4) for n in range(1, 20)]
    calls = []

    def counted(features, labels, mode):
        calls.append(len(labels))
        return MODELS["dense"][0](features, labels, mode)

    def input_fn():
        return pl.Dataset.from_generator(lambda: ((IMAGES[:n], LABELS[:n]) for n in sizes))

    pl.Estimator(counted, tmp_path, replays.config(True)).train(input_fn)
    # Two calls for each of 16 kinds; in each of its four steps for that of the first call of all,
    # and for two more.
    assert len(calls) == 2 * 16 + 3 * 4


STRATEGIES = {
    "replicas": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
    "one copy": lambda: pl.CentralStorageStrategy(["CPU:0", "CPU:1"]),
    "one device": lambda: pl.OneDeviceStrategy("CPU:0"),
}


@pytest.mark.parametrize("model", ["dense", "batch normalization", "rows of a table"])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_each_replica_has_a_replay_of_its_own(tmp_path, strategy, model):
    model_fn, features = MODELS[model]
    expected = trained(model_fn, features, tmp_path / "called", False, strategy())
    found = trained(model_fn, features, tmp_path / "replayed", True, strategy())
    assert_same(found, expected)
    assert found[2] == 3 * strategy().num_replicas_in_sync


def test_summaries_are_those_of_each_step(tmp_path):
    model_fn, features = MODELS["variables of its own"]
    found = {}
    for replayed in (False, True):
        trained(model_fn, features, tmp_path / str(replayed), replayed)
        (path,) = (tmp_path / str(replayed) / "history").iterdir()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[replayed] = [line["scalars"]["largest"] for line in lines if "scalars" in line]
    assert found[True] == found[False]
    assert len(set(found[True])) == STEPS // 2


def test_steps_of_several_batches_are_the_same(tmp_path):
    model_fn, features = MODELS["dense"]
    options = {"gradient_accumulation_steps": 2}
    expected = trained(model_fn, features, tmp_path / "called", False, **options)
    assert_same(trained(model_fn, features, tmp_path / "replayed", True, **options), expected)


count = itertools.count(1)


def looking(look):
    """A `model_fn` that does something with its features beside the loss."""

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (36, 1), initializer=initializers.Zeros())
        loss = np.mean(np.square(np.reshape(features, (5, 36)) @ w - look(features, w)))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

    return model_fn


def measuring(features, labels, mode):
    w = pl.get_variable("w", (36, 1), initializer=initializers.Zeros())
    loss = np.mean(np.square(np.reshape(features, (5, 36)) @ w - 1))
    hook = pl.estimator.LoggingTensorHook({"mean": np.mean(features) + loss}, every_n_iter=1)
    train_op = optimizers.SGD(0.1).minimize(loss)
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])


REFUSED = {
    "a number of the batch": (
        looking(lambda x, w: float(np.max(x)) if isinstance(x, pl.Tensor) else x.max()),
        "__float__ is called, at .*test_replay_steps.py",
    ),
    "a number of a variable": (looking(lambda x, w: w.numpy().max()), "numpy is called"),
    "random numbers": (looking(lambda x, w: random.random()), "a random number or a count"),
    "a count": (looking(lambda x, w: next(count)), "a random number or a count"),
    "a branch": (
        looking(lambda x, w: 1.0 if next(count) % 2 else np.mean(x)),
        "more operations|is called the one time|something else",
    ),
    "a metric's figure": (
        looking(lambda x, w: metrics.Mean()(np.asarray([1.0]))),
        "gives Result 1.0, from which anything may follow",
    ),
    "a hook with a tensor": (measuring, r"holds a tensor of the batch, as training_hooks\[0\]"),
}


@pytest.mark.parametrize(("model_fn", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_replayed_is_called_in_each_step_with_a_warning(
    tmp_path, caplog, model_fn, message
):
    found = trained(model_fn, IMAGES, tmp_path, replayed=True)
    assert found[2] == STEPS
    (warning,) = [r.getMessage() for r in caplog.records if "replay_steps" in r.getMessage()]
    assert "model_fn goes on being called in each step" in warning
    assert re.search(message, warning), warning


def test_what_tensors_cannot_do_is_an_error_that_says_what_to_do(tmp_path):
    model_fn = looking(lambda x, w: x.tolist()[0][0][0])
    with pytest.raises(AttributeError) as caught:
        trained(model_fn, IMAGES, tmp_path, replayed=True)
    assert "RunConfig(replay_steps=True) gives model_fn tensors" in caught.value.__notes__[0]


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("replayed", [False, True], ids=["called", "replayed"])
def test_a_run_keeps_no_variable_behind_it(tmp_path, replayed, num_replicas):
    held = []

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (36, 3))
        held.append(weakref.ref(w))
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, features @ w)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(0.1).minimize(loss))

    strategy = pl.MirroredStrategy([f"CPU:{index}" for index in range(num_replicas)])
    gc.disable()  # a cycle would keep the arrays of a run through the next one
    try:
        trained(model_fn, FLAT, tmp_path, replayed, strategy)
    finally:
        gc.enable()
    assert len(held) == num_replicas * (3 if replayed else STEPS)
    assert not any(variable() for variable in held)
