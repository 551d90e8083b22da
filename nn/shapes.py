"""How labels, predictions and weights are brought to one shape, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autodiff import Tensor, lift, operation, traceable


def as_tensor(value: Any) -> Tensor:
    """An array, a tensor or a number as a tensor that has a shape and a dtype."""
    if type(value) is Tensor:
        return value
    return Tensor(value) if isinstance(value, (int, float, np.generic)) else lift(value)


def like_predictions(name: str, y_true: Any, y_pred: Any) -> Any:
    """`y_true` in the shape of `y_pred`, from which it may differ by a last axis of length 1.

    NumPy would broadcast (n,) against (n, 1) to (n, n), a wrong result that looks right.
    """
    given, wanted = y_true.shape, y_pred.shape
    if given == wanted:
        return y_true
    if given in ((*wanted, 1), wanted[:-1] if wanted[-1:] == (1,) else None):
        return np.reshape(y_true, wanted)
    raise ValueError(
        f"{name}: y_true has shape {given} and y_pred {wanted}; they must be equal, "
        f"or differ in a last axis of length 1 only"
    )


@operation
def class_indices(name: str, y_true: Any, y_pred: Any) -> Any:
    """Whole class labels, (...) or (..., 1), in the shape of `y_pred` without its last axis.

    Whether they are in [0, num_classes) is checked where they are used. On a GPU, which is not
    waited for to look at values, -1 stands for what is no whole number: no class has this one.
    """
    shape = y_pred.shape
    wanted = shape[:-1]
    if not isinstance(y_pred, np.ndarray):  # what metrics compute with on the host stays there
        y_true = lift(y_true).data
    if not shape or y_true.shape not in (wanted, (*wanted, 1)):
        raise ValueError(
            f"{name}: y_pred of shape {y_pred.shape} calls for labels of shape {wanted}, "
            f"one class number for each example; y_true has shape {y_true.shape}"
            + (
                " (for one-hot labels use the categorical loss or metric)"
                if y_true.shape == y_pred.shape
                else ""
            )
        )
    labels = y_true if y_true.shape == wanted else np.reshape(y_true, wanted)
    if labels.dtype.kind == "f" and not isinstance(labels, np.ndarray):
        with np.errstate(invalid="ignore"):  # as below
            whole = labels.astype(np.int64)
        return traceable(np.where(whole == labels, whole, np.int64(-1)))
    whole = whole_numbers(labels)
    if whole is None:
        raise ValueError(f"{name}: labels must be whole numbers, y_true holds others")
    return traceable(whole)


def whole_numbers(values: Any) -> Any:
    """An array as integers; None if not all of it are whole numbers."""
    if values.dtype.kind in "iu":
        return values
    with np.errstate(invalid="ignore"):  # "not a number" becomes one that differs from it
        whole = values.astype(np.int64)
    return whole if np.array_equal(whole, values) else None


def check_range(name: str, indices: Any, size: int) -> None:
    """Refuse whole numbers outside [0, size), as `name` reports."""
    if indices.size and not (indices.min() >= 0 and indices.max() < size):
        outside = indices[(indices < 0) | (indices >= size)]
        raise ValueError(
            f"{name} must be in [0, {size}); {outside.size} of {indices.size} are outside, "
            f"the first of them is {int(outside[0])}"
        )


def floats(values: Any) -> Tensor:
    """An array or tensor as a tensor of floats; whole numbers become float32."""
    values = as_tensor(values)
    return values if values.dtype.kind == "f" else values.astype(np.float32)


def matched(name: str, y_true: Any, y_pred: Any) -> tuple[Tensor, Tensor]:
    """Labels in the shape and dtype of the predictions, and these as floats."""
    y_pred = floats(y_pred)
    y_true = like_predictions(name, as_tensor(y_true), y_pred)
    return y_true.astype(y_pred.dtype), y_pred


def over_outputs(values: Any, axis: int = -1) -> Any:
    """The mean over the outputs; of (n,) values each is the only one of its example."""
    return values if values.ndim < 2 else values.mean(axis=axis)


def like_values(name: str, sample_weight: Any, values: Any, argument: str = "sample_weight") -> Any:
    """`sample_weight`, for each example or value or one for all, as it broadcasts to `values`."""
    given, wanted = sample_weight.shape, values.shape
    if len(given) == len(wanted) + 1 and given[-1] == 1:
        given = given[:-1]
    given += (1,) * (len(wanted) - len(given)) if given else ()
    if len(given) > len(wanted) or any(
        g not in (1, w) for g, w in zip(given, wanted, strict=False)
    ):
        raise ValueError(
            f"{name}: {argument} has shape {sample_weight.shape}, there are values of shape "
            f"{wanted}; give one number for each example, of shape {wanted[:1]}"
        )
    return np.reshape(sample_weight, given)
