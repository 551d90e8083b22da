"""Losses: formulas, and the values that Keras's documentation prints."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import losses, metrics, optimizers

Y = [[0.0, 1.0], [0.0, 0.0]]
P = [[0.6, 0.4], [0.4, 0.6]]
ONE_HOT = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
CLASSES = [1, 2]
SHARES = [[0.05, 0.95, 0.0], [0.1, 0.8, 0.1]]

# What Keras prints for each class: (loss object, y_true, y_pred, {weights: mean}, sum, each).
KERAS = [
    (
        losses.MeanSquaredError,
        {},
        Y,
        [[1.0, 1.0], [1.0, 0.0]],
        {None: 0.5, (0.7, 0.3): 0.25},
        [0.5] * 2,
    ),
    (
        losses.MeanAbsoluteError,
        {},
        Y,
        [[1.0, 1.0], [1.0, 0.0]],
        {None: 0.5, (0.7, 0.3): 0.25},
        [0.5] * 2,
    ),
    (losses.BinaryCrossentropy, {}, Y, P, {None: 0.815, (1, 0): 0.458}, [0.916, 0.714]),
    (
        losses.CategoricalCrossentropy,
        {},
        ONE_HOT,
        SHARES,
        {None: 1.177, (0.3, 0.7): 0.814},
        [0.0513, 2.303],
    ),
    (
        losses.SparseCategoricalCrossentropy,
        {},
        CLASSES,
        SHARES,
        {None: 1.177, (0.3, 0.7): 0.814},
        [0.0513, 2.303],
    ),
    (losses.Huber, {}, Y, P, {None: 0.155, (1, 0): 0.09}, [0.18, 0.13]),
]
IDS = [row[0].__name__ for row in KERAS]


@pytest.mark.parametrize(("make", "options", "y", "p", "means", "each"), KERAS, ids=IDS)
def test_mb_09_a_loss_has_the_values_of_keras_documentation(make, options, y, p, means, each):
    y, p = np.array(y), np.array(p)
    for weights, mean in means.items():
        assert make(**options)(y, p, weights).item() == pytest.approx(mean, abs=6e-4)
    assert make(reduction="sum", **options)(y, p).item() == pytest.approx(sum(each), abs=1e-3)
    np.testing.assert_allclose(make(reduction="none", **options)(y, p).numpy(), each, atol=6e-4)


def test_mb_09_binary_crossentropy_of_logits():
    y, z = np.array([0.0, 1, 0, 0]), np.array([-18.6, 0.51, 2.94, -12.8])
    assert losses.BinaryCrossentropy(from_logits=True)(y, z).item() == pytest.approx(
        0.865, abs=6e-4
    )


@pytest.mark.parametrize(
    ("make", "y"),
    [
        (losses.BinaryCrossentropy, np.eye(4)[[1, 3]]),
        (losses.CategoricalCrossentropy, np.eye(4)[[1, 3]]),
        (losses.SparseCategoricalCrossentropy, np.array([1, 3])),
    ],
)
def test_logits_and_their_probabilities_give_the_same_loss(make, y):
    z = np.random.default_rng(0).normal(size=(2, 4))
    if make is losses.BinaryCrossentropy:
        p = 1 / (1 + np.exp(-z))
    else:
        p = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
    expected = make(from_logits=True)(y, z).item()
    assert make()(y, p).item() == pytest.approx(expected, rel=1e-9)
    if make is not losses.BinaryCrossentropy:
        assert make()(y, 7 * p).item() == pytest.approx(expected, rel=1e-6)


def test_extreme_logits_stay_finite():
    z = np.array([[1e4, -1e4, 0.0]])
    sparse = losses.sparse_categorical_crossentropy([1], z, from_logits=True)
    assert sparse.item() == pytest.approx(2e4)
    binary = losses.binary_crossentropy(np.array([[0.0, 1.0, 0.5]]), z, from_logits=True)
    assert binary.item() == pytest.approx((2e4 + math.log(2)) / 3)


def test_certain_but_wrong_probabilities_cost_a_finite_amount():
    for loss, y in ((losses.BinaryCrossentropy(), [[1.0]]), (losses.MeanSquaredError(), [[1.0]])):
        assert math.isfinite(loss(np.array(y), np.array([[0.0]])).item())


@pytest.mark.parametrize(
    ("loss", "smoothed"),
    [
        (losses.BinaryCrossentropy(label_smoothing=0.2), [[0.1, 0.9], [0.1, 0.1]]),
        (losses.CategoricalCrossentropy(label_smoothing=0.2), None),
    ],
)
def test_label_smoothing_moves_labels_to_the_middle(loss, smoothed):
    if smoothed is None:
        y, p = np.array(ONE_HOT), np.array(SHARES) * 0.9 + 0.03
        smoothed = 0.8 * y + 0.2 / 3
        expected = losses.CategoricalCrossentropy()(smoothed, p)
    else:
        y, p = np.array(Y), np.array(P)
        expected = losses.BinaryCrossentropy()(np.array(smoothed), p)
    assert loss(y, p).item() == pytest.approx(expected.item(), rel=1e-12)


def test_huber_is_linear_beyond_delta():
    each = losses.huber(np.zeros(3), np.array([0.5, 2.0, -4.0]), delta=2.0).numpy()
    np.testing.assert_allclose(each, [0.125, 2.0, 6.0])
    with pytest.raises(ValueError, match="delta must be positive"):
        losses.Huber(0)


FUNCTIONS = [
    lambda y, p: losses.mean_squared_error(y, p),
    lambda y, p: losses.mean_absolute_error(y, p),
    lambda y, p: losses.huber(y, p, 0.3),
    lambda y, p: losses.binary_crossentropy(y, p),
    lambda y, p: losses.binary_crossentropy(y, p, from_logits=True),
    lambda y, p: losses.categorical_crossentropy(y, p),
    lambda y, p: losses.categorical_crossentropy(y, p, from_logits=True, label_smoothing=0.1),
    lambda y, p: losses.sparse_categorical_crossentropy(np.argmax(y, -1), p),
    lambda y, p: losses.sparse_categorical_crossentropy(np.argmax(y, -1), p, from_logits=True),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_equal_finite_differences(function):
    y = np.eye(3)[[0, 2]]
    p = np.array([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
    prediction = Tensor(p, requires_grad=True)
    gradient = backward(function(y, prediction).sum())[prediction]
    for index in np.ndindex(p.shape):
        step = np.zeros_like(p)
        step[index] = 1e-6
        slope = (function(y, p + step).numpy().sum() - function(y, p - step).numpy().sum()) / 2e-6
        assert gradient[index] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_labels_may_be_tensors_with_a_gradient_of_their_own():
    y = Tensor(np.array([[1.0, 2.0]]), requires_grad=True)
    loss = losses.MeanSquaredError()(y, np.array([[0.0, 0.0]]))
    np.testing.assert_allclose(backward(loss)[y], [[1.0, 2.0]])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_predictions_dtype_is_kept(function):
    y, p = np.eye(3)[[0, 2]], np.full((2, 3), 0.4, np.float32)
    assert function(y, p).dtype == np.float32
    assert function(y.astype(np.int64), p).dtype == np.float32


def test_whole_numbers_as_predictions_count_as_floats():
    assert losses.mean_squared_error([1, 2], [1, 4]).numpy().tolist() == [0.0, 4.0]


@pytest.mark.parametrize(
    ("y_shape", "p_shape", "shape"),
    [
        ((4,), (4,), (4,)),
        ((4,), (4, 1), (4,)),
        ((4, 1), (4,), (4,)),
        ((4, 1), (4, 1), (4,)),
        ((4, 3), (4, 3), (4,)),
        ((4, 3, 2), (4, 3, 2), (4, 3)),
        ((), (), ()),
    ],
)
def test_there_is_one_loss_for_each_example(y_shape, p_shape, shape):
    y, p = np.ones(y_shape), np.zeros(p_shape)
    for function in (losses.mean_squared_error, losses.mean_absolute_error, losses.huber):
        assert function(y, p).shape == shape


@pytest.mark.parametrize(
    ("y_shape", "p_shape"),
    [((4,), (4, 2)), ((4,), (1, 4)), ((4, 2), (4,)), ((4,), (5,)), ((), (4,))],
)
def test_shapes_are_never_broadcast(y_shape, p_shape):
    for name in ("mean_squared_error", "binary_crossentropy"):
        with pytest.raises(ValueError, match=f"{name}: y_true has shape .*they must be equal"):
            getattr(losses, name)(np.ones(y_shape), np.ones(p_shape))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3], r"labels must lie in \[0, 3\).*found 3 at position 1"),
        ([-1, 0], r"labels must lie in \[0, 3\).*found -1 at position 0"),
        ([0.5, 1.0], "labels must be whole numbers"),
        ([math.nan, 1.0], "labels must be whole numbers"),
        ([0, 1, 2], r"labels of shape \(2,\).*y_true has shape \(3,\)"),
        (np.eye(3)[:2], "for one-hot labels use the categorical loss"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        losses.SparseCategoricalCrossentropy(from_logits=True)(labels, np.zeros((2, 3)))


@pytest.mark.parametrize("labels", [[1, 2], [[1], [2]], [1.0, 2.0], np.array([1, 2], np.uint8)])
def test_class_numbers_come_in_several_forms(labels):
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, np.zeros((2, 3)))
    assert loss.item() == pytest.approx(math.log(3))


def test_class_numbers_for_each_position():
    z = np.zeros((2, 5, 3))
    for labels in (np.zeros((2, 5), int), np.zeros((2, 5, 1), int)):
        assert losses.sparse_categorical_crossentropy(labels, z, from_logits=True).shape == (2, 5)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(2.0, 5.0), ([1, 0], 0.5), ([[1], [0]], 0.5), ([0, 0], 0.0), (None, 2.5)],
)
def test_weights_scale_examples_and_leave_the_divisor(weight, expected):
    loss = losses.MeanSquaredError()(np.zeros((2, 1)), np.array([[1.0], [2.0]]), weight)
    assert loss.item() == expected


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"mean_squared_error: sample_weight has shape \(3,\)"):
        losses.MeanSquaredError()(np.zeros((2, 1)), np.zeros((2, 1)), [1, 2, 3])


@pytest.mark.parametrize("name", ["mse", "MSE", "mean_squared_error", "MeanSquaredError"])
def test_mb_06_get_knows_strings(name):
    assert isinstance(losses.get(name), losses.MeanSquaredError)


def test_mb_06_get_takes_losses_and_functions_and_lists_names():
    loss = losses.Huber()
    assert losses.get(loss) is loss
    own = losses.get(lambda y, p: np.abs(p - Tensor(y)))
    assert own(np.zeros(2), np.array([1.0, 3.0])).item() == 2.0
    with pytest.raises(ValueError, match="no loss is called 'l2'; there are mse, mean_squared"):
        losses.get("l2")


def test_reductions_are_known_by_name_only():
    assert losses.Reduction.parse("SUM") is losses.Reduction.SUM
    assert losses.Reduction.NONE == "none"
    with pytest.raises(
        ValueError, match="'auto', 'none', 'sum', 'sum_over_batch_size', it is 'mean'"
    ):
        losses.MeanSquaredError(reduction="mean")


def test_smoothing_out_of_range_is_refused():
    with pytest.raises(ValueError, match="label_smoothing must be between 0 and 1"):
        losses.BinaryCrossentropy(label_smoothing=2)


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "binary_crossentropy"])
def test_no_examples_have_no_loss_and_no_gradient(name):
    predictions = Tensor(np.zeros((0, 1)), requires_grad=True)
    loss = losses.get(name)(np.zeros((0, 1)), predictions)
    assert loss.item() == 0
    assert backward(loss)[predictions].shape == (0, 1)


def test_no_examples_of_a_model_have_a_gradient_of_zero():
    w = Tensor(np.ones((3, 4)), requires_grad=True)
    loss = losses.get("sparse_categorical_crossentropy")(np.zeros(0, int), np.ones((0, 3)) @ w)
    assert loss.item() == 0
    np.testing.assert_array_equal(backward(loss)[w], np.zeros((3, 4)))


@pytest.mark.parametrize("get", [losses.get, metrics.get, optimizers.get])
@pytest.mark.parametrize("argument", [None, 3, [losses.MeanSquaredError()]])
def test_what_is_no_name_and_no_function_is_refused(get, argument):
    with pytest.raises(TypeError, match=r"must be a name.*not (None|3|\[)"):
        get(argument)
