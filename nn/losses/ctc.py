"""Connectionist temporal classification: labels of a sequence whose places are not known."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autodiff import Array, Tensor, by_host, record
from ..shapes import as_tensor, check_range, floats, whole_numbers
from .base import ClassOfFunction

_BLANK = 0


@by_host
def ctc(y_true: Any, y_pred: Any) -> Tensor:
    """Minus the logarithm of the probability of all ways to place the labels: Graves et al. (2006).

    At each time step a class is predicted, or class 0, the blank. What remains without repetitions
    and then without blanks is to be the labels.

    Args:
        y_true: (n, most labels) class numbers from 1; zeros behind them fill up shorter rows.
        y_pred: (n, steps, classes) logits.

    Returns:
        (n,), one loss for each sequence.

    Raises:
        ValueError: A shape does not fit, a label is no class, or there are more labels than can be
            placed in so many steps.
    """
    logits = floats(y_pred)
    labels = _checked(as_tensor(y_true).data, logits)
    z = logits.data.astype(np.float64)  # sums of as many logarithms as there are steps
    z = z - z.max(axis=-1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    # The states of a sequence: its labels, with a blank before, between and after them.
    states = np.zeros((len(labels), 2 * labels.shape[1] + 1), np.int64, like=z)
    states[:, 1::2] = labels
    emitted = np.take_along_axis(
        log_p, np.broadcast_to(states[:, None], (*z.shape[:2], states.shape[1])), axis=-1
    )
    forward = _forward(emitted, states)
    ends = _ends(labels, states)
    total = _log_sum(np.where(ends, forward[-1], -np.inf))

    def vjp(g: Array, outs: Any) -> Any:
        # How likely each state is at each step, given that the labels come out.
        after = _backward(emitted, states, ends)
        share = np.exp(np.stack(forward, 1) + np.stack(after, 1) - total[:, None, None])
        of_class = states[:, :, None] == np.arange(z.shape[-1], like=z)
        dz = np.exp(log_p) - share @ of_class.astype(np.float64)
        return ((dz * g[:, None, None]).astype(logits.dtype),)

    return record((-total).astype(logits.dtype), (logits,), vjp)


def _checked(labels: Array, logits: Tensor) -> Array:
    """The labels, as whole numbers."""
    if logits.ndim != 3 or labels.ndim != 2 or len(labels) != len(logits):
        raise ValueError(
            f"ctc: y_pred must be logits of shape (n, steps, classes) and y_true labels of shape "
            f"(n, most labels); they have shapes {logits.shape} and {labels.shape}"
        )
    whole = whole_numbers(labels)
    if whole is None:
        raise ValueError("ctc: labels must be whole numbers, y_true holds others")
    check_range("ctc: labels", whole, logits.shape[-1])
    there = whole != _BLANK
    if (there[:, 1:] & ~there[:, :-1]).any():
        raise ValueError("ctc: zeros may only stand behind the labels of a row, not between them")
    # Between two equal labels there must be a blank.
    repeats = (whole[:, 1:] == whole[:, :-1]) & there[:, 1:]
    needed = there.sum(axis=1) + repeats.sum(axis=1)
    if needed.size and int(needed.max()) > logits.shape[1]:
        raise ValueError(
            f"ctc: the labels of row {int(needed.argmax())} take at least {int(needed.max())} "
            f"time steps, y_pred has {logits.shape[1]}; give more steps or fewer labels"
        )
    return whole


def _may_skip(states: Array) -> Array:
    """Whether a state may follow the one before the last: labels that differ need no blank."""
    skips = np.zeros(states.shape, bool, like=states)
    skips[:, 2:] = (states[:, 2:] != _BLANK) & (states[:, 2:] != states[:, :-2])
    return skips


def _ends(labels: Array, states: Array) -> Array:
    """The states in which a sequence may end: its last label and the blank behind it."""
    last = 2 * (labels != _BLANK).sum(axis=1)[:, None]
    places = np.arange(states.shape[1], like=states)
    return (places == last) | (places == last - 1)


def _forward(emitted: Array, states: Array) -> list[Array]:
    """For each step the log-probability of what came so far, ending in each state."""
    skips = _may_skip(states)
    begin = np.arange(states.shape[1], like=states) < 2
    found = [np.where(begin, emitted[:, 0], -np.inf)]
    for step in range(1, emitted.shape[1]):
        here = found[-1]
        reached = np.logaddexp(here, _shifted(here, 1))
        reached = np.logaddexp(reached, np.where(skips, _shifted(here, 2), -np.inf))
        found.append(reached + emitted[:, step])
    return found


def _backward(emitted: Array, states: Array, ends: Array) -> list[Array]:
    """For each step the log-probability of what is to come, from each state."""
    skips = _may_skip(states)
    found = [np.where(ends, 0.0, -np.inf)]
    for step in range(emitted.shape[1] - 1, 0, -1):
        here = found[-1] + emitted[:, step]
        reached = np.logaddexp(here, _shifted(here, -1))
        found.append(np.logaddexp(reached, _shifted(np.where(skips, here, -np.inf), -2)))
    return found[::-1]


def _shifted(values: Array, by: int) -> Array:
    """The states' values moved `by` places, with probabilities of zero moved in."""
    moved = np.full_like(values, -np.inf)
    if by > 0:
        moved[:, by:] = values[:, :-by]
    else:
        moved[:, :by] = values[:, -by:]
    return moved


def _log_sum(values: Array) -> Array:
    largest = values.max(axis=-1)
    return largest + np.log(np.exp(values - largest[:, None]).sum(axis=-1))


class CTC(ClassOfFunction, of=ctc):
    """See `ctc`."""
