"""How gradients travel: order, buffers, call-backs, shared and unreached tensors, the tape."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from paceline.autodiff import (
    IndexedSlices,
    Tensor,
    backward,
    conv2d,
    dense,
    leaves,
    no_grad,
    record,
    relu,
    stop_gradient,
)


def leaf(*shape: int, value: float = 1.0, dtype: Any = np.float64) -> Tensor:
    return Tensor(np.full(shape, value, dtype), requires_grad=True)


@pytest.mark.host
def test_call_backs_come_in_the_order_of_completion_while_others_are_to_come() -> None:
    first, second, third = leaf(2, 3), leaf(3, 3), leaf(3, 1)
    buffers = {w: np.full(w.shape, np.nan) for w in (first, second, third)}
    seen: list[tuple[Tensor, list[Tensor]]] = []

    def on_ready(done: Tensor, gradient: Any) -> None:
        assert gradient is buffers[done]
        seen.append((done, [w for w in buffers if np.isnan(buffers[w]).all()]))

    loss = np.sum(np.tanh(np.tanh(np.ones((4, 2)) @ first) @ second) @ third)
    backward(loss, into=buffers, on_ready=on_ready)
    assert [done for done, _ in seen] == [third, second, first]
    assert [len(missing) for _, missing in seen] == [2, 1, 0]


def test_a_leaf_is_reported_once_after_its_last_use() -> None:
    shared, other = leaf(3), leaf(3)
    seen: list[Tensor] = []
    loss = np.sum(shared * (other * (shared + 1)))
    found = backward(loss, on_ready=lambda done, gradient: seen.append(done))
    assert seen in ([other, shared], [shared, other])
    np.testing.assert_array_equal(found[shared], [3, 3, 3])


def test_what_is_reported_is_complete() -> None:
    shared = leaf(3)
    complete: dict[Tensor, Any] = {}
    y = shared * shared
    loss = np.sum(y * shared)
    backward(loss, on_ready=lambda done, gradient: complete.update({done: gradient.copy()}))
    np.testing.assert_array_equal(complete[shared], [3, 3, 3])


def test_branches_of_unequal_length_meet_again() -> None:
    x = leaf(2, value=0.5)
    long = x
    for _ in range(5):
        long = long * 2
    loss = np.sum(long * x + x)
    np.testing.assert_array_equal(backward(loss)[x], 2 * 32 * 0.5 + np.ones(2))


def test_leaves_that_are_never_reached_are_not_reported() -> None:
    reached, unreached = leaf(2), leaf(2)

    def blocked(x: Tensor) -> Tensor:
        return record(x.data, (x,), lambda g, outs: (None,))

    seen: list[Tensor] = []
    loss = np.sum(reached + blocked(unreached * 2))
    found = backward(loss, on_ready=lambda done, gradient: seen.append(done))
    assert seen == list(found) == [reached]
    assert set(leaves(loss)) == {reached, unreached}


def test_a_leaf_read_on_a_dead_branch_too_is_still_reported() -> None:
    x = leaf(2)
    dead = record(x.data, (x * 3,), lambda g, outs: (None,))
    seen: list[Tensor] = []
    backward(np.sum(x + dead), on_ready=lambda done, gradient: seen.append(done))
    assert seen == [x]


def test_the_gradient_of_a_tensor_is_that_of_its_sum() -> None:
    x = leaf(2, 3)
    np.testing.assert_array_equal(backward(x * 2)[x], np.full((2, 3), 2.0))


def test_a_seed_is_the_gradient_to_begin_with() -> None:
    x = leaf(3)
    np.testing.assert_array_equal(backward(x * 2, np.array([1.0, 0, -1]))[x], [2, 0, -2])


def test_a_seed_may_be_a_number_and_must_have_the_shape_of_the_root() -> None:
    x = leaf(3)
    np.testing.assert_array_equal(backward(np.sum(x * 2), 0.5)[x], [1, 1, 1])
    with pytest.raises(ValueError, match=r"shape of its root, \(3,\), got \(2,\)"):
        backward(x * 2, np.ones(2))


@pytest.mark.host
def test_a_leaf_is_its_own_gradient_graph() -> None:
    x = leaf(3)
    buffer = np.zeros(3)
    seen: list[Tensor] = []
    found = backward(x, into={x: buffer}, on_ready=lambda done, gradient: seen.append(done))
    assert found[x] is buffer
    assert seen == [x]
    np.testing.assert_array_equal(buffer, np.ones(3))


def test_backward_can_be_repeated() -> None:
    x = leaf(3, value=2.0)
    loss = np.sum(relu(x) * np.exp(x) / x)
    once, again = backward(loss)[x], backward(loss)[x]
    np.testing.assert_array_equal(once, again)


@pytest.mark.parametrize(
    ("operation", "shapes"),
    [
        (lambda x, w: x @ w, [(4, 3), (3, 2)]),
        (lambda x, w: x @ w, [(2, 4, 3), (3, 2)]),
        (lambda x, w, b: dense(x, w, b, "relu"), [(4, 3), (3, 2), (2,)]),
        (lambda x, w, b: conv2d(x, w, b), [(2, 4, 4, 1), (3, 3, 1, 2), (2,)]),
        (lambda x, b: x + b, [(4, 3), (3,)]),
        (lambda x, b: x - b, [(4, 3), (3,)]),
        (np.sum, [(4, 3)]),
        (np.mean, [(4, 3)]),
    ],
)
@pytest.mark.host
def test_parameter_gradients_are_written_straight_into_their_buffers(
    operation: Any, shapes: list[tuple[int, ...]]
) -> None:
    inputs = [Tensor(np.ones(shape), requires_grad=True) for shape in shapes]
    y = operation(*inputs)
    buffers = [np.zeros_like(x.data) for x in inputs]
    parts = y.vjp(np.ones(y.shape), buffers)
    for part, buffer in list(zip(parts, buffers, strict=True))[len(shapes) > 1 :]:
        assert part is buffer


def test_buffers_are_offered_for_the_first_contribution_only() -> None:
    w, x = leaf(2, 2), np.arange(4.0).reshape(2, 2)
    buffer = np.full_like(w.data, np.nan)
    found = backward(np.sum(x @ w) + np.sum((x + 1) @ w) + np.sum(w @ w), into={w: buffer})
    assert found[w] is buffer
    alone = [backward(np.sum(y))[w] for y in (x @ w, (x + 1) @ w, w @ w)]
    np.testing.assert_allclose(buffer, sum(alone))


@pytest.mark.parametrize("rows_first", [True, False])
def test_rows_and_whole_arrays_add_up_in_the_buffer(rows_first: bool) -> None:
    table = leaf(4, 2)
    parts = [np.sum(table[np.array([1, 1, 3])]), np.sum(table * 2)]
    buffer = np.full_like(table.data, np.nan)
    loss = parts[0] + parts[1] if rows_first else parts[1] + parts[0]
    found = backward(loss, into={table: buffer})
    assert found[table] is buffer
    np.testing.assert_array_equal(buffer, [[2, 2], [4, 4], [2, 2], [3, 3]])


def test_rows_alone_stay_out_of_the_buffer() -> None:
    table = leaf(4, 2)
    buffer = np.full_like(table.data, np.nan)
    found = backward(np.sum(table[np.array([1, 3])]), into={table: buffer})
    assert isinstance(found[table], IndexedSlices)
    assert np.isnan(buffer).all()


def test_gradients_between_root_and_leaves_are_kept_on_request() -> None:
    x = leaf(3)
    middle = x * 2
    loss = np.sum(middle * middle)
    found = backward(loss, keep=[middle, loss])
    np.testing.assert_array_equal(found[middle], [4, 4, 4])
    np.testing.assert_array_equal(found[x], [8, 8, 8])
    assert found[loss] == 1
    assert set(backward(loss)) == {x}


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(lambda x: stop_gradient(x) * 2, id="stop_gradient"),
        pytest.param(lambda x: np.sum(Tensor(x.numpy())), id="values"),
        pytest.param(lambda x: Tensor(np.ones(2)) + 1, id="constants"),
    ],
)
def test_nothing_to_differentiate_is_an_error(loss: Any) -> None:
    with pytest.raises(ValueError, match="depends on no variable"):
        backward(loss(leaf(2)))


def test_stop_gradient_cuts_one_way_only() -> None:
    x = leaf(2, value=3.0)
    np.testing.assert_array_equal(backward(np.sum(x * stop_gradient(x)))[x], [3, 3])


def test_no_grad_remembers_nothing_in_its_thread_and_until_its_end() -> None:
    x = leaf(2)
    with no_grad():
        with no_grad():
            pass
        y = x * 2
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(lambda: x * 2).result()
    assert not y.requires_grad
    assert y.inputs == ()
    assert elsewhere.requires_grad
    assert (x * 2).requires_grad


def test_no_grad_ends_with_an_exception_too() -> None:
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert (leaf(2) * 2).requires_grad


def test_long_chains_need_no_recursion() -> None:
    x = leaf(1)
    y = x
    for _ in range(20_000):
        y = y + 1.0
    np.testing.assert_array_equal(backward(y)[x], [1])


def test_the_graph_goes_away_with_the_last_tensor() -> None:
    x = leaf(3)
    middle = np.exp(x)
    values = weakref.ref(middle.data)
    loss = np.sum(middle * middle)
    del middle
    assert values() is not None
    del loss
    assert values() is None


def test_gradients_have_the_dtype_of_their_leaf() -> None:
    x = leaf(3, dtype=np.float32)
    loss = np.sum(x * np.ones(3)) + np.sum(np.ones((2, 3)) * x)
    assert loss.dtype == np.float64
    assert backward(loss)[x].dtype == np.float32
    assert backward(x * np.ones(3))[x].dtype == np.float32
