"""What cannot be differentiated is refused by name, and the message says what to use instead."""

from __future__ import annotations

import array
import math
from typing import Any

import numpy as np
import pytest

from paceline.autodiff import (
    GradientTape,
    Tensor,
    conv2d,
    dense,
    no_grad,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    watched,
)

X = Tensor(np.ones((2, 2)), requires_grad=True)
V = Tensor(np.ones(3), requires_grad=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: np.linalg.pinv(X), ["'linalg.pinv'", "stop_gradient(tensor).data"]),
        (lambda: np.fft.fft(X), ["'fft.fft'", "stop_gradient(tensor).data"]),
        (lambda: np.block([X, X]), ["'block'", "np.concatenate"]),
        (lambda: np.percentile(X, 5), ["'percentile'", "np.median"]),
        (lambda: np.nanmax(X), ["'nanmax'", "np.max(np.where(np.isnan(x), -np.inf, x), axis)"]),
        (lambda: np.fmod(X, X), ["'fmod'", "use stop_gradient(tensor).data"]),
        (lambda: np.partition(X, 1), ["'partition'"]),
        (lambda: np.add.reduce(X), ["'add.reduce'", "np.sum"]),
        (lambda: np.maximum.accumulate(X), ["'maximum.accumulate'"]),
        (lambda: np.multiply.outer(X, X), ["'multiply.outer'", "np.outer"]),
        (lambda: np.gradient(X), ["'gradient'", "GradientTape"]),
    ],
)
def test_an_unknown_function_is_refused_by_name(call: Any, words: list[str]) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert "would cut the tensor out of the gradient graph" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_functions_of_other_libraries_are_refused_too() -> None:
    special = pytest.importorskip("scipy.special")
    with pytest.raises(TypeError, match=r"'expit'.*paceline\.autodiff\.sigmoid"):
        special.expit(X)
    with pytest.raises(TypeError, match=r"'erf'.*paceline\.autodiff\.erf"):
        special.erf(X)


def test_tensors_without_a_gradient_are_refused_alike() -> None:
    """A model_fn that runs in evaluation runs in training too."""
    with pytest.raises(TypeError, match=r"'linalg\.pinv'"):
        np.linalg.pinv(Tensor(np.eye(2)))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: np.sum(X, dtype=np.float32), "dtype"),
        (lambda: np.sum(X, where=np.ones((2, 2), bool)), "where"),
        (lambda: np.sum(X, initial=1.0), "initial"),
        (lambda: np.mean(X, out=np.zeros(())), "out"),
        (lambda: np.exp(X, where=np.ones((2, 2), bool)), "where"),
        (lambda: np.add(X, 1, dtype=np.float32), "dtype"),
        (lambda: np.var(X, correction=1), "correction"),
        (lambda: np.reshape(X, (4,), order="F"), "order"),
        (lambda: np.take(X, [0], mode="wrap"), "mode"),
        (lambda: np.concatenate([X, X], dtype=np.float32), "dtype"),
        (lambda: np.einsum("ij->i", X, dtype=np.float32), "dtype"),
        (lambda: np.max(X, initial=0.0), "initial"),
        (lambda: np.pad(X, 1, stat_length=2), "stat_length"),
    ],
)
def test_an_argument_that_has_no_effect_here_is_refused(call: Any, argument: str) -> None:
    with pytest.raises(
        TypeError, match=rf"np\.\w+ of a tensor: .*'{argument}'; it is called as \w+\("
    ):
        call()


def test_errors_inside_a_function_stay_as_they_are() -> None:
    with pytest.raises(TypeError, match=r"did not contain a loop|returned NotImplemented"):
        X + "text"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: np.pad(X, 1, mode="reflect"), "mode='constant' only, not 'reflect'"),
        (lambda: np.split(V, 2), "axis of length 3 into 2 equal parts"),
        (lambda: np.linalg.svd(np.ones((2, 3)) * X[0, 0]), "takes full_matrices=False"),
        (lambda: np.linalg.norm(X, "max"), "order of a matrix norm is 'fro', 'nuc'.*got 'max'"),
        (lambda: np.linalg.norm(V, "fro"), "'fro' is one of matrices"),
        (lambda: np.cross(X, X), "vectors of 3 numbers, got 2, 2"),
        (lambda: np.average(X, weights=V), r"weights of shape \(3,\) fit neither"),
        (lambda: np.select([X.data > 0], [X, X]), "a choice for each condition"),
        (lambda: np.convolve(X, V), "takes two vectors"),
        (lambda: np.diag(X[None]), "takes a vector or a matrix"),
        (lambda: np.meshgrid(V, V, indexing="yx"), "indexing='xy' or 'ij', got 'yx'"),
        (lambda: np.einsum("ij,jk->ik", X), "names 2 operands, but 1 were given"),
        (lambda: np.einsum("ijk->i", X), "'ijk' of 'ijk->i' does not fit an operand of 2 axes"),
        (lambda: np.einsum("...i->i", X), "'...' in an operand but not in the result"),
        (lambda: dense(X, V), r"w of shape \(num_inputs, num_outputs\), got \(2, 2\) and \(3,\)"),
        (lambda: dense(X, np.ones((3, 2))), r"got \(2, 2\) and \(3, 2\)"),
        (lambda: dense(X, X, V), r"b of shape \(2,\).*got \(3,\)"),
        (lambda: dense(X, X, activation="gelu"), "relu, sigmoid, tanh, got 'gelu'"),
        (lambda: conv2d(X, X), "x must have shape"),
        (lambda: softmax_cross_entropy(X, np.ones(3)), r"labels must be whole numbers of shape"),
        (lambda: softmax_cross_entropy(X, np.ones(2)), r"got float64 of shape \(2,\)"),
        (lambda: sigmoid_cross_entropy(X, np.ones(2)), r"shape of logits, \(2, 2\), got \(2,\)"),
    ],
)
@pytest.mark.host
def test_bad_values_are_errors_that_name_them(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


S = Tensor(np.array(2.0), requires_grad=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: float(S),
        lambda: math.exp(S),
        lambda: math.floor(S),
        lambda: np.float64(S),
        lambda: np.float32(S),
        lambda: np.zeros(2).__setitem__(0, S),
        lambda: np.zeros(2).__setitem__(slice(None), S),
        lambda: np.zeros(2).fill(S),
        lambda: np.fromiter([S], float),
        lambda: np.array([S, S]),
        lambda: np.full(2, S),
        lambda: np.full_like(np.ones(2), S),
        lambda: np.full_like(X, S),
        lambda: np.put(np.ones(2), [0], S),
        lambda: np.random.default_rng(0).normal(S),
        lambda: complex(S),
        lambda: math.fsum([S, S]),
        lambda: math.isclose(S, 2.0),
        lambda: array.array("d", [S]),
        lambda: np.zeros(2, np.float16).__setitem__(0, S),
        lambda: np.zeros(2, complex).__setitem__(0, S),
        lambda: np.zeros(2, [("a", "f8")]).__setitem__(0, (S,)),
        lambda: np.ones(2).__iadd__(S),
    ],
)
def test_where_a_gradient_is_wanted_a_tensor_becomes_no_plain_number_unasked(call: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught, GradientTape():
        call()
    error: BaseException = caught.value
    while "gradient graph" not in str(error):  # NumPy may put its own error before ours
        assert error.__cause__ is not None
        error = error.__cause__


@pytest.mark.parametrize("function", [int, bool, np.sign, np.floor, lambda t: t > 1])
def test_a_step_function_of_a_tensor_loses_no_gradient_and_is_a_number_everywhere(
    function: Any,
) -> None:
    with GradientTape():
        assert float(function(S)) == float(function(2.0))


def test_elsewhere_a_tensor_is_the_number_that_it_holds() -> None:
    assert [float(S), math.exp2(S), float(np.float64(S))] == [2.0, 4.0, 2.0]
    with GradientTape(), no_grad():
        assert float(S) == 2.0


def test_a_block_of_one_s_own_guards_a_loss_that_is_computed_outside_of_all_others() -> None:
    with watched(), pytest.raises(TypeError, match=r"np\.exp\(tensor\) in place of math\.exp"):
        math.exp(S)


def test_an_array_filled_with_a_tensor_is_refused_everywhere() -> None:
    for call in (lambda: np.full(2, S), lambda: np.full_like(X, S)):
        with pytest.raises(TypeError, match="gradient graph"):
            call()


def test_an_array_of_tensors_is_refused_with_the_function_that_makes_one() -> None:
    with pytest.raises(TypeError, match=r"np\.stack"):
        np.array([S, S])


@pytest.mark.parametrize(
    "call",
    [
        lambda: X.astype(np.complex64),
        lambda: X.astype(str),
        lambda: X.astype(object),
        lambda: X * 1j,
        lambda: np.abs(X * (3 + 4j)),
        lambda: np.full((2, 2), 1j) @ X,
    ],
)
@pytest.mark.host
def test_what_is_no_real_number_is_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="a tensor holds real numbers"):
        call()


def test_bounds_with_a_gradient_are_refused() -> None:
    with pytest.raises(TypeError, match=r"np\.minimum\(np\.maximum\(x, low\), high\)"):
        np.clip(X, V[0], 1.0)


@pytest.mark.parametrize("arguments", [(X, X), (X, [0, 1], X, "ij"), (X,)])
def test_einsum_without_subscripts_is_refused(arguments: Any) -> None:
    with pytest.raises(TypeError, match="subscripts as one string"):
        np.einsum(*arguments)


def test_weights_that_sum_to_zero_are_refused_as_by_numpy() -> None:
    with pytest.raises(ZeroDivisionError, match="weights sum to zero"):
        np.average(X, weights=np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3, 1], r"\[0, 3\).*found 3 at position 1"),
        ([0, 2, -1], r"\[0, 3\).*found -1 at position 2"),
    ],
)
@pytest.mark.host
def test_a_label_out_of_range_is_named_with_its_position(labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        softmax_cross_entropy(np.ones((3, 3)), np.array(labels))


@pytest.mark.host
def test_a_label_out_of_range_is_found_in_two_dimensions() -> None:
    with pytest.raises(ValueError, match=r"found 7 at position \(1, 0\)"):
        softmax_cross_entropy(np.ones((2, 2, 3)), np.array([[0, 1], [7, 2]]))
