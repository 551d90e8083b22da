"""A function that was called twice, done again operation by operation, and what refuses that."""

import gc
import itertools
import random
import weakref

import numpy as np
import pytest

from paceline import autodiff
from paceline.autodiff import (
    MutableLeaf,
    Program,
    Replay,
    ReplayError,
    Tensor,
    Trace,
    backward,
    effect,
    no_grad,
    operation,
    stop_gradient,
)

RNG = np.random.default_rng(0)
BATCHES = [RNG.normal(size=(4, 3)) for _ in range(3)]
TABLE = RNG.normal(size=(5, 2))


def weights():
    return MutableLeaf(Tensor(np.linspace(-1, 1, 6).reshape(3, 2)).data, True)


def traced(function, *arrays):
    trace = Trace(arrays)
    with trace.following():
        found = function(*trace.inputs)
    trace.outputs = (found,)
    return trace


def replay_of(function):
    return Replay(*[Program(traced(function, batch)) for batch in BATCHES[:2]])


@operation
def drawn(seed, x):
    """Numbers beside x, as a dropout draws them."""
    return np.random.default_rng(seed).normal(size=x.shape)


GENERATOR = np.random.default_rng(1)
FUNCTIONS = {
    "operators": lambda x, w: ((x @ w - 1) * 2.0).sum(),
    "functions by name": lambda x, w: np.mean(np.maximum(x @ w, 0), axis=1, keepdims=True).sum(),
    "shapes": lambda x, w: np.sum(np.reshape(x, (len(x), x.shape[1])).T @ x / x.size),
    "parts": lambda x, w: np.sum(x[1:, 0] * x[:-1, -1]) + np.sum(np.split(x, 2)[1] @ w),
    "lists of tensors": lambda x, w: np.sum(np.concatenate([x @ w, np.ones((4, 1)), x], axis=1)),
    "several results": lambda x, w: np.linalg.eigh(x.T @ x).eigenvalues.sum(),
    "comparisons": lambda x, w: np.sum(np.where(x > 0.5, x, -x) * (x < 1).astype(x.dtype)),
    "truth values": lambda x, w: np.sum(np.where((x > 0) & ~(x > 1) | (x < -2), x, 0)),
    "rows by number": lambda x, w: np.sum(
        np.take(Tensor(TABLE), np.argmax(x, axis=1), axis=0) @ w.data.T
    ),
    "a constant": lambda x, w: np.sum(x @ TABLE[:3]),
    "a function that draws": lambda x, w: np.sum(drawn(7, x) * (x @ w)[:, :1]),
    "no_grad": lambda x, w: np.sum(x @ w * without_gradient(x, w)),
    "what is stopped": lambda x, w: np.sum(stop_gradient(x @ w) * (x @ w)),
    "a result that nobody takes": lambda x, w: (np.exp(x), np.sum(x @ w))[1],
}


def without_gradient(x, w):
    with no_grad():
        return np.tanh(x @ w)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_it_gives_what_a_call_gives_to_the_bit(function):
    w = weights()
    expected = function(Tensor(BATCHES[2]), w)
    (found,) = replay_of(lambda x: function(x, w))([BATCHES[2]])
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    if expected.requires_grad:
        gradients = [Tensor(backward(loss)[w]).numpy() for loss in (found, expected)]
        np.testing.assert_array_equal(*gradients)
    else:
        assert not found.requires_grad


def test_variables_are_read_as_they_are():
    w = weights()
    again = replay_of(lambda x: np.sum(x @ w))
    w.writable()[...] = 1
    (found,) = again([BATCHES[2]])
    assert found.item() == pytest.approx(2 * BATCHES[2].sum())
    backward(found)  # it was computed after the change


def test_only_what_leads_to_the_outputs_is_done_and_what_has_effects():
    seen = []

    @effect
    def note(value):
        seen.append(value.item())

    def function(x):
        np.exp(x)
        note(np.max(x))
        return np.sum(x)

    again = replay_of(function)
    assert len(again.steps) == 3
    again([BATCHES[2]])
    assert seen == [batch.max() for batch in BATCHES]


counts = itertools.count()
REFUSED = {
    "a random number": (lambda x: np.sum(x * random.random()), "takes float 0"),
    "random numbers": (lambda x: np.sum(x * GENERATOR.normal(size=3)), r"an array of shape \(3,\)"),
    "a count": (lambda x: np.sum(x) + next(counts), "takes int"),
    "a branch by a count": (
        lambda x: np.sum(np.exp(x) if next(counts) % 2 else np.tanh(x)),
        "(exp|tanh) is called the one time, and (exp|tanh) the other",
    ),
    "one operation more": (
        lambda x: np.sum(x) if next(counts) % 2 else np.exp(np.sum(x)),
        "more operations",
    ),
    "another argument": (lambda x: np.sum(x, axis=next(counts) % 2), "takes int"),
    "another operand": (lambda x: np.exp((x, x * 2)[next(counts) % 2]), "something else"),
    "float": (lambda x: np.sum(x) * float(np.max(x)), "__float__ is called"),
    "bool": (lambda x: np.sum(x) if x[0, 0] > 0 else np.max(x), "__bool__ is called"),
    "item": (lambda x: np.sum(x) * x[0, 0].item(), "item is called"),
    "numpy": (lambda x: np.sum(x) * x.numpy().max(), "numpy is called"),
    "an array": (lambda x: np.sum(x) * np.asarray(x).max(), "__array__ is called"),
    "printing": (lambda x: (f"{x}", np.sum(x))[1], "__format__ is called"),
    "data": (lambda x: np.sum(x) * x.data.max(), r"`\.data` of a tensor is read"),
    "data of a result": (lambda x: np.sum(x) * np.exp(x).data.max(), r"`\.data`"),
    "positions": (lambda x: np.sum(x[np.nonzero(x > 0)]), "np.nonzero"),
    "a choice by truth values": (lambda x: np.sum(x[x > 0]), "np.getitem by values"),
    "where without choices": (lambda x: np.where(x > 0), "np.where by values"),
    "repeats": (lambda x: np.repeat(x, np.argmax(x, axis=1), axis=0), "np.repeat by values"),
    "a record of one's own": (
        lambda x: autodiff.record(np.exp(x.like()), (x,), lambda g, outs: (g,)),
        "an operation of one's own",
    ),
}


@pytest.mark.parametrize(("function", "message"), REFUSED.values(), ids=REFUSED)
def test_what_no_operation_does_is_refused(function, message):
    with pytest.raises(ReplayError, match=message):
        replay_of(function)


def test_a_refusal_says_where():
    with pytest.raises(ReplayError, match=r"item is called, at .*test_replay\.py:\d+"):
        replay_of(lambda x: x.sum().item())


def test_a_shape_that_depends_on_values_is_refused():
    @operation
    def positive(x):
        return x.data[x.data > 0]

    with pytest.raises(ReplayError, match=r"gives an array of shape \(\d,\)"):
        replay_of(lambda x: np.sum(positive(x)))


def test_a_number_that_an_operation_gives_is_refused():
    @operation
    def largest(x):
        return float(x.data.max())

    with pytest.raises(ReplayError, match="from which anything may follow"):
        replay_of(lambda x: np.sum(x) * largest(x))


def test_what_was_computed_is_let_go_of_when_it_is_a_program():
    arrays = []

    def function(x):
        found = np.exp(x)
        arrays.append(weakref.ref(found.like()))
        return np.sum(found)

    gc.disable()  # no cycle holds them
    try:
        program = Program(traced(function, BATCHES[0]))
        assert arrays[0]() is None
        assert len(program.called) == 2
    finally:
        gc.enable()


def test_tensors_are_like_others_behind_the_block():
    trace = traced(np.exp, BATCHES[0])
    (found,) = trace.outputs
    assert found.data is found.data
    assert not isinstance(found > 1, Tensor)
    assert trace.refusals == []
