"""Losses: formulas, and the values that Keras's documentation prints."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from paceline.autodiff import GradientTape, Tensor, backward
from paceline.nn import losses, metrics, optimizers
from paceline.nn.masks import mask_of, with_mask
from paceline.strategies import MirroredStrategy

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


LARGE = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "function",
    [
        *(getattr(losses, n) for n in ("mse", "mae", "mape", "msle", "huber", "log_cosh", "hinge")),
        *(getattr(losses, n) for n in ("squared_hinge", "categorical_hinge", "cosine_similarity")),
        *(
            partial(getattr(losses, f"{kind}_crossentropy"), from_logits=True)
            for kind in ("binary", "categorical", "binary_focal", "categorical_focal")
        ),
        lambda y, p: losses.ctc([[1, 2], [2, 0]], np.stack([p, p, p], 1)),
    ],
)
def test_extreme_predictions_have_finite_losses_and_gradients(function, dtype):
    p = Tensor(LARGE.astype(dtype), requires_grad=True)
    y = np.eye(3)[[1, 2]]
    found = function(y, p)
    assert np.isfinite(found.numpy()).all()
    assert np.isfinite(backward(found.sum())[p]).all()


def test_focal_losses_of_hopeless_logits_are_their_cross_entropies():
    y, z = np.eye(3)[[1, 0]], LARGE
    binary = losses.binary_focal_crossentropy(y, z, from_logits=True).numpy()
    np.testing.assert_allclose(
        binary, losses.binary_crossentropy(y, z, from_logits=True).numpy(), rtol=1e-4
    )
    of_classes = losses.categorical_focal_crossentropy(y, z, alpha=1, from_logits=True)
    np.testing.assert_allclose(of_classes.numpy(), [2e4, 2e4], rtol=1e-4)


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
    lambda y, p: losses.mape(y + 1, p),
    *(getattr(losses, n) for n in ("msle", "log_cosh", "poisson", "cosine_similarity")),
    *(getattr(losses, n) for n in ("hinge", "squared_hinge", "categorical_hinge", "kld", "dice")),
    partial(losses.binary_focal_crossentropy, gamma=1.5),
    partial(losses.binary_focal_crossentropy, apply_class_balancing=True, from_logits=True),
    losses.categorical_focal_crossentropy,
    partial(losses.categorical_focal_crossentropy, alpha=[0.2, 0.3, 0.5], from_logits=True),
    partial(losses.tversky, alpha=0.2, axis=1),
    lambda y, p: losses.ctc([[1, 0], [2, 1]], np.stack([p, 2 * p, p * p], 1)),
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
        assert gradient[index] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("function", FUNCTIONS[:-1])
def test_gradients_of_gradients_equal_finite_differences(function):
    y = np.eye(3)[[0, 2]]
    p = np.array([[0.25, 0.5, 0.32], [0.1, 0.35, 0.6]])

    def slope(p):
        prediction = Tensor(p, requires_grad=True)
        return backward(function(y, prediction).sum())[prediction]

    direction = np.cos(np.arange(6.0)).reshape(2, 3)
    with GradientTape() as outer:
        prediction = Tensor(p)
        outer.watch(prediction)
        with GradientTape() as inner:
            inner.watch(prediction)
            loss = np.sum(function(y, prediction))
        along = np.sum(inner.gradient(loss, prediction) * direction)
    found = outer.gradient(along, prediction)
    expected = (slope(p + 1e-6 * direction) - slope(p - 1e-6 * direction)) / 2e-6
    found = np.zeros(p.shape) if found is None else Tensor(np.asarray(found)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_ctc_has_no_gradient_of_its_gradient_and_says_so():
    z = Tensor(np.zeros((1, 3, 3)))
    with GradientTape() as outer:
        outer.watch(z)
        with GradientTape() as inner:
            inner.watch(z)
            loss = np.sum(losses.ctc([[1]], z))
        with pytest.raises(RuntimeError, match="second-order gradient of ctc"):
            inner.gradient(loss, z)


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
@pytest.mark.host
def test_labels_that_are_no_class_numbers_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        losses.SparseCategoricalCrossentropy(from_logits=True)(labels, np.zeros((2, 3)))


@pytest.mark.parametrize("labels", [[1, 2], [[1], [2]], [1.0, 2.0], np.array([1, 2], np.uint8)])
def test_class_numbers_come_in_several_forms(labels):
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, np.zeros((2, 3)))
    assert loss.item() == pytest.approx(math.log(3))


@pytest.mark.parametrize("dtype", ["<i4", ">i4", ">u2", "i1", "u1", "<u8"])
@pytest.mark.host
def test_class_numbers_may_be_of_any_integer_type_and_byte_order(dtype):
    logits = np.arange(12, dtype=np.float32).reshape(3, 4)
    labels = np.array([0, 3, 1])
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    assert loss(labels.astype(dtype), logits).item() == loss(labels, logits).item()


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
    of_config = losses.get({"class_name": "Huber", "config": {"delta": 2.0}})
    assert of_config([0.0], np.array([4.0])).item() == 6.0
    own = losses.get(lambda y, p: np.abs(p - Tensor(y)))
    assert own(np.zeros(2), np.array([1.0, 3.0])).item() == 2.0
    with pytest.raises(
        ValueError, match=r"no loss is called 'l2'; there are mse, mae, .*, tversky"
    ):
        losses.get("l2")


def test_reductions_are_known_by_name_only():
    assert losses.Reduction.parse("SUM") is losses.Reduction.SUM
    assert losses.Reduction.NONE == "none"
    assert losses.MeanSquaredError(reduction=None).reduction is losses.Reduction.NONE
    with pytest.raises(
        ValueError, match=r"None or one of 'auto', 'none', 'sum', .*it is 'average'"
    ):
        losses.MeanSquaredError(reduction="average")


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


NAMES = {
    "mape": losses.MeanAbsolutePercentageError,
    "MSLE": losses.MeanSquaredLogarithmicError,
    "kld": losses.KLDivergence,
    "kullback_leibler_divergence": losses.KLDivergence,
    "KLDivergence": losses.KLDivergence,
    "logcosh": losses.LogCosh,
    "bce": losses.BinaryCrossentropy,
    "CTC": losses.CTC,
    "huber_loss": losses.Huber,
    "BinaryFocalCrossentropy": losses.BinaryFocalCrossentropy,
}


@pytest.mark.parametrize("name", NAMES)
def test_mb_06_get_knows_the_aliases_of_keras(name):
    assert type(losses.get(name)) is NAMES[name]


def test_the_arguments_of_a_class_are_its_functions_options_in_keras_order():
    loss = losses.BinaryCrossentropy(True, 0.2, -1, "sum", "bce", "float64")
    expected = losses.binary_crossentropy([[1.0]], np.ones((1, 1)), True, 0.2)
    assert loss([[1.0]], np.ones((1, 1), np.float32)).item() == pytest.approx(expected.item())
    assert (loss.name, loss.dtype, loss.reduction) == ("bce", np.float64, "sum")
    with pytest.raises(TypeError, match=r"Huber\(delta=1\.0, reduction=.*: .*'detla'"):
        losses.Huber(detla=2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.Huber(-1.0), "delta must be positive, it is -1"),
        (lambda: losses.BinaryFocalCrossentropy(gamma=-1), "gamma must not be negative"),
        (lambda: losses.CategoricalCrossentropy(label_smoothing=None), "label_smoothing must be a"),
    ],
)
def test_options_are_checked_when_a_loss_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_loss_of_ones_own_needs_call_only():
    class HalfSquare(losses.Loss):
        def call(self, y_true, y_pred):
            return 0.5 * losses.mean_squared_error(y_true, y_pred)

    loss = HalfSquare()
    assert loss.name == "half_square"
    assert loss([0.0, 0.0], np.array([2.0, 4.0]), [1, 0]).item() == 1.0

    class Scaled(losses.Huber):
        def __init__(self, factor):
            super().__init__(delta=2.0, name="scaled")
            self.factor = factor

        def call(self, y_true, y_pred):
            return self.factor * super().call(y_true, y_pred)

    assert Scaled(3)([0.0], np.array([4.0])).item() == 18.0


Z = np.array([[1.0], [2.0], [30.0], [4.0]])
COUNTS = np.array([True, True, False, True])


@pytest.mark.parametrize(
    ("reduction", "weight", "expected"),
    [
        ("sum", None, 7.0),
        ("none", None, [1, 2, 0, 4]),
        ("mean", None, 7 / 3),
        ("mean", [3, 1, 9, 0], 5 / 3),
        ("mean_with_sample_weight", [3, 1, 9, 0], 5 / 4),
        ("mean_with_sample_weight", None, 7 / 3),
    ],
)
def test_what_a_mask_excludes_counts_in_no_reduction(reduction, weight, expected):
    loss = losses.MeanAbsoluteError(reduction=reduction)
    found = loss(np.zeros((4, 1)), with_mask(Tensor(Z), COUNTS), weight)
    np.testing.assert_allclose(found.numpy(), expected)
    nothing = with_mask(Tensor(np.full((2, 1), np.nan)), np.zeros(2, bool))
    assert losses.MeanAbsoluteError()(np.zeros((2, 1)), nothing).item() == 0


def test_a_mean_may_divide_by_the_weights():
    loss = losses.MeanAbsoluteError(reduction="mean_with_sample_weight")
    assert loss(np.zeros((4, 1)), Z, [1, 1, 0, 2]).item() == 11 / 4
    assert loss(np.zeros((4, 1)), Z, [0, 0, 0, 0]).item() == 0
    steps = np.array([[1.0, 3.0], [5.0, 9.0]])[..., None]
    assert loss(np.zeros((2, 2, 1)), steps, [3, 1]).item() == (3 * 4 + 14) / 8


def test_examples_of_an_ignored_class_are_left_out_of_the_mean():
    z, labels = np.zeros((4, 3)), np.array([0, -1, 2, -1])
    each = losses.sparse_categorical_crossentropy(labels, z, True, ignore_class=-1)
    assert mask_of(each).tolist() == [True, False, True, False]
    loss = losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    assert loss(labels, z).item() == pytest.approx(math.log(3))
    halves = with_mask(Tensor(z), np.array([True, True, False, False]))
    assert loss(labels, halves).item() == pytest.approx(math.log(3))
    assert loss([-1, -1], z[:2]).item() == 0


def test_classes_may_be_another_axis():
    z = np.random.default_rng(0).normal(size=(2, 3, 4))
    labels = np.array([[0, 1, 2, 0], [2, 2, 1, 0]])
    moved, one_hot = np.moveaxis(z, 1, -1), np.moveaxis(np.eye(3)[labels], -1, 1)
    expected = losses.sparse_categorical_crossentropy(labels, moved, True).numpy()
    sparse = losses.sparse_categorical_crossentropy(labels, z, True, axis=1)
    np.testing.assert_array_equal(sparse.numpy(), expected)
    dense = losses.CategoricalCrossentropy(True, axis=1, reduction=None)(one_hot, z)
    np.testing.assert_allclose(dense.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("labels", [[0.5, 1], [-1, 0], [2, 1], [math.nan, 1]])
@pytest.mark.host
def test_labels_of_a_margin_are_two(labels):
    with pytest.raises(ValueError, match="hinge: labels must be -1 and 1, or 0 and 1"):
        losses.hinge(labels, np.zeros(2))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1, 1, 1]], "row 0 take at least 5 time steps, y_pred has 4"),
        ([[1, 0, 1]], "zeros may only stand behind"),
        ([[3, 0, 0]], r"labels must be in \[0, 3\)"),
        ([[1.5, 0, 0]], "whole numbers"),
        ([1, 2], r"shapes \(1, 4, 3\) and \(2,\)"),
    ],
)
def test_labels_that_cannot_be_placed_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        losses.ctc(np.array(labels), np.zeros((1, 4, 3)))


def test_ctc_is_the_sum_over_all_ways_to_place_the_labels():
    z = np.random.default_rng(1).normal(size=(1, 4, 3))
    p = np.exp(z[0]) / np.exp(z[0]).sum(axis=-1, keepdims=True)

    def read(path):
        kept = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        return [c for c in kept if c]

    paths = [path for path in np.ndindex(3, 3, 3, 3) if read(path) == [2, 2]]
    expected = -math.log(sum(math.prod(p[t, c] for t, c in enumerate(path)) for path in paths))
    assert losses.CTC()([[2, 2, 0]], z).item() == pytest.approx(expected, rel=1e-12)


def test_regions_are_those_of_an_example_where_replicas_share_a_batch():
    y, p = np.ones((2, 3)), np.full((2, 3), 0.5)
    assert losses.Dice()(y, p).item() == pytest.approx(1 / 3, abs=1e-6)
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(ValueError, match=r"dice with axis=None.*axis=\(1, 2, 3\)"):
        strategy.run(lambda: losses.dice(y, p))
    strategy.run(lambda: losses.dice(y, p, axis=1))


def test_es15_a_loss_made_again_of_the_same_arguments_is_like_the_first_and_its_own():
    first, second = (losses.Huber(delta=2.0, reduction="sum", name="mine") for _ in range(2))
    assert second is not first
    assert second.get_config() == first.get_config()
    second.reduction = losses.Reduction.NONE
    third = losses.Huber(delta=2.0, reduction="sum", name="mine")
    y = np.float32([[0.0], [1.0]])
    assert third(y, 1 - y).shape == ()
    assert second(y, 1 - y).shape == (2,)
    # By types as well: what is equal may be another argument.
    assert losses.Huber(delta=2).get_config()["delta"] == 2
    assert losses.CategoricalCrossentropy(label_smoothing=0.5)._options != first._options


def test_a_loss_takes_bfloat16_by_its_name():
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    assert losses.MeanSquaredError(dtype="bfloat16").dtype == dtype
    assert losses.MeanSquaredError(dtype="bfloat16")(np.ones(3), np.zeros(3)).item() == 1.0
