"""Update rules against independent float64 formulas, written one number at a time."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from paceline.nn.optimizers.rules import (
    RULES,
    AdagradRule,
    AdamRule,
    AdamWRule,
    FtrlRule,
    RMSpropRule,
    SGDRule,
)

NUM_STEPS = 5
RATE = 0.05


def gradients(size=7, dtype=np.float64):
    rng = np.random.default_rng(3)
    return [rng.normal(size=size).astype(dtype) for _ in range(NUM_STEPS)]


def start(size=7, dtype=np.float64):
    return np.linspace(-1, 1, size).astype(dtype)


def run(rule, value, gradients):
    """The value after some steps, by the rule under test, which overwrites it."""
    dtype = value.dtype
    slots = [np.full_like(value, initial) for initial in rule.slots().values()]
    for step, gradient in enumerate(gradients, start=1):
        gradient.setflags(write=False)
        rule.update(value, gradient, slots, RATE, step)
    assert value.dtype == dtype
    assert all(slot.dtype == dtype for slot in slots)
    return value


def sgd(w, gs, h):
    velocity = 0.0
    for g in gs:
        velocity = h.momentum * velocity - RATE * g
        w += h.momentum * velocity - RATE * g if h.nesterov else velocity
    return w


def adam(w, gs, h, decay=0.0):
    m = v = 0.0
    for t, g in enumerate(gs, start=1):
        w -= RATE * decay * w
        m = h.beta_1 * m + (1 - h.beta_1) * g
        v = h.beta_2 * v + (1 - h.beta_2) * g * g
        rate = RATE * math.sqrt(1 - h.beta_2**t) / (1 - h.beta_1**t)
        w -= rate * m / (math.sqrt(v) + h.epsilon)
    return w


def adamw(w, gs, h):
    return adam(w, gs, h, h.weight_decay)


def adagrad(w, gs, h):
    total = h.initial_accumulator_value
    for g in gs:
        total += g * g
        w -= RATE * g / math.sqrt(total + h.epsilon)
    return w


def rmsprop(w, gs, h):
    square, mean, velocity = h.initial_accumulator_value, 0.0, 0.0
    for g in gs:
        square = h.rho * square + (1 - h.rho) * g * g
        mean = h.rho * mean + (1 - h.rho) * g
        variance = square - mean * mean if h.centered else square
        velocity = h.momentum * velocity + RATE * g / math.sqrt(variance + h.epsilon)
        w -= velocity
    return w


def ftrl(w, gs, h):
    """Algorithm 1 of McMahan et al. (2013), with TensorFlow's factor of 2 before lambda 2."""
    n, z = h.initial_accumulator_value, 0.0
    p = -h.learning_rate_power
    for g in gs:
        sigma = ((n + g * g) ** p - n**p) / RATE
        z += g + 2 * h.l2_shrinkage_regularization_strength * w - sigma * w
        n += g * g
        lambda_1, lambda_2 = h.l1_regularization_strength, 2 * h.l2_regularization_strength
        if abs(z) <= lambda_1:
            w = 0.0
        else:
            w = -(z - math.copysign(lambda_1, z)) / ((h.beta + n**p) / RATE + lambda_2)
    return w


CASES = [
    (SGDRule(), sgd),
    (SGDRule(momentum=0.9), sgd),
    (SGDRule(momentum=0.9, nesterov=True), sgd),
    (AdamRule(), adam),
    (AdamRule(beta_1=0.5, beta_2=0.7, epsilon=0.1), adam),
    (AdamWRule(), adamw),
    (AdamWRule(weight_decay=0.5), adamw),
    (AdagradRule(), adagrad),
    (AdagradRule(initial_accumulator_value=0.0, epsilon=1e-3), adagrad),
    (RMSpropRule(), rmsprop),
    (RMSpropRule(momentum=0.8, rho=0.5), rmsprop),
    (RMSpropRule(initial_accumulator_value=1.0), rmsprop),
    (RMSpropRule(centered=True, epsilon=0.01), rmsprop),
    (RMSpropRule(centered=True, momentum=0.8, epsilon=0.01), rmsprop),
    (FtrlRule(), ftrl),
    (FtrlRule(l1_regularization_strength=0.5), ftrl),
    (FtrlRule(l2_regularization_strength=0.3, l1_regularization_strength=0.1), ftrl),
    (FtrlRule(l2_shrinkage_regularization_strength=0.3, beta=0.4), ftrl),
    (FtrlRule(learning_rate_power=-0.3, initial_accumulator_value=0.5), ftrl),
    (FtrlRule(learning_rate_power=0.0), ftrl),
]
IDS = [str(rule) for rule, _ in CASES]


@pytest.mark.parametrize(("rule", "reference"), CASES, ids=IDS)
def test_a_rule_does_what_its_formula_says(rule, reference):
    expected = [
        reference(float(w), [float(g[i]) for g in gradients()], rule) for i, w in enumerate(start())
    ]
    np.testing.assert_allclose(run(rule, start(), gradients()), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("rule", "reference"), CASES, ids=IDS)
def test_float32_stays_float32_and_near(rule, reference):
    single = run(rule, start(dtype=np.float32), gradients(dtype=np.float32))
    np.testing.assert_allclose(single, run(rule, start(), gradients()), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("rule", "reference"), CASES, ids=IDS)
def test_blocks_give_the_same_bits_as_the_whole(rule, reference):
    whole, blocks = start(), start()
    starts = list(rule.slots().values())
    whole_slots, block_slots = ([np.full_like(whole, i) for i in starts] for _ in range(2))
    for step, g in enumerate(gradients(), start=1):
        rule.update(whole, g, whole_slots, RATE, step)
        for part in (slice(0, 3), slice(3, 7)):
            parts = [slot[part] for slot in block_slots]
            rule.update(blocks[part], g[part], parts, RATE, step)
    np.testing.assert_array_equal(blocks, whole)


def test_plain_sgd_has_the_bits_of_the_formula_in_float32():
    w, g = start(1000, np.float32), gradients(1000, np.float32)[0]
    expected = w - np.float32(RATE) * g
    SGDRule().update(w, g, (), RATE, 1)
    np.testing.assert_array_equal(w, expected)


@pytest.mark.parametrize(("rule", "reference"), CASES, ids=IDS)
def test_a_rate_of_zero_changes_nothing(rule, reference):
    value = start()
    slots = [np.full_like(value, initial) for initial in rule.slots().values()]
    rule.update(value, gradients()[0], slots, 0.0, 1)
    np.testing.assert_array_equal(value, start())


def test_ftrl_with_l1_leaves_exact_zeros():
    value = run(FtrlRule(l1_regularization_strength=3.0), start(), gradients())
    assert (value == 0).any()


def test_adam_moves_by_the_rate_in_its_first_step():
    value = np.zeros(3)
    slots = (np.zeros(3), np.zeros(3))
    AdamRule(epsilon=0.0).update(value, np.array([1e-3, -5.0, 40.0]), slots, 0.1, 1)
    np.testing.assert_allclose(value, [-0.1, 0.1, -0.1], rtol=1e-12)


@pytest.mark.parametrize(
    ("rule", "slots"),
    [
        (SGDRule(), {}),
        (SGDRule(momentum=0.5), {"momentum": 0.0}),
        (AdamRule(), {"m": 0.0, "v": 0.0}),
        (AdamWRule(), {"m": 0.0, "v": 0.0}),
        (AdagradRule(), {"accumulator": 0.1}),
        (RMSpropRule(), {"rms": 0.0}),
        (RMSpropRule(initial_accumulator_value=1.0), {"rms": 1.0}),
        (
            RMSpropRule(centered=True, momentum=0.1),
            {"rms": 0.0, "average_gradient": 0.0, "momentum": 0.0},
        ),
        (FtrlRule(), {"accumulator": 0.1, "linear": 0.0}),
    ],
)
def test_a_rule_keeps_only_the_slots_it_needs(rule, slots):
    assert dict(rule.slots()) == slots


def test_hyper_parameters_travel_as_plain_numbers():
    for name, kind in RULES.items():
        rule = kind()
        assert rule.name == name
        assert rule.numbers == dataclasses.asdict(rule)
        assert kind(**rule.numbers) == rule


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGDRule(momentum=1.5), "momentum must be between 0 and 1, it is 1.5"),
        (lambda: AdamRule(beta_1=1.0), "beta_1 must be at least 0 and below 1"),
        (lambda: AdamWRule(beta_2=-0.1), "beta_2 must be at least 0"),
        (lambda: RMSpropRule(rho=2.0), "rho must be"),
        (lambda: AdagradRule(initial_accumulator_value=-1), "must not be negative, it is -1"),
        (lambda: FtrlRule(learning_rate_power=0.5), "learning_rate_power must be ≤ 0"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


TORCH = dict(np.load(Path(__file__).parents[1] / "peers" / "torch.npz"))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("sgd", SGDRule(momentum=0.9)),
        ("sgd nesterov", SGDRule(momentum=0.9, nesterov=True)),
        ("adam", AdamRule(epsilon=1e-30)),
        ("adamw", AdamWRule(epsilon=1e-30, weight_decay=0.1)),
        ("adagrad", AdagradRule(epsilon=1e-30)),
        ("rmsprop", RMSpropRule(epsilon=1e-30)),
    ],
)
def test_a_rule_agrees_with_pytorch_where_epsilon_is_none(name, rule):
    value = run(rule, TORCH[f"rule/{name}/x0"].copy(), TORCH[f"rule/{name}/x1"])
    np.testing.assert_allclose(value, TORCH[f"rule/{name}/y"], rtol=1e-10)


@pytest.mark.parametrize("rule", [case[0] for case in CASES], ids=IDS)
def test_a_rule_says_whether_a_gradient_of_zero_changes_anything(rule):
    value = start()
    slots = [np.full_like(value, initial) for initial in rule.slots().values()]
    rule.update(value, np.ones_like(value), slots, RATE, 1)
    before = [array.copy() for array in (value, *slots)]
    rule.update(value, np.zeros_like(value), slots, RATE, 2)
    same = all(map(np.array_equal, before, (value, *slots)))
    assert same or not rule.keeps_unread()
    assert rule.keeps_unread() == (isinstance(rule, AdagradRule) or rule == SGDRule())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdamWRule(weight_decay=None), "weight_decay must be a finite number, it is None"),
        (lambda: AdamWRule(weight_decay=-1), "weight_decay must not be negative"),
        (lambda: AdamRule(epsilon=None), "epsilon must be a finite number"),
        (lambda: AdamRule(beta_1="0.9"), "beta_1 must be a finite number, it is '0.9'"),
        (lambda: SGDRule(momentum=np.nan), "momentum must be a finite number"),
        (lambda: RMSpropRule(rho=None), "rho must be a finite number"),
        (lambda: AdagradRule(epsilon=[1]), "epsilon must be a finite number"),
        (lambda: FtrlRule(learning_rate_power=None), "learning_rate_power must be a finite"),
    ],
)
def test_a_hyper_parameter_is_a_number(make, message):
    with pytest.raises(ValueError, match=message):
        make()
