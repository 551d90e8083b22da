"""What a trace notes: the operations of a thread, as they were called."""

import sys
import threading

import numpy as np
import pytest

from paceline import autodiff
from paceline.autodiff import Tensor, no_grad, record, trace

X = Tensor(np.ones((2, 3), np.float32))


@pytest.mark.parametrize("context", [no_grad, lambda: trace()], ids=["no_grad", "grad"])
@pytest.mark.parametrize(
    ("call", "function", "args", "kwargs"),
    [
        (lambda: X + 1, np.add, (X, 1), {}),
        (lambda: 2 - X, np.subtract, (2, X), {}),
        (lambda: np.exp(X), np.exp, (X,), {}),
        (lambda: X.sum(1), np.sum, (X, 1), {"keepdims": False}),
        (lambda: np.argmax(X, axis=1), np.argmax, (X,), {"axis": 1}),
        (lambda: autodiff.leaky_relu(X), autodiff.leaky_relu, (X, 0.2), {}),
        (lambda: autodiff.softmax(x=X, axis=0), autodiff.softmax, (X, 0), {}),
        (lambda: np.sort(X), np.sort, (X, -1), {}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_call_is_noted_once_as_it_was_made(context, call, function, args, kwargs):
    with context(), trace() as calls:
        result = call()
    [noted] = calls
    assert noted.function is function
    assert [a is b or a == b for a, b in zip(noted.args, args, strict=True)] == [True] * len(args)
    assert noted.kwargs == kwargs
    assert noted.result is result


def test_an_operation_of_ones_own_is_noted_as_a_record():
    with trace() as calls:
        result = record(X.data * 2, (X,), lambda g, outs: (g * 2,))
    assert [call.function for call in calls] == [record]
    assert calls[0].result is result


def test_nothing_is_noted_of_other_threads_and_behind_the_block():
    with trace() as calls:
        thread = threading.Thread(target=lambda: np.exp(X))
        thread.start()
        thread.join()
    np.exp(X)
    assert calls == []


def test_what_listened_before_goes_on_listening():
    def listener(frame, event, argument):
        pass

    before = sys.getprofile()
    sys.setprofile(listener)
    try:
        with pytest.raises(ZeroDivisionError), trace():
            _ = 1 / 0
        assert sys.getprofile() is listener
    finally:
        sys.setprofile(before)
