"""A tensor behaves like a NumPy array, except where that would lose the gradient."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from paceline.autodiff import Tensor, TensorLike, lift, relu, stop_gradient

from ..devices.strict_cupy import StrictArray, to_device

VALUES = np.array([[1.5, -2.0, 0.5], [3.0, 4.0, -1.0]])
OTHER = np.array([[2.0, -2.0, 1.0], [0.5, 4.0, 3.0]])


def leaf(values: Any = VALUES) -> Tensor:
    return Tensor(np.array(values), requires_grad=True)


class Holder(TensorLike):
    """Something that gives a tensor, as a variable does."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def tensor(self) -> Tensor:
        return self._tensor


ARITHMETIC = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.mod),
    lambda x, y: abs(x) ** y,
    lambda x, y: x @ y.T,
]
COMPARISONS = [
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    operator.floordiv,
]


@pytest.mark.parametrize("function", ARITHMETIC)
@pytest.mark.parametrize(
    "pair",
    [
        lambda: (leaf(), leaf(OTHER)),
        lambda: (leaf(), OTHER),
        lambda: (VALUES, leaf(OTHER)),
        lambda: (Holder(leaf()), leaf(OTHER)),
        lambda: (Holder(leaf()), OTHER),
        lambda: (VALUES, Holder(leaf(OTHER))),
    ],
)
def test_operators_work_with_tensors_and_arrays_on_either_side(function: Any, pair: Any) -> None:
    result = function(*pair())
    assert isinstance(result, Tensor)
    assert result.requires_grad
    np.testing.assert_array_equal(result.data, function(VALUES, OTHER))


@pytest.mark.parametrize("function", COMPARISONS)
@pytest.mark.host
def test_comparisons_give_plain_arrays(function: Any) -> None:
    for pair in ((leaf(), leaf(OTHER)), (leaf(), OTHER), (VALUES, leaf(OTHER))):
        result = function(*pair)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, function(VALUES, OTHER))


def test_in_place_operators_bind_the_name_anew() -> None:
    x = total = leaf()
    total += 1
    total *= 2
    np.testing.assert_array_equal(total.data, (VALUES + 1) * 2)
    np.testing.assert_array_equal(x.data, VALUES)


def test_attributes_are_those_of_the_array() -> None:
    x = leaf()
    assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((2, 3), 2, 6, np.float64, 2)
    assert x.T.shape == (3, 2)


def test_the_shape_is_told_in_tensorflow_s_words() -> None:
    shape = Tensor(np.ones((2, 3))).get_shape()
    assert (shape, shape.as_list(), shape[1:]) == ((2, 3), [2, 3], (3,))
    assert (shape.ndims, shape.rank, shape.is_fully_defined()) == (2, 2, True)


@pytest.mark.parametrize("shape", [None, (2, 3), [None, 3], [None, None]])
def test_a_shape_that_fits_is_set(shape: Any) -> None:
    Tensor(np.ones((2, 3))).set_shape(shape)


@pytest.mark.parametrize("shape", [(3, 3), [None, 4], [None], (2, 3, 1)])
def test_a_shape_that_does_not_fit_is_refused(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"which is \(2, 3\), got"):
        Tensor(np.ones((2, 3))).set_shape(shape)


@pytest.mark.parametrize(
    "method",
    [
        lambda x: x.sum(),
        lambda x: x.sum(axis=1, keepdims=True),
        lambda x: x.mean(0),
        lambda x: x.max(axis=0),
        lambda x: x.min(),
        lambda x: x.argmax(axis=1),
        lambda x: x.reshape(3, 2),
        lambda x: x.reshape((3, 2)),
        lambda x: x.reshape(-1),
        lambda x: x.transpose(),
        lambda x: x.transpose(1, 0),
        lambda x: x.transpose((1, 0)),
        lambda x: x.astype(np.float32),
        lambda x: x.astype(int),
        lambda x: x[0],
    ],
)
def test_methods_are_those_of_the_array(method: Any) -> None:
    result, expected = lift(method(leaf())).data, method(VALUES)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype


@pytest.mark.host
def test_results_without_axes_are_arrays_and_not_scalars() -> None:
    for result in (leaf().sum(), leaf()[0, 0], leaf(2.0) * 3, np.exp(leaf(2.0))):
        assert type(result.data) is np.ndarray
        assert result.shape == ()


def test_a_scalar_tensor_is_a_number_where_python_asks_for_one() -> None:
    x = leaf(2.5)
    assert (int(x), bool(x), x.item(), f"{x:.2f}") == (2, True, 2.5, "2.50")
    assert float(stop_gradient(x)) == 2.5


def test_the_printed_form_tells_values_shape_and_dtype(plain_printing) -> None:
    expected = "<Tensor: shape=(2,), dtype=float64, numpy=array([1., 2.]), requires_grad=True>"
    assert repr(leaf([1.0, 2.0])) == expected
    assert repr(Tensor(np.array([[1]], np.int32))) == (
        "<Tensor: shape=(1, 1), dtype=int32, numpy=\narray([[1]], dtype=int32)>"
    )
    assert f"{leaf([1.0, 2.0])}" == "Tensor([1. 2.], shape=(2,), dtype=float64)"
    assert str(Tensor(np.float32(0.1))) == "Tensor(0.1, shape=(), dtype=float32)"


def test_values_are_copied_out() -> None:
    x = leaf()
    x.numpy()[...] = 0
    np.testing.assert_array_equal(x.data, VALUES)
    assert type(x.numpy()) is np.ndarray
    assert type(Tensor(to_device(VALUES)).numpy()) is np.ndarray


def test_tensors_are_keys_by_identity() -> None:
    x, same = leaf(), leaf()
    table = {x: 1, same: 2}
    assert (table[x], table[same]) == (1, 2)


@pytest.mark.host
def test_creation_functions_take_a_tensor_as_their_model() -> None:
    for like in (leaf(), Holder(leaf())):
        assert type(np.zeros((2,), np.float32, like=like)) is np.ndarray
    assert isinstance(np.zeros(2, like=Tensor(to_device(VALUES))), StrictArray)
    assert isinstance(np.arange(3, like=Tensor(to_device(VALUES))), StrictArray)


def test_a_tensor_with_a_gradient_does_not_become_an_array_by_itself() -> None:
    for convert in (np.asarray, np.array, lambda x: np.array([x, x]), lambda x: VALUES[x]):
        with pytest.raises(TypeError, match=r"cut it silently.*\.numpy\(\)"):
            convert(leaf())
    with pytest.raises(TypeError, match="cut it silently"):
        VALUES.copy()[0] = leaf([1.0, 2.0, 3.0])


def test_a_tensor_without_a_gradient_becomes_an_array() -> None:
    np.testing.assert_array_equal(np.asarray(Tensor(VALUES), np.float32), VALUES)


def test_tensors_cannot_be_written_into() -> None:
    with pytest.raises(TypeError, match=r"cannot be written into; build a new one with np\.where"):
        leaf()[0] = 1.0


def test_an_array_does_not_take_a_tensor_in_place() -> None:
    total = np.zeros(3)
    with pytest.raises(TypeError, match="total = total \\+ tensor"):
        total += leaf([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="leave out= away"):
        np.exp(leaf(), out=np.empty((2, 3)))


def test_a_tensor_is_not_made_from_a_tensor() -> None:
    with pytest.raises(TypeError, match=r"stop_gradient\(tensor\)"):
        Tensor(leaf())


@pytest.mark.parametrize("values", [[1, 2], [True], [1j]])
def test_only_floats_have_gradients(values: Any) -> None:
    with pytest.raises(TypeError, match=r"has no gradient.*floating dtype"):
        Tensor(np.array(values), requires_grad=True)


F32 = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        *((2, np.float32), (2.0, np.float32), (True, np.float32)),
        *((np.float64(2), np.float32), (np.int64(2), np.float32), (np.bool_(True), np.float32)),
        (np.sqrt(2.0), np.float32),
        (np.ones(3, np.float16), np.float32),
        (np.ones(3, np.int8), np.float32),
        (np.ones(3, bool), np.float32),
        (np.ones(3, np.int64), np.float64),
        (np.ones(3), np.float64),
        ([1.0, 2.0, 3.0], np.float64),
    ],
)
def test_numbers_take_the_dtype_they_meet_and_arrays_follow_numpy(
    other: Any, expected: Any
) -> None:
    x = Tensor(F32, requires_grad=True)
    for result in (x + other, other - x if not isinstance(other, list) else x - other, x * other):
        assert result.dtype == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_precision_is_kept_through_a_chain(dtype: Any) -> None:
    x = Tensor(np.array([0.5, 1.0], dtype), requires_grad=True)
    y = np.mean(np.log1p(np.exp(relu(x * 2.0 - 0.5) ** 2 / 3) + 1) + np.maximum(x, 0) - 2**x)
    assert y.dtype == dtype
