"""An update in place changes nothing that somebody keeps, and no gradient in silence."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import GradientTape, MirroredStrategy, Variable
from paceline.autodiff import backward, stop_gradient
from paceline.nn.layers import Dense
from paceline.nn.optimizers import SGD, group
from paceline.strategies import get_replica_context

KEPT = {
    "value()": lambda v: v.value(),
    "read_value()": lambda v: v.read_value(),
    "numpy()": lambda v: v.numpy(),
    "stop_gradient": stop_gradient,
    "+v": lambda v: +v,
    "v[1:]": lambda v: v[1:],
    "v.T": lambda v: v.T,
    "v.reshape(3, 1)": lambda v: v.reshape(3, 1),
    "np.split": lambda v: np.split(v, 3)[2],
    "np.flip": np.flip,
    "np.swapaxes": lambda v: np.swapaxes(v, 0, 0),
    "np.moveaxis": lambda v: np.moveaxis(v, 0, 0),
    "np.expand_dims": lambda v: np.expand_dims(v, 0),
    "np.squeeze": np.squeeze,
    "np.ravel": np.ravel,
    "np.broadcast_to": lambda v: np.broadcast_to(v, (2, 3)),
    "a view of a view": lambda v: v.reshape(3, 1).T,
    "local results": lambda v: v.strategy.experimental_local_results(v)[0],
    "all_reduce": lambda v: get_replica_context().all_reduce("SUM", v),
}


def values(kept: object) -> np.ndarray:
    return kept.numpy() if hasattr(kept, "numpy") else np.asarray(kept)


@pytest.mark.parametrize("keep", KEPT.values(), ids=list(KEPT))
def test_what_was_read_before_an_update_stays_as_it_was(keep):
    v = Variable(np.arange(3.0))
    kept = keep(v)
    before = values(kept).copy()
    for _ in range(2):
        SGD(0.5).apply_gradients([(np.ones(3), v)])
    np.testing.assert_array_equal(values(kept), before)
    np.testing.assert_array_equal(v.numpy(), np.arange(3.0) - 1)


def test_a_slot_that_was_read_stays_as_it_was():
    v, optimizer = Variable(np.ones(2)), SGD(0.5, momentum=0.9)
    optimizer.apply_gradients([(np.ones(2), v)])
    count, velocity = (variable.value() for variable in optimizer.variables)
    array = np.asarray(optimizer.variables[1])
    optimizer.apply_gradients([(np.ones(2), v)])
    assert count.item() == 1
    np.testing.assert_array_equal(velocity.numpy(), [-0.5, -0.5])
    np.testing.assert_array_equal(array, [-0.5, -0.5])


def test_a_persistent_tape_answers_with_the_values_that_its_operations_read():
    v = Variable(10.0)
    with GradientTape(persistent=True) as tape:
        loss = v * v
    for _ in range(3):
        gradient = tape.gradient(loss, v)
        assert gradient == 20
        SGD(1.0).apply_gradients([(gradient, v)])
    assert v.item() == 10 - 3 * 20


@pytest.mark.parametrize("value", [10.0, [10.0, 20.0]], ids=["scalar", "vector"])
def test_a_loss_from_before_an_update_has_no_gradient_any_more(value):
    v = Variable(np.array(value), name="weight")
    loss = np.sum(v * v)
    SGD(1.0).apply_gradients([(backward(loss)[v.tensor()], v)])
    for compute in (lambda: backward(loss), lambda: GradientTape().gradient(loss, v)):
        with pytest.raises(RuntimeError, match=r"variable 'weight' was changed in place after"):
            compute()
    gradient = GradientTape().gradient(np.sum(v * v), v)
    np.testing.assert_array_equal(gradient, -2 * np.array(value))


@pytest.mark.parametrize("num_steps_before", [0, 1])
def test_a_train_op_is_not_called_again_with_the_gradients_of_its_last_call(num_steps_before):
    v, optimizer = Variable(10.0), SGD(0.25)
    for _ in range(num_steps_before):
        optimizer.minimize(v * v)()
    train_op = optimizer.minimize(v * v)
    train_op()
    with pytest.raises(RuntimeError, match="was changed in place after"):
        train_op()
    assert v.item() == 10 * 0.5 ** (num_steps_before + 1)


def test_an_assignment_leaves_the_gradients_of_older_losses_alone():
    v = Variable(10.0)
    loss = v * v
    v.assign(1.0)
    assert GradientTape().gradient(loss, v) == 20


def test_train_ops_of_one_graph_make_their_steps_together_or_not_at_all():
    strategy = MirroredStrategy(["CPU:0"])
    with strategy.scope():
        a, b = Variable(2.0, name="a"), Variable(3.0, name="b")

        def in_turn() -> None:
            loss = a * b
            for variable in (a, b):
                SGD(1.0).minimize(loss, var_list=[variable])()

        def together() -> None:
            loss = a * b
            group(*(SGD(1.0).minimize(loss, var_list=[v]) for v in (a, b)))()

        with pytest.raises(RuntimeError, match=r"variable 'a' was changed.*optimizers\.group"):
            strategy.run(in_turn)
        a.assign(2.0)
        strategy.run(together)
    assert (a.item(), b.item()) == (2 - 3, 3 - 2)


def test_an_update_stays_in_place_where_nobody_keeps_the_old_values():
    v = Variable(np.ones(3))
    array = v.leaf(0).data
    with GradientTape() as tape:
        loss = np.sum(v * v)
    SGD(0.5).apply_gradients([(tape.gradient(loss, v), v)])
    assert v.leaf(0).data is array


def test_a_penalty_in_the_loss_copies_no_weight():
    layer, strategy = Dense(2, kernel_regularizer="l2"), MirroredStrategy(["CPU:0"])
    optimizer = SGD(0.5)

    def step() -> None:
        optimizer.minimize(np.mean(layer(np.ones((4, 3)))) + sum(layer.losses))()

    with strategy.scope():
        strategy.run(step)
        array = layer.weights[0].leaf(0).data
        strategy.run(step)
    assert layer.weights[0].leaf(0).data is array
