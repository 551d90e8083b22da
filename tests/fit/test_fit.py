"""`Model.fit`, `evaluate` and `predict` (MB-07): what they learn, return and tell."""

import itertools
import logging

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Input, Model, Sequential, callbacks, layers, metrics, optimizers
from paceline.strategies import DEFAULT_STRATEGY

STRATEGIES = {
    "default": lambda: DEFAULT_STRATEGY,
    "one device": lambda: pl.OneDeviceStrategy("CPU:0"),
    "two replicas": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
    "four replicas": lambda: pl.MirroredStrategy([f"CPU:{i}" for i in range(4)]),
    "central storage": lambda: pl.CentralStorageStrategy(["CPU:0", "CPU:1"]),
}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(25, 3)).astype(np.float32)
Y = (X @ [[1.0], [-2.0], [0.5]] + 1).astype(np.float32)
W = RNG.uniform(0.5, 2, 25).astype(np.float32)


def linear(strategy=DEFAULT_STRATEGY, **compiled):
    """A linear model, the same each time."""
    pl.set_seed(7)
    return another(strategy, **compiled)


def another(strategy=DEFAULT_STRATEGY, **compiled):
    with strategy.scope():
        model = Sequential([layers.Dense(1, input_shape=(3,))])
        how = {"optimizer": optimizers.SGD(0.05), "loss": "mse", "metrics": ["mae"], **compiled}
        model.compile(**how)
    return model


def by_hand(epochs, batch_size, weights=None, rate=0.05):
    """The weights, and the loss of each epoch, as NumPy has them."""
    kernel, bias = (w.astype(np.float64) for w in linear().get_weights())
    weights = np.ones(len(X)) if weights is None else weights
    epoch_losses = []
    for _ in range(epochs):
        total = 0.0
        for start in range(0, len(X), batch_size):
            rows = slice(start, start + batch_size)
            x, y, w = X[rows], Y[rows], weights[rows, None]
            error = x @ kernel + bias - y
            total += float((w * error**2).sum())
            kernel = kernel - rate * 2 * x.T @ (w * error) / len(x)
            bias = bias - rate * 2 * (w * error).sum(axis=0) / len(x)
        epoch_losses.append(total / len(X))
    return [kernel, bias], epoch_losses


@pytest.mark.parametrize("kind", STRATEGIES)
def test_mb_07_every_strategy_learns_what_one_process_would_with_uneven_ends(kind):
    model = linear(STRATEGIES[kind]())
    weights, epoch_losses = by_hand(3, 8)  # the last batch has one example
    history = model.fit(X, Y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    for found, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    np.testing.assert_allclose(history.history["loss"], epoch_losses, rtol=1e-5)
    assert history.epoch == [0, 1, 2]
    error = X @ weights[0] + weights[1] - Y
    expected = {"loss": np.mean(error**2), "mae": np.mean(np.abs(error))}
    assert model.evaluate(X, Y, verbose=0, return_dict=True) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(model.predict(X, verbose=0), Y + error, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["default", "two replicas"])
def test_weights_of_examples_scale_their_losses(kind):
    model = linear(STRATEGIES[kind](), weighted_metrics=["mse"])
    weights, epoch_losses = by_hand(1, 10, W)
    logs = model.fit(X, Y, 10, shuffle=False, sample_weight=W, verbose=0).history
    for found, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert logs["loss"] == pytest.approx(epoch_losses, rel=1e-5)
    assert set(logs) == {"loss", "mae", "mse"}


def test_weights_of_classes_are_those_of_their_examples():
    classes = (Y > 1).astype(np.int64)
    by_class, by_example = (linear(loss="binary_crossentropy") for _ in range(2))
    by_class.fit(X, classes, shuffle=False, class_weight={0: 1.0, 1: 3.0}, verbose=0)
    by_example.fit(X, classes, shuffle=False, sample_weight=1 + 2.0 * classes[:, 0], verbose=0)
    dataset = pl.Dataset.from_tensor_slices((X, classes)).batch(32)
    of_dataset = linear(loss="binary_crossentropy")
    of_dataset.fit(dataset, class_weight={0: 1.0, 1: 3.0}, verbose=0)
    for other in (by_example, of_dataset):
        np.testing.assert_allclose(by_class.get_weights()[0], other.get_weights()[0], rtol=1e-6)
    with pytest.raises(ValueError, match=r"no weight for the class\(es\) \[1\]"):
        by_class.fit(X, classes, class_weight={0: 1.0})


class Sequence:
    """As `keras.utils.Sequence`: batches by number."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index >= 3:
            raise IndexError
        return X[10 * index : 10 * index + 10], Y[10 * index : 10 * index + 10]


def batches():
    return (Sequence()[index] for index in range(3))


SOURCES = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 10, "shuffle": False},
    "lists": lambda: {"x": X.tolist(), "y": Y.tolist(), "batch_size": 10, "shuffle": False},
    "tensors": lambda: {"x": pl.Tensor(X), "y": Y, "batch_size": 10, "shuffle": False},
    "a dataset": lambda: {"x": pl.Dataset.from_tensor_slices((X, Y)).batch(10)},
    "a sequence": lambda: {"x": Sequence()},
    "a generator": lambda: {"x": batches()},
    "a generator and its steps": lambda: {"x": batches(), "steps_per_epoch": 3},
    "a list iterated over": lambda: {"x": iter([Sequence()[i] for i in range(3)])},
}


@pytest.mark.parametrize("kind", SOURCES)
def test_in_19_whatever_gives_the_same_batches_trains_alike(kind):
    model, expected = linear(), by_hand(1, 10)[0]
    model.fit(**SOURCES[kind](), verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], expected[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["default", "two replicas"])
def test_in_19_a_generator_of_validation_batches_is_read_on_from_epoch_to_epoch(name):
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield X[:10] + number, Y[:10]

    model, numbers = linear(STRATEGIES[name]()), endless()
    told = {"validation_data": numbers, "validation_steps": 2, "epochs": 3, "verbose": 0}
    history = model.fit(X, Y, shuffle=False, **told).history
    assert len(set(history["val_loss"])) == 3
    assert taken == list(range(6))
    model.evaluate(numbers, steps=1, verbose=0)
    assert taken == list(range(7))


def test_in_19_a_sequence_is_told_of_the_end_of_each_epoch():
    class Alternating(Sequence):
        sign = 1

        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x, self.sign * y

        def on_epoch_end(self):
            self.sign *= -1

    model, twin, data = linear(), linear(), Alternating()
    model.fit(data, epochs=3, verbose=0)
    for sign in (1, -1, 1):
        twin.fit(X, sign * Y, batch_size=10, shuffle=False, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], twin.get_weights()[0])


def test_in_19_how_data_are_divided_is_told_once_for_all_epochs(caplog):
    caplog.set_level("INFO", "paceline")
    linear(STRATEGIES["two replicas"]()).fit(X, Y, validation_data=(X, Y), epochs=3, verbose=0)
    assert sum(line.startswith("Input:") for line in caplog.messages) == 2


def test_a_distributed_dataset_is_taken_as_it_is():
    strategy = STRATEGIES["two replicas"]()
    model = linear(strategy)
    dataset = pl.Dataset.from_tensor_slices((X, Y)).batch(10)
    model.fit(strategy.experimental_distribute_dataset(dataset), epochs=2, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], by_hand(2, 10)[0][0], rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"x": x}], ids=["array", "dict"])
def test_predictions_for_batches_that_a_strategy_has_divided_are_in_their_order(wrap):
    class Doubled(Model):
        def call(self, features, training=False):
            return 2.0 * (features["x"] if isinstance(features, dict) else features)

    strategy = STRATEGIES["two replicas"]()
    dataset = pl.Dataset.from_tensor_slices(wrap(X)).batch(10)
    divided = strategy.experimental_distribute_dataset(dataset)
    np.testing.assert_array_equal(Doubled().predict(divided, verbose=0), 2.0 * X)


def test_data_without_end_go_on_from_epoch_to_epoch():
    dataset = pl.Dataset.from_tensor_slices((X, Y)).batch(10).repeat()
    model = linear()
    history = model.fit(dataset, epochs=3, steps_per_epoch=2, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], by_hand(2, 10)[0][0], rtol=1e-5)
    assert len(history.history["loss"]) == 3


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_arrays_are_gone_over_again_until_all_epochs_have_their_steps(steps):
    model = linear()
    history = model.fit(
        X, Y, batch_size=10, epochs=12 // steps, steps_per_epoch=steps, shuffle=False, verbose=0
    )
    assert len(history.history["loss"]) == 12 // steps
    np.testing.assert_allclose(model.get_weights()[0], by_hand(4, 10)[0][0], rtol=1e-5)


def test_an_epoch_for_which_no_data_are_left_is_none(caplog):
    with caplog.at_level(logging.WARNING, "paceline"):
        history = linear().fit(batches(), epochs=3, steps_per_epoch=3, verbose=0)
    assert "Your input ran out of data" in caplog.text
    assert (history.epoch, len(history.history["loss"])) == ([0], 1)


def test_data_that_end_early_end_the_training_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "paceline"):
        history = linear().fit(batches(), epochs=3, steps_per_epoch=2, verbose=0)
    assert "Your input ran out of data; interrupting training" in caplog.text
    assert "(in this case, 6 batches)" in caplog.text
    assert history.epoch == [0, 1]


def test_arrays_are_shuffled_anew_in_each_epoch():
    seen = []

    class Noting(Model):
        def call(self, inputs):
            seen.append(np.asarray(inputs)[:, 0].tolist())
            return self.out(inputs)

    model = Noting()
    model.out = layers.Dense(1)
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=25, epochs=2, verbose=0)
    assert seen[0] != seen[1]
    assert sorted(seen[0]) == sorted(seen[1]) == sorted(X[:, 0].tolist())


def test_validation_is_with_the_last_examples_or_with_data_of_its_own():
    model = linear()
    history = model.fit(X, Y, epochs=4, validation_split=0.2, validation_freq=2, verbose=0)
    assert len(history.history["loss"]) == 4
    assert len(history.history["val_loss"]) == len(history.history["val_mae"]) == 2
    loss = model.evaluate(X[20:], Y[20:], verbose=0)[0]
    assert history.history["val_loss"][-1] == pytest.approx(loss)
    for data in ((X[20:], Y[20:]), pl.Dataset.from_tensor_slices((X[20:], Y[20:])).batch(5)):
        logs = model.fit(X, Y, epochs=3, validation_data=data, validation_freq=[2], verbose=0)
        assert len(logs.history["val_loss"]) == 1


class Log(callbacks.Callback):
    """Notes what it is told."""

    def __init__(self, told):
        super().__init__()
        self.told = told

    def __getattribute__(self, name):
        if name.startswith("on_") and "batch_end" not in name and name != "on_batch_begin":
            counts = "batch" in name or "epoch" in name
            return lambda *args: self.told.append((name, *args[:counts]))
        return super().__getattribute__(name)

    def on_train_batch_end(self, batch, logs=None):
        self.told.append(("on_train_batch_end", batch, *logs))

    def on_test_batch_end(self, batch, logs=None):
        self.told.append(("on_test_batch_end", batch, *logs))


def test_callbacks_are_told_in_keras_order():
    told = []
    data = pl.Dataset.from_tensor_slices((X, Y)).batch(20)
    linear().fit(data, epochs=1, validation_data=data.take(1), callbacks=[Log(told)], verbose=0)
    assert told == [
        ("on_train_begin",),
        ("on_epoch_begin", 0),
        ("on_train_batch_begin", 0),
        ("on_train_batch_end", 0, "loss", "mae"),
        ("on_train_batch_begin", 1),
        ("on_train_batch_end", 1, "loss", "mae"),
        ("on_train_batch_begin", 2),
        ("on_test_begin",),
        ("on_test_batch_begin", 0),
        ("on_test_batch_end", 0, "loss", "mae"),
        ("on_test_end",),
        ("on_epoch_end", 0),
        ("on_train_end",),
    ]


class StopAt(callbacks.Callback):
    def __init__(self, **at):
        super().__init__()
        self.at = at

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training |= self.at.get("batch") == batch

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training |= self.at.get("epoch") == epoch


@pytest.mark.parametrize(("at", "examples"), [({"batch": 1}, 20), ({"epoch": 1}, 50)])
@pytest.mark.parametrize("kind", ["default", "two replicas"])
def test_a_callback_stops_training_after_the_batch_or_epoch(kind, at, examples):
    model = linear(STRATEGIES[kind]())
    history = model.fit(X, Y, 10, 9, shuffle=False, callbacks=[StopAt(**at)], verbose=0)
    assert int(model.optimizer.iterations) == -(-examples * 3 // 25) or examples == 20
    assert len(history.epoch) == (1 if "batch" in at else 2)


class OwnStep(Model):
    """A model with a training step in Keras's form."""

    def __init__(self):
        super().__init__()
        self.out = layers.Dense(1, input_shape=(3,), name="out")
        self.tracker = metrics.Mean(name="tracked")

    def call(self, inputs, training=False):
        return self.out(inputs)

    def train_step(self, data):
        x, y = data
        with pl.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compiled_loss(y, y_pred, regularization_losses=self.losses)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.compiled_metrics.update_state(y, y_pred)
        self.tracker.update_state(loss, np.shape(x)[0])
        return {**{m.name: m.result() for m in self.metrics}, "last": loss}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_training_step_of_ones_own_learns_and_counts_the_same(kind):
    strategy = STRATEGIES[kind]()
    initial, (weights, epoch_losses) = linear().get_weights(), by_hand(3, 8)
    with strategy.scope():
        model = OwnStep()
        model.compile(optimizers.SGD(0.05), "mse", metrics=["mae"])
    model.set_weights(initial)
    history = model.fit(X, Y, batch_size=8, epochs=3, shuffle=False, verbose=0).history
    for found, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    for name in ("loss", "tracked"):
        np.testing.assert_allclose(history[name], epoch_losses, rtol=1e-5)
    expected = linear().fit(X, Y, batch_size=8, epochs=3, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["mae"], expected["mae"], rtol=1e-5)
    assert len(history["last"]) == 3


class ByMinimize(OwnStep):
    """A training step with Keras's `minimize(loss, var_list, tape)`."""

    def train_step(self, data):
        x, y = data
        with pl.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": self.metrics[0].result()}


@pytest.mark.parametrize("kind", ["default", "two replicas"])
def test_a_step_by_minimize_is_made_at_its_end(kind):
    strategy = STRATEGIES[kind]()
    initial, (weights, epoch_losses) = linear().get_weights(), by_hand(2, 8)
    with strategy.scope():
        model = ByMinimize()
        model.compile(optimizers.SGD(0.05), "mse")
        model.set_weights(initial)
    history = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    for found, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    np.testing.assert_allclose(history["loss"], epoch_losses, rtol=1e-5)


def test_averages_of_weights_take_their_place_at_the_end():
    model = linear(optimizer=optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5))
    model.fit(X, Y, batch_size=25, epochs=3, shuffle=False, verbose=0)
    second, third = (by_hand(epochs, 25)[0][0] for epochs in (2, 3))
    average = (by_hand(1, 25)[0][0] / 2 + second / 2) / 2 + third / 2
    np.testing.assert_allclose(model.get_weights()[0], average, rtol=1e-4)


def test_several_inputs_and_outputs_have_figures_by_their_names():
    a, b = Input((3,), name="a"), Input((3,), name="b")
    model = Model([a, b], [layers.Dense(1, name="p")(a), layers.Dense(1, name="q")(b)])
    model.compile("sgd", {"p": "mse", "q": "mae"}, {"q": ["mse"]}, loss_weights={"p": 1, "q": 2})
    logs = model.fit([X, X], [Y, Y], verbose=0, epochs=2).history
    assert list(logs) == ["loss", "p_loss", "q_loss", "q_mse"]
    np.testing.assert_allclose(
        logs["loss"], np.add(logs["p_loss"], np.multiply(2, logs["q_loss"])), rtol=1e-6
    )
    p, q = model.predict([X, X], verbose=0)
    assert p.shape == q.shape == (25, 1)


@pytest.mark.parametrize("kind", ["default", "two replicas"])
def test_one_batch_at_a_time_learns_the_same(kind):
    model, expected = linear(STRATEGIES[kind]()), by_hand(1, 10)
    total = 0.0
    for start in range(0, 25, 10):
        loss, _ = model.train_on_batch(X[start : start + 10], Y[start : start + 10])
        total += loss * len(X[start : start + 10])
    np.testing.assert_allclose(model.get_weights()[0], expected[0][0], rtol=1e-5)
    assert total / 25 == pytest.approx(expected[1][0], rel=1e-5)
    found = model.test_on_batch(X, Y, return_dict=True)
    assert found == pytest.approx(model.evaluate(X, Y, verbose=0, return_dict=True))
    np.testing.assert_array_equal(model.predict_on_batch(X), model.predict(X, verbose=0))


REFUSED = {
    "labels beside a dataset": (lambda m: m.fit(pl.Dataset.range(3).batch(1), Y), "so y has no"),
    "a batch size beside a generator": (
        lambda m: m.fit(batches(), batch_size=3), "so batch_size has no meaning",
    ),
    "lengths that differ": (lambda m: m.fit(X, Y[:3]), "x has 25 examples but y has 3"),
    "no data": (lambda m: m.fit(X[:0], Y[:0]), "the input gave no batch"),
    "four parts": (
        lambda m: m.fit(iter([(X, Y, W, W)])), r"must be x, \(x, y\) or \(x, y, sample_weight\)",
    ),
    "a split of a dataset": (
        lambda m: m.fit(pl.Dataset.range(3), validation_split=0.1), "validation_split is for arr",
    ),
    "a split of nothing": (lambda m: m.fit(X, Y, validation_split=0.99), "leaves none"),
    "nothing": (lambda m: m.fit(), "x is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_on_is_refused_with_what_to_do(case):
    act, said = REFUSED[case]
    with pytest.raises(ValueError, match=said):
        act(linear())


def test_mb_06_a_model_without_a_loss_says_what_is_missing():
    with pytest.raises(ValueError, match="has no loss; name one"):
        linear(loss=None).fit(X, Y, verbose=0)
    with pytest.raises(ValueError, match="was not compiled"):
        Sequential([layers.Dense(1)]).fit(X, Y, verbose=0)
    with pytest.raises(TypeError, match="callbacks must be objects of"):
        linear().fit(X, Y, callbacks=[print])


def test_a_model_of_another_scope_is_refused():
    model = linear()
    with STRATEGIES["two replicas"]().scope(), pytest.raises(ValueError, match="was made in the"):
        model.fit(X, Y)


def test_two_models_count_their_steps_apart():
    first, second = linear(STRATEGIES["two replicas"]()), another()
    for model in (first, second, first):
        model.fit(X, Y, verbose=0)
    assert int(first.optimizer.iterations) == 2
    assert int(second.optimizer.iterations) == 1


def test_ctrl_c_leaves_the_model_whole():
    import _thread

    class Interrupt(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                _thread.interrupt_main()

    model = linear(STRATEGIES["two replicas"]())
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, 5, 9, callbacks=[Interrupt()], verbose=0)
    assert int(model.optimizer.iterations) in (2, 3)
    model.fit(X, Y, verbose=0)
