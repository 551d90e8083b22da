"""What optimizers take beside their numbers, and what can be read and assigned of them."""

import pickle

import numpy as np
import pytest

from paceline.nn import optimizers
from paceline.nn.optimizers import schedules
from paceline.strategies import Variable, VariableStore

RATE = 0.5


def variables():
    return [Variable(np.ones(2), name="dense/kernel"), Variable(np.ones(2), name="dense/bias")]


def apply(optimizer, *vs, gradient=0.0):
    optimizer.apply_gradients([(np.full(v.shape, gradient), v) for v in vs])


@pytest.mark.parametrize("by", ["list", "names"])
@pytest.mark.parametrize("make", [optimizers.SGD, optimizers.AdamW], ids=["sgd", "adamw"])
def test_weights_decay_in_all_but_those_that_are_excluded(by, make):
    kernel, bias = variables()
    optimizer = make(RATE, weight_decay=0.1)
    if by == "list":
        optimizer.exclude_from_weight_decay(var_list=[bias])
    else:
        optimizer.exclude_from_weight_decay(var_names=["bias$"])
    apply(optimizer, kernel, bias)
    np.testing.assert_allclose(kernel.numpy(), 0.95)
    np.testing.assert_array_equal(bias.numpy(), 1.0)


def test_a_learning_rate_is_read_as_a_number_and_assigned():
    (kernel, _), optimizer = variables(), optimizers.SGD(RATE)
    assert optimizer.learning_rate == optimizer.lr == RATE
    assert optimizer.learning_rate.numpy() == np.float32(RATE)
    assert f"{optimizer.learning_rate:.2f}" == "0.50"
    for rate, assign in {
        0.25: lambda: setattr(optimizer, "learning_rate", 0.25),
        0.125: lambda: setattr(optimizer, "lr", 0.125),
        0.0625: lambda: optimizer.learning_rate.assign(0.0625),
    }.items():
        assign()
        assert optimizer.learning_rate == rate
        before = kernel.numpy()
        apply(optimizer, kernel, gradient=1.0)
        np.testing.assert_array_equal(kernel.numpy(), before - rate)


def test_a_number_is_not_assigned_over_a_schedule_but_a_schedule_is():
    optimizer = optimizers.SGD(schedules.ExponentialDecay(1.0, 1, 0.5))
    (kernel, _) = variables()
    apply(optimizer, kernel)
    assert optimizer.learning_rate == 0.5
    with pytest.raises(TypeError, match=r"follows ExponentialDecay.*assign another schedule"):
        optimizer.learning_rate = 0.1
    optimizer.learning_rate = schedules.ExponentialDecay(4.0, 1, 0.5)
    assert optimizer.learning_rate == 2.0


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_a_rate_that_is_none_is_not_assigned(value):
    optimizer = optimizers.SGD(RATE)
    with pytest.raises(ValueError, match="learning_rate must be a finite number ≥ 0"):
        optimizer.learning_rate = value
    assert optimizer.learning_rate == RATE


def test_a_rate_of_no_argument_is_asked_in_each_step():
    rates = [0.5]
    optimizer = optimizers.SGD(lambda: rates[-1])
    (kernel, _) = variables()
    apply(optimizer, kernel, gradient=1.0)
    rates.append(0.25)
    apply(optimizer, kernel, gradient=1.0)
    np.testing.assert_array_equal(kernel.numpy(), 0.25)
    assert optimizer.learning_rate == 0.25


def test_an_assigned_rate_holds_where_the_optimizer_is_made_anew_for_each_step():
    store = VariableStore()
    for expected in (0.5, 0.375):
        with store.building():
            (kernel, _), optimizer = variables(), optimizers.SGD(RATE)
            apply(optimizer, kernel, gradient=1.0)
            assert kernel.numpy()[0] == expected
            optimizer.learning_rate = 0.125


def test_mb_18_the_linear_scaling_rule_is_a_helper_and_off_by_default():
    assert optimizers.linearly_scaled(0.1, 512, 256) == 0.2
    schedule = optimizers.linearly_scaled(schedules.ExponentialDecay(1.0, 1, 0.5), 64, 256)
    assert [schedule(step) for step in (0, 1)] == [0.25, 0.125]
    with pytest.raises(ValueError, match="base_batch_size must be positive"):
        optimizers.linearly_scaled(0.1, 512, 0)
    assert optimizers.SGD(schedule).learning_rate == 0.25


@pytest.mark.parametrize(
    "optimizer",
    [
        optimizers.SGD(RATE, momentum=0.5, clipnorm=1.0),
        optimizers.Adam(schedules.CosineDecay(0.1, 10), amsgrad=True, use_ema=True),
        optimizers.Lamb(weight_decay=0.1),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_a_pickled_optimizer_begins_with_the_same_numbers(optimizer):
    twin = pickle.loads(pickle.dumps(optimizer))
    found = []
    for one in optimizer, twin:
        with VariableStore().building():
            (kernel, _) = variables()
            apply(one.named_here(), kernel, gradient=0.3)
            found.append(kernel.numpy())
    np.testing.assert_array_equal(*found)
    assert twin.learning_rate == optimizer.learning_rate


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimizers.SGD(weight_decay=-0.1), "weight_decay must not be negative"),
        (lambda: optimizers.SGD(use_ema=True, ema_momentum=1.5), "ema_momentum must be between"),
        (lambda: optimizers.SGD(ema_overwrite_frequency=0), "ema_overwrite_frequency must be a"),
        (lambda: optimizers.SGD(loss_scale_factor=0), "loss_scale_factor must be positive"),
        (
            lambda: optimizers.SGD(gradient_accumulation_steps=2.5),
            "gradient_accumulation_steps must be a positive integer",
        ),
        (
            lambda: optimizers.Adam(sparse="lazy", gradient_accumulation_steps=2),
            "sparse='lazy' passes over rows that a step did not read",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("argument", "instead"),
    [
        ("lr", "it is called learning_rate"),
        ("decay", "pass learning_rate=schedules.InverseTimeDecay"),
        ("jit_compile", "leave it away"),
    ],
)
@pytest.mark.parametrize("make", [optimizers.SGD, optimizers.RMSprop, optimizers.Adam])
def test_an_argument_of_older_optimizers_is_refused_with_what_to_pass(make, argument, instead):
    with pytest.raises(TypeError, match=f"{make.__name__} has no argument '{argument}'; {instead}"):
        make(**{argument: 0.1})


SMALL = np.float16(2**-14)


def loss_in_float16(w):
    """Its gradient is 2⁻²⁸ for each element: zero in float16."""
    return np.sum(w.astype(np.float16) * SMALL * SMALL).astype(np.float32)


@pytest.mark.parametrize(("factor", "change"), [(None, 0.0), (2.0**14, 2.0**-4)])
def test_mb_19_gradients_that_half_precision_cannot_hold_survive_in_a_scaled_loss(factor, change):
    w = Variable(np.ones(2, np.float32), name="w")
    optimizer = optimizers.SGD(2.0**24, loss_scale_factor=factor)
    optimizer.minimize(loss_in_float16(w), var_list=[w])()
    np.testing.assert_array_equal(w.numpy(), 1 - change)
    optimizer.apply_gradients(optimizer.compute_gradients(loss_in_float16(w), [w]))
    np.testing.assert_array_equal(w.numpy(), 1 - 2 * change)
