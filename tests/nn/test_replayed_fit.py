"""`compile(jit_compile=True)`: `fit` without calls of `train_step`, with the same history."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Input, Model, Sequential, callbacks, layers, losses, metrics, optimizers
from paceline.strategies import set_seed

RNG = np.random.default_rng(0)
X = RNG.normal(size=(44, 6)).astype(np.float32)  # in batches of 8, and one of 4
WORDS = RNG.integers(0, 9, (44, 4))
LABELS = RNG.integers(0, 3, 44)
WEIGHTS = RNG.random(44).astype(np.float32)
NUMBERS = RNG.normal(size=44).astype(np.float32)
CROSSENTROPY = losses.SparseCategoricalCrossentropy(from_logits=True)


def counting(kind):
    """The class of models, with a count of calls of their `train_step`."""

    class Counting(kind):
        calls = 0

        def train_step(self, data):
            self.calls += 1
            return super().train_step(data)

    return Counting


class Own(counting(Model)):
    """With a step and a metric of its own, and a value of each batch."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(4, "tanh"), layers.Dense(1)
        self.error = metrics.MeanAbsoluteError(name="error")

    def call(self, inputs):
        return self.out(self.hidden(inputs))[:, 0]

    def train_step(self, data):
        self.calls += 1
        x, y = data
        y_pred = self(x, training=True)
        loss = np.mean(np.square(y - y_pred))
        self.optimizer.minimize(loss, var_list=self.trainable_variables)
        self.error.update_state(y, y_pred)
        return {"error": self.error, "largest": np.max(y_pred)}


def dense():
    parts = [
        Input((6,)),
        layers.Dense(8, "relu", kernel_regularizer="l2"),
        layers.BatchNormalization(),
        layers.Dropout(0.3),
        layers.Dense(3),
    ]
    return counting(Sequential)(parts), X, LABELS, {"loss": CROSSENTROPY, "metrics": ["accuracy"]}


def weighted():
    return (*dense()[:3], {"loss": CROSSENTROPY, "weighted_metrics": ["accuracy"]})


def masked():
    parts = [
        layers.Embedding(9, 4, mask_zero=True),
        layers.LSTM(4),
        layers.Dense(3),
    ]
    return (
        counting(Sequential)(parts),
        WORDS,
        LABELS,
        {"loss": CROSSENTROPY, "metrics": ["accuracy"]},
    )


def two_outputs():
    inputs = Input((6,))
    h = layers.Dense(4, "relu")(inputs)
    outputs = {"a": layers.Dense(3, name="a")(h), "b": layers.Dense(1, name="b")(h)}
    model = counting(Model)(inputs, outputs)
    given = {"loss": {"a": CROSSENTROPY, "b": "mse"}, "loss_weights": {"a": 1.0, "b": 0.5}}
    return model, X, {"a": LABELS, "b": NUMBERS}, {**given, "metrics": {"a": ["accuracy"]}}


def own():
    return Own(), X, NUMBERS, {}


class Told(callbacks.Callback):
    """Notes what each batch is told, and freezes a layer and changes the rate on the way."""

    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append(dict(logs))

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.sublayers[0].trainable = False
            self.model.optimizer.learning_rate = 0.02


def fitted(make, jit_compile, strategy=None, **options):
    set_seed(1)
    with (strategy or pl.get_strategy()).scope():
        model, x, y, given = make()
        model.compile(optimizers.Adam(0.05), **given, jit_compile=jit_compile)
    told = Told()
    history = model.fit(
        x, y, 8, epochs=3, verbose=0, shuffle=False, callbacks=[told], **options
    ).history
    return history, told.logs, model.get_weights(), model.calls


@pytest.fixture(autouse=True)
def store():
    """Models of their own, made outside any model_fn as users of `fit` make them."""
    yield
    set_seed(None)


MODELS = {
    "dense": (dense, {"validation_split": 0.2}),
    "weights of examples": (weighted, {"sample_weight": WEIGHTS}),
    "masks": (masked, {}),
    "two outputs": (two_outputs, {}),
    "a step of one's own": (own, {}),
}
STRATEGIES = {
    "one replica": lambda: None,
    "two replicas": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize(("make", "options"), MODELS.values(), ids=MODELS)
def test_history_logs_and_weights_are_the_same_to_the_bit(make, options, strategy):
    expected = fitted(make, None, strategy(), **options)
    found = fitted(make, True, strategy(), **options)
    assert found[:2] == expected[:2]
    for one, other in zip(found[2], expected[2], strict=True):
        np.testing.assert_array_equal(one, other)
    # In each epoch two calls for each kind of batch, and each replica; the first one besides.
    assert found[3] < expected[3]


@pytest.mark.parametrize("jit_compile", [None, False, "auto"])
def test_another_value_has_no_effect(jit_compile):
    assert fitted(dense, jit_compile)[3] == 3 * 6


class Looking(Own):
    def train_step(self, data):
        logs = super().train_step(data)
        return {**logs, "mean": float(np.mean(data[0]))}


class Counted(Own):
    def train_step(self, data):
        return {**super().train_step(data), "calls": self.calls}


class Read(Own):
    def train_step(self, data):
        super().train_step(data)
        return {"error": self.error.result()}


REFUSED = {
    Looking: "__float__ is called",
    Counted: "what it returns takes int",
    Read: "merge_call gives Result",
}


@pytest.mark.parametrize(("kind", "message"), REFUSED.items())
def test_what_would_be_stale_is_refused(kind, message, caplog):
    expected = fitted(lambda: (kind(), X, NUMBERS, {}), None)
    found = fitted(lambda: (kind(), X, NUMBERS, {}), True)
    assert found[:2] == expected[:2]
    assert found[3] == expected[3]
    (said,) = [r.getMessage() for r in caplog.records if "goes on being called" in r.getMessage()]
    assert said.startswith("compile(jit_compile=True): train_step goes on being called")
    assert message in said
