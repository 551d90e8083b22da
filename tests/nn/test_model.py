"""`nn.Model`: one model written three ways, what it computes, and what it is compiled with."""

import numpy as np
import pytest

from paceline.autodiff import backward
from paceline.nn import (
    Input,
    Model,
    Sequential,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    regularizers,
)
from paceline.strategies import VariableStore

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


class Written(Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4, "tanh")
        self.out = layers.Dense(2)

    def call(self, inputs, training=False):
        return self.out(self.hidden(inputs))


def sequential():
    return Sequential([Input((3,)), layers.Dense(4, "tanh"), layers.Dense(2)])


def functional():
    inputs = Input((3,))
    hidden = layers.Dense(4, "tanh")(inputs)
    return Model(inputs, layers.Dense(2)(hidden))


def test_mb_05_one_model_written_three_ways_has_equal_weights_and_outputs():
    outputs, weights = [], []
    for make in (sequential, functional, Written):
        with VariableStore(seed=1).building():
            model = make()
            outputs.append(model(X).numpy())
            weights.append([(weight.name, weight.numpy()) for weight in model.weights])
    for names, values in (zip(*pairs, strict=True) for pairs in zip(*weights, strict=True)):
        assert names == (names[0],) * 3
        np.testing.assert_array_equal(values, [values[0]] * 3)
    np.testing.assert_array_equal(outputs, [outputs[0]] * 3)


def test_a_functional_model_has_its_weights_at_once_and_in_order():
    model = functional()
    assert [weight.name for weight in model.trainable_weights] == [
        "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias",
    ]  # fmt: skip
    assert model.layers[0].name == "dense"


def test_operators_slices_and_functions_of_numpy_may_stand_between_layers():
    inputs = Input((3,))
    hidden = layers.Dense(3, name="d")(inputs)
    outputs = np.concatenate([np.tanh(hidden + inputs), 2.0 * hidden[:, :1]], axis=1)
    model = Model(inputs, outputs)
    kernel, bias = (weight.numpy() for weight in model.weights)
    dense = X @ kernel + bias
    expected = np.concatenate([np.tanh(dense + X), 2.0 * dense[:, :1]], axis=1)
    np.testing.assert_allclose(model(X).numpy(), expected, rtol=1e-6)
    gradients = backward(np.square(model(X)).sum())
    assert gradients[model.weights[0].tensor()].shape == (3, 3)


@pytest.mark.parametrize(
    ("inputs", "features"),
    [
        (lambda a, b: [a, b], [X, 2 * X]),
        (lambda a, b: (a, b), (X, 2 * X)),
        (lambda a, b: {"left": a, "right": b}, {"left": X, "right": 2 * X}),
        (lambda a, b: [a, b], {"a": X, "b": 2 * X}),
    ],
    ids=["list", "tuple", "dict", "dict by the names of the inputs"],
)
def test_several_inputs_and_outputs_keep_their_structure(inputs, features):
    a, b = Input((3,), name="a"), Input((3,), name="b")
    model = Model(inputs(a, b), {"sum": a + b, "of b": layers.Activation("relu")(b)})
    outputs = model(features)
    np.testing.assert_array_equal(outputs["sum"].numpy(), 3 * X)
    np.testing.assert_array_equal(outputs["of b"].numpy(), np.maximum(2 * X, 0))
    assert model.output_names == ["sum", "of b"]


def test_a_layer_that_is_shared_has_one_set_of_weights():
    a, b = Input((3,)), Input((3,))
    shared = layers.Dense(2)
    model = Model([a, b], shared(a) - shared(b))
    assert len(model.weights) == 2
    np.testing.assert_array_equal(model([X, X]).numpy(), 0)


def test_layers_are_told_whether_they_are_trained_unless_the_model_says_it():
    inputs = Input((3,))
    model = Model(inputs, [layers.Dropout(0.5)(inputs), layers.Dropout(0.5)(inputs, training=True)])
    often, always = model(np.ones((100, 3), np.float32))
    assert (often.numpy() == 1).all()
    assert (always.numpy() == 0).any()
    assert (model(np.ones((100, 3), np.float32), training=True)[0].numpy() == 0).any()


def test_a_model_of_a_thousand_layers_is_no_deep_recursion():
    inputs = outputs = Input((1,))
    for _ in range(2000):
        outputs = outputs + 1.0
    assert Model(inputs, outputs)(np.zeros((1, 1), np.float32)).numpy() == 2000


REFUSED = {
    "only inputs": (lambda: Model(Input((3,))), TypeError, "outputs must be what layers have made"),
    "inputs that are none": (lambda: Model(X, X), TypeError, "inputs must be an Input"),
    "an input left out": (
        lambda: Model(Input((3,)), layers.Activation("relu")(Input((4,)))),
        ValueError,
        r"Input of shape \(None, 4\) that is not among the inputs",
    ),
    "a value asked for": (lambda: bool(Input((3,)) > 0), TypeError, "has no values"),
    "an array asked for": (lambda: np.asarray(Input((3,))), TypeError, "has no values"),
    "no call": (lambda: Model()(X), NotImplementedError, "neither inputs and outputs nor a `call`"),
    "one of two inputs": (
        lambda: Model([a := Input((3,)), b := Input((3,))], a + b)(X),
        ValueError,
        "takes a list of 2 inputs",
    ),
    "a key that is missing": (
        lambda: Model({"a": (a := Input((3,)))}, a + 1)({"b": X}),
        ValueError,
        "takes an input 'a', there are b",
    ),
    "an unknown loss": (lambda: functional().compile("sgd", "mze"), ValueError, "no loss is"),
    "an unknown metric": (
        lambda: functional().compile("sgd", "mse", ["acuracy"]), ValueError, "no metric is called",
    ),
    "an unknown optimizer": (lambda: functional().compile("sgdd"), ValueError, "no optimizer"),
    "a metric that is none": (
        lambda: functional().compile("sgd", "mse", [3]), TypeError, "metrics must be metrics",
    ),
    "not compiled": (
        lambda: functional().compute_loss(X, X, X), ValueError, "was not compiled: call",
    ),
    "no loss": (lambda: compiled(None).compute_loss(X, X, X), ValueError, "has no loss"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_with_what_to_do(case):
    make, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        make()


def compiled(loss, **options):
    model = functional()
    model.compile("sgd", loss, **options)
    return model


@pytest.mark.parametrize("loss", ["mse", losses.MeanSquaredError(), losses.mean_squared_error])
def test_mb_06_a_loss_is_named_given_or_a_function(loss):
    model, y = compiled(loss), np.ones((5, 2), np.float32)
    expected = np.mean(np.square(model(X).numpy() - y))
    assert model.compute_loss(X, y, model(X)).numpy() == pytest.approx(expected, rel=1e-6)


def test_penalties_of_weights_are_part_of_the_loss():
    inputs = Input((3,))
    model = Model(inputs, layers.Dense(2, kernel_regularizer="l2")(inputs))
    model.compile("sgd", "mse")
    y = model(X)
    penalty = 0.01 * np.square(model.weights[0].numpy()).sum()
    assert model.compute_loss(X, y.numpy(), y).numpy() == pytest.approx(penalty, rel=1e-6)


@pytest.mark.parametrize(
    ("labels", "predictions", "kind"),
    [
        ((5,), (5, 1), metrics.BinaryAccuracy),
        ((5, 1), (5, 1), metrics.BinaryAccuracy),
        ((5,), (5, 3), metrics.SparseCategoricalAccuracy),
        ((5, 1), (5, 3), metrics.SparseCategoricalAccuracy),
        ((5, 3), (5, 3), metrics.CategoricalAccuracy),
    ],
)
def test_accuracy_is_the_kind_that_fits_the_shapes(labels, predictions, kind):
    rng, expected = np.random.default_rng(1), kind()
    y, y_pred = rng.integers(0, 2, labels), rng.normal(size=predictions).astype(np.float32)
    expected.update_state(y, y_pred)
    found = metrics_of(compiled("mse", metrics=["accuracy"]), y, y_pred)
    assert {name: m.result() for name, m in found.items()} == {"accuracy": expected.result()}


def metrics_of(model, y, y_pred, sample_weight=None):
    return model.compiled.of_call(model.parts(y, y_pred, sample_weight))


def test_a_metric_object_is_a_pattern_for_that_of_each_model():
    given = metrics.MeanSquaredError(name="error")
    model = compiled("mse", metrics=[given, "mae"], weighted_metrics=[losses.mean_absolute_error])
    y = model(X).numpy()
    found = metrics_of(model, y + 1, model(X), np.ones(5))
    assert {name: metric.result() for name, metric in found.items()} == pytest.approx(
        {"error": 1.0, "mae": 1.0, "mean_absolute_error": 1.0}, rel=1e-5
    )
    assert not given.is_updated


def test_several_outputs_have_losses_weights_and_metrics_by_place_or_by_name():
    inputs = Input((3,))
    ends = [layers.Dense(1, name="a")(inputs), layers.Dense(1, name="b")(inputs)]
    model = Model(inputs, ends)
    outputs = model(X)
    y = [part.numpy() + 1 for part in outputs]
    model.compile("sgd", {"a": "mse", "b": "mae"}, {"b": ["mae"]}, loss_weights=[1.0, 10.0])
    assert model.compute_loss(X, y, outputs).numpy() == pytest.approx(11.0, rel=1e-5)
    assert list(metrics_of(model, y, outputs)) == ["b_mae"]
    model.compile("sgd", {"c": "mse"})
    with pytest.raises(ValueError, match=r"loss has the keys \['c'\], but the outputs are called"):
        model.compute_loss(X, y, outputs)


def two_outputs():
    inputs = Input((3,))
    return Model(inputs, [layers.Dense(1, name="o1")(inputs), layers.Dense(1, name="o2")(inputs)])


def test_a_second_model_keeps_the_names_that_the_user_gave():
    for _ in range(2):
        model = two_outputs()
        model.compile("sgd", loss={"o1": "mse", "o2": "mae"}, metrics={"o1": "mse"})
        labels = np.ones((5, 1), np.float32)
        history = model.fit(X, {"o1": labels, "o2": labels}, verbose=0).history
        assert list(history) == ["loss", "o1_loss", "o2_loss", "o1_mse"]
        assert model.get_layer("o1") is model.layers[0]


def test_two_models_whose_layers_have_the_same_names_share_no_weights():
    first, second = two_outputs(), two_outputs()
    before = second.get_weights()
    first.set_weights([weight + 1 for weight in first.get_weights()])
    for weight, value in zip(second.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.parametrize(
    "make",
    [
        lambda *parts: Sequential(parts),
        lambda *parts: [(model := Sequential()), *map(model.add, parts)],
        lambda first, second: Model(given := Input((2,)), second(first(given))),
    ],
    ids=["Sequential", "add", "Model"],
)
def test_two_layers_of_one_name_in_a_model_are_refused_by_name(make):
    said = r"Dense\(name='a'\) and ReLU\(name='a'\), have the same; give one of them another name"
    with pytest.raises(ValueError, match=said):
        make(layers.Dense(2, name="a"), layers.ReLU(name="a"))


def test_a_layer_that_may_be_called_twice_stands_once_in_a_model():
    inputs, again = Input((2,)), layers.Dense(2, name="a")
    model = Model(inputs, [again(inputs), again(again(inputs))])
    assert [layer.name for layer in model.layers] == ["a"]
    assert model.output_names == ["a", "a_1"]


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"shape": (4,)}, (None, 4)),
        ({"shape": (None, 2), "batch_size": 8}, (8, None, 2)),
        ({"batch_shape": (8, 3)}, (8, 3)),
    ],
)
def test_an_input_has_a_shape_with_the_batch_in_front(given, shape):
    made = Input(**given)
    assert (made.shape, made.dtype) == (shape, np.float32)
    assert Input.from_config(made.get_config()).shape == shape


def test_an_input_of_two_shapes_is_refused():
    with pytest.raises(ValueError, match=r"give shape .* or batch_shape"):
        Input((3,), batch_shape=(8, 3))


def test_symbolic_tensors_have_the_shapes_and_dtypes_that_they_will_have():
    inputs = Input((None, 4))
    hidden = layers.LSTM(3, return_sequences=True)(inputs)
    assert (hidden.shape, hidden.dtype) == ((None, None, 3), np.float32)
    assert (hidden[:, -1] + 1.0).shape == (None, 3)
    assert layers.Dense(hidden.shape[-1])(hidden).shape == (None, None, 3)
    with pytest.raises(ValueError, match="the shape of what <Conv2D 'conv'> gives is not known"):
        _ = layers.Conv2D(1, 3, name="conv")(inputs).shape


@pytest.mark.parametrize(
    ("layer", "given", "shape"),
    [
        (layers.Dense(2), (None, 4), (None, 2)),
        (layers.Conv2D(3, 3), (None, 28, 28, 1), (None, 26, 26, 3)),
        (layers.Concatenate(), [(None, 2), (None, 3)], (None, 5)),
        (layers.TimeDistributed(layers.Dense(2)), (None, 5, 3), (None, 5, 2)),
        (layers.LSTM(2, return_state=True), (None, None, 4), [(None, 2)] * 3),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_shape_of_outputs_is_computed_without_weights_of_the_layer(layer, given, shape):
    assert layer.compute_output_shape(given) == shape
    assert layer.weights == []


def test_a_model_has_its_ends_and_their_names_as_in_keras():
    inputs = Input((3,), name="in")
    hidden = layers.Dense(4, name="hidden")(inputs)
    model = Model(inputs, layers.Dense(2, name="out")(hidden))
    assert (model.input, model.inputs) == (inputs, [inputs])
    assert model.outputs == [model.output]
    assert (model.input_names, model.output_names) == (["in"], ["out"])
    assert (model.input_shape, model.output_shape) == ((None, 3), (None, 2))
    part = Model(model.input, model.get_layer("hidden").output)
    assert part(X).shape == (5, 4)


def test_a_sequential_of_a_known_shape_has_ends_and_one_of_none_says_so():
    model = Sequential([layers.Dense(4, input_shape=(3,), name="hidden"), layers.Dense(2)])
    assert (model.input_shape, model.output_shape) == ((None, 3), (None, 2))
    assert Model(model.input, model.layers[0].output)(X).shape == (5, 4)
    with pytest.raises(AttributeError, match="'later' has no output before it is called"):
        _ = Sequential([layers.Dense(1)], name="later").output


def test_a_layer_called_as_a_property_is_a_layer():
    class Net(Model):
        def __init__(self):
            super().__init__()
            self.input, self.output = layers.Dense(2), layers.Dense(1)

        def call(self, inputs):
            return self.output(self.input(inputs))

    net = Net()
    net.compile("sgd", "mse")
    net.fit(X, X[:, :1], verbose=0)
    assert len(net.weights) == 4


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Sequential([layers.Dense(1, input_shape=(3,), name="dense")]), "dense_input"),
        (lambda: Sequential([Input((3,), name="a"), layers.Dense(1)]), "a"),
        (lambda: Model(given := Input((3,)), layers.Dense(1)(given)), "input_1"),
    ],
)
def test_a_model_of_one_input_takes_a_dict_with_its_name(make, name):
    model = make()
    assert model.input_names == [name]
    np.testing.assert_array_equal(model({name: X}).numpy(), model(X).numpy())
    model.compile("sgd", "mse")
    model.fit({name: X}, X[:, :1], verbose=0)
    assert model.evaluate({name: X}, X[:, :1], verbose=0) > 0
    assert model.predict({name: X}, verbose=0).shape == (5, 1)
    with pytest.raises(ValueError, match=f"takes an input '{name}', there are other"):
        model.predict({"other": X}, verbose=0)


def test_a_dict_for_a_model_without_inputs_of_known_names_is_refused_with_its_keys():
    model = Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match=r"was given a dict with the keys \['a'\]"):
        model.fit({"a": X}, X[:, :1], verbose=0)


def test_performance_hints_of_keras_have_no_effect():
    model = functional()
    model.compile("sgd", "mse", pss_evaluation_shards="auto")
    hints = {"workers": 2, "max_queue_size": 3, "use_multiprocessing": True, "verbose": 0}
    model.fit(X, X[:, :2], **hints)
    assert model.evaluate(X, X[:, :2], **hints) == model.evaluate(X, X[:, :2], verbose=0)
    assert model.predict(X, **hints).shape == (5, 2)


def test_figures_of_tests_on_batches_are_of_all_of_them_if_metrics_are_not_reset():
    model = functional()
    model.compile("sgd", "mse", metrics=["mae"])
    first, second = (model.test_on_batch(x, 0 * x[:, :2]) for x in (X[:2], X[2:4]))
    model.test_on_batch(X[:2], 0 * X[:2, :2])
    both = model.test_on_batch(X[2:4], 0 * X[2:4, :2], reset_metrics=False)
    np.testing.assert_allclose(both, np.mean([first, second], axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sequential([layers.LSTM(2)]),
        lambda: Model(given := Input((None, 3)), layers.LSTM(2)(given)),
    ],
    ids=["Sequential", "Model"],
)
def test_a_mask_that_a_model_is_called_with_is_that_of_its_inputs(make):
    model = make()
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    mask = np.array([[True, True, False, False]] * 2)
    np.testing.assert_allclose(model(x, mask=mask).numpy(), model(x[:, :2]).numpy(), rtol=1e-6)


def test_a_model_is_made_of_its_configuration_with_classes_of_ones_own():
    class Doubled(layers.Layer):
        def call(self, inputs):
            return inputs * 2.0

    config = Sequential([Input((3,)), Doubled()]).get_config()
    made = Sequential.from_config(config, custom_objects={"Doubled": Doubled})
    np.testing.assert_array_equal(made(X), X * 2)


@pytest.mark.parametrize(
    ("get", "name"),
    [(losses.get, "mse"), (metrics.get, "mse"), (initializers.get, "zeros"),
     (regularizers.get, "l2"), (constraints.get, "unit_norm")],
)  # fmt: skip
def test_what_a_name_means_is_asked_with_kerass_keyword(get, name):
    assert get(identifier=name) is not None
