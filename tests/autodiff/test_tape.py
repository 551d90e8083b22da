"""`GradientTape` as TensorFlow's users know it: what it watches, answers, and refuses."""

from __future__ import annotations

import doctest
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import paceline.autodiff as ad
from paceline import Variable
from paceline.autodiff import (
    ForwardAccumulator,
    GradientTape,
    IndexedSlices,
    Tensor,
    custom_gradient,
    no_grad,
    record,
    stop_gradient,
)

from ..devices.strict_cupy import to_device


def leaf(*shape: int, value: float = 1.0, dtype: Any = np.float64) -> Tensor:
    return Tensor(np.full(shape, value, dtype), requires_grad=True)


@pytest.mark.parametrize("documented", [GradientTape, custom_gradient])
def test_the_docstrings_are_true(documented: Any) -> None:
    result = doctest.testmod(sys.modules[documented.__module__])
    assert result.attempted > 0
    assert result.failed == 0


class Pair(NamedTuple):
    first: Any
    rest: Any


def test_the_tape_answers_in_the_structure_of_the_question() -> None:
    x, y, other = leaf(), leaf(value=2.0), leaf()
    with GradientTape(persistent=True) as tape:
        middle = x * y
        loss = middle * middle
    assert tape.gradient(loss, x) == 8
    assert tape.gradient(loss, [y, x]) == [4, 8]
    assert tape.gradient(loss, (x, other)) == (8, None)
    assert tape.gradient(loss, {"y": y, "middle": middle}) == {"y": 4, "middle": 4}
    nested = tape.gradient(loss, Pair(x, [{"y": y}, (other,)]))
    assert nested == Pair(8, [{"y": 4}, (None,)])


def test_several_targets_are_added_up() -> None:
    x, y = leaf(value=3.0), leaf(value=2.0)
    with GradientTape() as tape:
        targets = {"square": x * x, "product": [x * y]}
    assert tape.gradient(targets, [x, y]) == [8, 3]


def test_rows_of_several_targets_are_added_up() -> None:
    table = leaf(3, 2)
    rows = [np.sum(table[np.array([0, 1])]), np.sum(table[np.array([1])] * 2)]
    found = GradientTape().gradient(rows, table)
    assert isinstance(found, IndexedSlices)
    np.testing.assert_array_equal(found.to_dense(), [[1, 1], [3, 3], [0, 0]])
    both = GradientTape().gradient([*rows, np.sum(table)], table)
    np.testing.assert_array_equal(both, [[2, 2], [4, 4], [1, 1]])


@pytest.mark.parametrize("given", [np.array([1.0, 0, -2]), Tensor(np.array([1.0, 0, -2]))])
def test_output_gradients_are_what_backward_begins_with(given: Any) -> None:
    x = leaf(3)
    found = GradientTape().gradient([x * 2, x], x, output_gradients=[given, None])
    np.testing.assert_array_equal(found, [3, 1, -3])
    if isinstance(given, Tensor):
        np.testing.assert_array_equal(given.data, [1, 0, -2])


@pytest.mark.parametrize("records", [False, True])
def test_an_output_gradient_of_another_shape_is_refused(records: bool) -> None:
    x = leaf(3)
    with pytest.raises(ValueError, match=r"\(3,\), got \(2,\)"), GradientTape(records) as tape:
        tape.gradient(x * 2, x, output_gradients=np.ones(2))


def test_what_no_target_depends_on_has_no_gradient_or_zeros() -> None:
    x, other = leaf(), leaf(2)
    tape = GradientTape(persistent=True)
    assert tape.gradient(x * 2, [x, other]) == [2, None]
    assert tape.gradient(Tensor(np.ones(2)), x) is None
    assert tape.gradient(stop_gradient(x), x) is None
    found = tape.gradient(x * 2, [x, other], unconnected_gradients="zero")
    np.testing.assert_array_equal(found[1], [0, 0])
    with pytest.raises(ValueError, match="'none' or 'zero', got 'zeros'"):
        tape.gradient(x * 2, x, unconnected_gradients="zeros")


def test_the_tape_watches_plain_tensors_in_any_structure() -> None:
    x, y = Tensor(np.ones(2)), Tensor(np.ones(2))
    with GradientTape() as tape:
        tape.watch({"a": x, "b": [y]})
        loss = np.sum(x * 3 + y)
    np.testing.assert_array_equal(tape.gradient(loss, [x, y]), [[3, 3], [1, 1]])


@pytest.mark.parametrize(
    "source", [Tensor(np.array([1, 2])), Tensor(np.array([True])), np.ones(2), [np.ones(2)]]
)
def test_the_tape_watches_nothing_that_has_no_gradient(source: Any) -> None:
    with pytest.raises(TypeError, match=r"has no gradient; convert|watches a tensor"):
        GradientTape().watch(source)


def test_the_tape_watches_variables_that_are_trained_and_the_values_of_others() -> None:
    trained, fixed = Variable(3.0), Variable(4.0, trainable=False, name="fixed")
    with GradientTape() as tape:
        tape.watch(trained)
        with pytest.raises(TypeError, match=r"variable 'fixed' is not trainable.*value\(\)"):
            tape.watch(fixed)
        value = fixed.value()
        tape.watch(value)
        loss = trained * value
    assert tape.gradient(loss, [trained, value]) == [4, 3]


def test_watched_variables_are_those_that_were_read() -> None:
    read, rows, unread = Variable(3.0), Variable(np.ones((3, 2), np.float32)), Variable(1.0)
    fixed, watched = Variable(4.0, trainable=False), Variable(5.0)
    unread * 2
    with GradientTape() as tape:
        read * fixed + np.sum(rows[np.array([1])]) + read
        tape.watch(watched)
    assert [v is w for v, w in zip(tape.watched_variables(), (read, rows, watched), strict=True)]
    unread * 2
    assert len(tape.watched_variables()) == 3
    tape.reset()
    assert tape.watched_variables() == ()


def test_a_tape_may_leave_variables_that_are_read_alone() -> None:
    a, b = Variable(3.0), Variable(4.0)
    with GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(a)
        middle, apart = a * b, b * 2
        loss = middle * apart
    assert tape.gradient(loss, [a, b]) == [32, None]
    assert tape.gradient(loss, [middle, apart]) == [8, None]
    assert [v is a for v in tape.watched_variables()] == [True]


def test_a_tape_that_is_not_persistent_answers_once() -> None:
    x = leaf()
    with GradientTape() as tape:
        loss = x * x
    tape.gradient(loss, x)
    for again in (tape.gradient, tape.jacobian):
        with pytest.raises(RuntimeError, match="non-persistent GradientTape can only be used to"):
            again(loss, x)
    tape.reset()
    assert tape.gradient(x * x * x, x) == 3


def test_a_tape_is_not_entered_twice() -> None:
    with GradientTape() as tape, pytest.raises(ValueError, match="Tape is still recording"):
        tape.__enter__()
    with tape:  # but anew
        pass


def test_nothing_is_recorded_while_the_tape_is_stopped() -> None:
    x = leaf(value=3.0)
    with GradientTape(persistent=True) as tape:
        loss = x * x
        with tape.stop_recording():
            first_order = tape.gradient(loss, x)
            constant = x * 2
        loss = loss + constant
    assert not first_order.requires_grad
    assert not constant.requires_grad
    assert tape.gradient(loss, x) == 6
    with pytest.raises(ValueError, match="Tape is not recording"), tape.stop_recording():
        pass


def test_a_tape_refuses_what_another_recorded_while_it_was_stopped() -> None:
    x = leaf(value=3.0)
    with GradientTape() as outer, GradientTape() as tape:
        with tape.stop_recording():
            y = x * x
        loss = y * x
    with pytest.raises(RuntimeError, match="while this tape did not record"):
        tape.gradient(loss, x)
    assert outer.gradient(loss, x) == 27


def test_a_tape_forgets_what_was_before_its_reset() -> None:
    x = leaf(value=3.0)
    with GradientTape() as tape:
        before = x * x
        tape.reset()
    with pytest.raises(RuntimeError, match=r"before its reset\(\)"):
        tape.gradient(before, x)
    tape.reset()
    assert tape.gradient(x * 5, x) == 5


def test_mb_13_the_tape_gives_the_gradient_of_the_sum_of_a_vector_loss() -> None:
    x = leaf(3, value=2.0)
    np.testing.assert_array_equal(GradientTape().gradient(x * x, x), [4, 4, 4])


def test_nested_tapes_give_gradients_of_any_order() -> None:
    x = leaf(value=2.0)
    with GradientTape() as third, GradientTape() as second, GradientTape() as first:
        y = x**5
        slope = first.gradient(y, x)
        curvature = second.gradient(slope, x)
    assert (slope.item(), curvature.item()) == (80, 160)
    assert third.gradient(curvature, x) == 240


def test_a_persistent_tape_differentiates_its_own_gradients() -> None:
    x = leaf(value=3.0)
    with GradientTape(persistent=True) as tape:
        slope = tape.gradient(x**3, x)
    assert slope.item() == 27
    assert tape.gradient(slope, x) == 18


def test_gradients_in_a_block_of_their_own_or_without_recording_have_no_graph() -> None:
    x = leaf(value=3.0)
    with GradientTape() as tape:
        assert not tape.gradient(x**3, x).requires_grad
        loss = x**3
        with no_grad():
            assert not GradientTape().gradient(loss, x).requires_grad
    with GradientTape() as first, GradientTape() as second:
        loss = x**3
    assert first.gradient(loss, x) == second.gradient(loss, x) == 27


def test_a_gradient_penalty_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    w = [Variable(rng.normal(size=shape)) for shape in ((3, 4), (4,), (4, 1))]
    images = Tensor(rng.normal(size=(5, 3)))

    def penalty() -> Any:
        with GradientTape() as tape:
            tape.watch(images)
            scores = ad.dense(ad.dense(images, w[0], w[1], "tanh"), w[2])
        gradient = tape.gradient(scores, images)
        return np.mean((np.linalg.norm(gradient, axis=1) - 1) ** 2)

    with GradientTape() as outer:
        loss = penalty()
    found = outer.gradient(loss, w)
    assert found[1].shape == (4,)
    for variable, gradient in zip(w, found, strict=True):
        value = variable.numpy()
        moved = value.copy()
        moved.reshape(-1)[1] += 1e-6
        variable.assign(moved)
        with GradientTape():
            after = penalty().item()
        variable.assign(value)
        expected = (after - loss.item()) / 1e-6
        np.testing.assert_allclose(gradient.reshape(-1)[1], expected, rtol=1e-4, atol=1e-7)


def test_a_hessian_times_a_vector_needs_no_hessian() -> None:
    x, v = leaf(3, value=2.0), np.array([1.0, 0, -1])
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = np.sum(x) * np.sum(x**3)
        product = np.sum(inner.gradient(y, x) * v)
    hessian = 12 * np.ones((3, 3)) * 2 + np.eye(3) * 6 * 2 * 6
    np.testing.assert_allclose(outer.gradient(product, x), hessian @ v)


def test_rows_of_a_table_have_second_gradients_too() -> None:
    table = Variable(np.arange(6.0).reshape(3, 2))
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = np.sum(table[np.array([1, 1, 2])] ** 3)
        slope = inner.gradient(y, table)
    np.testing.assert_array_equal(slope.data, [[0, 0], [24, 54], [48, 75]])
    second = outer.gradient(slope, table)
    second = second.to_dense() if isinstance(second, IndexedSlices) else second
    np.testing.assert_array_equal(second, [[0, 0], [24, 36], [24, 30]])


def test_a_second_gradient_is_that_of_the_values_that_were_read() -> None:
    v = Variable(3.0, dtype="float64")
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            y = v * v * v
        inner.gradient(y, v)
        v.assign(10.0)
        slope = inner.gradient(y, v)
    assert slope.item() == 27
    assert outer.gradient(slope, v) == 18


def test_an_operation_of_ones_own_has_no_second_gradient_and_says_so() -> None:
    def doubled(x: Tensor) -> Tensor:
        return record(x.data * 2, (x,), lambda g, outs: (g * 2,))

    x = leaf()
    with GradientTape(), pytest.raises(RuntimeError, match="gradient of doubled is not support"):
        GradientTape().gradient(doubled(x), x)
    assert GradientTape().gradient(doubled(x), x) == 2


@pytest.mark.parametrize("array", [np.asarray, to_device])
def test_a_jacobian_has_the_axes_of_target_and_source(array: Any) -> None:
    values = np.arange(1.0, 4)
    x, w = (Tensor(array(a), requires_grad=True) for a in (values, np.ones((2, 3))))
    with GradientTape(persistent=True) as tape:
        y = (w * x) ** 2
    by_w, by_x, none = tape.jacobian(y, [w, x, leaf()])
    assert none is None
    assert type(by_x.data) is type(x.data)
    by_x, by_w = by_x.numpy(), by_w.numpy()
    np.testing.assert_array_equal(by_x, [np.diag(2 * values)] * 2)
    expected = np.einsum("ik,jl,l->ijkl", np.eye(2), np.eye(3), 2 * values**2)
    np.testing.assert_array_equal(by_w, expected)


def test_a_jacobian_of_rows_and_of_nothing() -> None:
    table = leaf(3, value=2.0)
    tape = GradientTape(persistent=True)
    found = tape.jacobian(table[np.array([2, 0])], table)
    np.testing.assert_array_equal(found, [[0, 0, 1], [1, 0, 0]])
    zeros = tape.jacobian(table * 2, leaf(2), unconnected_gradients="zero")
    np.testing.assert_array_equal(zeros, np.zeros((3, 2)))
    assert tape.jacobian(table[:0], table).shape == (0, 3)


def test_a_jacobian_of_a_gradient_is_the_hessian() -> None:
    x = leaf(2, value=2.0)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = np.prod(x) ** 2
        slope = inner.gradient(y, x)
    np.testing.assert_allclose(outer.jacobian(slope, x), [[8, 16], [16, 8]])


def test_a_batch_jacobian_is_that_of_each_example() -> None:
    rng = np.random.default_rng(0)
    x, w = Tensor(rng.normal(size=(4, 3)), requires_grad=True), rng.normal(size=(3, 2))
    with GradientTape(persistent=True) as tape:
        y = np.tanh(x @ w)
    whole = tape.jacobian(y, x)
    expected = np.stack([whole[i, :, i] for i in range(4)])
    np.testing.assert_allclose(tape.batch_jacobian(y, x), expected)
    assert tape.batch_jacobian(y, leaf(4)) is None
    assert tape.batch_jacobian(np.tanh(x[:0]), x[:0]).shape == (0, 3, 3)
    with pytest.raises(ValueError, match="Need first dimension of target shape"):
        tape.batch_jacobian(y, leaf(3))


def test_forward_mode_says_what_to_use() -> None:
    with pytest.raises(NotImplementedError, match="two nested tapes"):
        ForwardAccumulator(leaf(), leaf())


@custom_gradient
def clipped(x: Any, weight: Any = None) -> Any:
    """Whose gradient is cut to [-1, 1]."""
    return x * x, lambda upstream: np.clip(upstream * 2 * x, -1, 1)


def test_a_custom_gradient_is_used_in_any_order() -> None:
    x = Tensor(np.array([0.25, 3.0]), requires_grad=True)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = clipped(x) * 2
        slope = inner.gradient(y, x)
    np.testing.assert_array_equal(slope.data, [1, 1])
    np.testing.assert_array_equal(outer.gradient(slope, x), [4, 0])
    np.testing.assert_array_equal(GradientTape().gradient(clipped(x), x), [0.5, 1])
    assert not GradientTape().gradient(clipped(x), x).requires_grad


def test_a_custom_gradient_of_several_results_and_arguments() -> None:
    @custom_gradient
    def both(x: Any, y: Any) -> Any:
        return (x + y, x * y), lambda a, b: (10 * a + b * y, None)

    x, y = leaf(value=2.0), leaf(value=3.0)
    total, product = both(x, y)
    assert GradientTape().gradient(total * 2 + product, [x, y]) == [23, None]


def test_a_custom_gradient_that_is_wrong_is_refused() -> None:
    v = Variable(2.0, name="hidden")
    x = leaf()
    with pytest.raises(TypeError, match=r"depends on variable 'hidden.*make it an argument"):
        custom_gradient(lambda x: (x * v, lambda g: g))(x)
    with pytest.raises(ValueError, match="each of the 1 arguments, got 2"):
        GradientTape().gradient(custom_gradient(lambda x: (x * 2, lambda g: (g, g)))(x), x)
