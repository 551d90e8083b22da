"""Update rules against independent float64 formulas, written one number at a time."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from paceline.nn.optimizers.rules import (
    RULES,
    AdagradHyper,
    AdamHyper,
    AdamWHyper,
    FtrlHyper,
    RMSpropHyper,
    SGDHyper,
)

NUM_STEPS = 5
RATE = 0.05


def gradients(size=7, dtype=np.float64):
    rng = np.random.default_rng(3)
    return [rng.normal(size=size).astype(dtype) for _ in range(NUM_STEPS)]


def start(size=7, dtype=np.float64):
    return np.linspace(-1, 1, size).astype(dtype)


def run(name, hyper, value, gradients):
    """The value after some steps, by the rule under test, which overwrites it."""
    rule, dtype = RULES[name], value.dtype
    slots = [np.full_like(value, initial) for initial in rule.slots(hyper).values()]
    for step, gradient in enumerate(gradients, start=1):
        gradient.setflags(write=False)
        rule.update(value, gradient, slots, RATE, step, hyper)
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
    square = mean = velocity = 0.0
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
    ("sgd", SGDHyper(), sgd),
    ("sgd", SGDHyper(momentum=0.9), sgd),
    ("sgd", SGDHyper(momentum=0.9, nesterov=True), sgd),
    ("adam", AdamHyper(), adam),
    ("adam", AdamHyper(beta_1=0.5, beta_2=0.7, epsilon=0.1), adam),
    ("adamw", AdamWHyper(), adamw),
    ("adamw", AdamWHyper(weight_decay=0.5), adamw),
    ("adagrad", AdagradHyper(), adagrad),
    ("adagrad", AdagradHyper(initial_accumulator_value=0.0, epsilon=1e-3), adagrad),
    ("rmsprop", RMSpropHyper(), rmsprop),
    ("rmsprop", RMSpropHyper(momentum=0.8, rho=0.5), rmsprop),
    ("rmsprop", RMSpropHyper(centered=True, epsilon=0.01), rmsprop),
    ("rmsprop", RMSpropHyper(centered=True, momentum=0.8, epsilon=0.01), rmsprop),
    ("ftrl", FtrlHyper(), ftrl),
    ("ftrl", FtrlHyper(l1_regularization_strength=0.5), ftrl),
    ("ftrl", FtrlHyper(l2_regularization_strength=0.3, l1_regularization_strength=0.1), ftrl),
    ("ftrl", FtrlHyper(l2_shrinkage_regularization_strength=0.3, beta=0.4), ftrl),
    ("ftrl", FtrlHyper(learning_rate_power=-0.3, initial_accumulator_value=0.5), ftrl),
    ("ftrl", FtrlHyper(learning_rate_power=0.0), ftrl),
]
IDS = [f"{name}-{hyper}" for name, hyper, _ in CASES]


@pytest.mark.parametrize(("name", "hyper", "reference"), CASES, ids=IDS)
def test_a_rule_does_what_its_formula_says(name, hyper, reference):
    expected = [
        reference(float(w), [float(g[i]) for g in gradients()], hyper)
        for i, w in enumerate(start())
    ]
    np.testing.assert_allclose(
        run(name, hyper, start(), gradients()), expected, rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(("name", "hyper", "reference"), CASES, ids=IDS)
def test_float32_stays_float32_and_near(name, hyper, reference):
    single = run(name, hyper, start(dtype=np.float32), gradients(dtype=np.float32))
    np.testing.assert_allclose(single, run(name, hyper, start(), gradients()), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "hyper", "reference"), CASES, ids=IDS)
def test_blocks_give_the_same_bits_as_the_whole(name, hyper, reference):
    rule = RULES[name]
    whole, blocks = start(), start()
    starts = list(rule.slots(hyper).values())
    whole_slots, block_slots = ([np.full_like(whole, i) for i in starts] for _ in range(2))
    for step, g in enumerate(gradients(), start=1):
        rule.update(whole, g, whole_slots, RATE, step, hyper)
        for part in (slice(0, 3), slice(3, 7)):
            parts = [slot[part] for slot in block_slots]
            rule.update(blocks[part], g[part], parts, RATE, step, hyper)
    np.testing.assert_array_equal(blocks, whole)


def test_plain_sgd_has_the_bits_of_the_formula_in_float32():
    w, g = start(1000, np.float32), gradients(1000, np.float32)[0]
    expected = w - np.float32(RATE) * g
    RULES["sgd"].update(w, g, (), RATE, 1, SGDHyper())
    np.testing.assert_array_equal(w, expected)


@pytest.mark.parametrize(("name", "hyper", "reference"), CASES, ids=IDS)
def test_a_rate_of_zero_changes_nothing(name, hyper, reference):
    rule, value = RULES[name], start()
    slots = [np.full_like(value, initial) for initial in rule.slots(hyper).values()]
    rule.update(value, gradients()[0], slots, 0.0, 1, hyper)
    np.testing.assert_array_equal(value, start())


def test_ftrl_with_l1_leaves_exact_zeros():
    value = run("ftrl", FtrlHyper(l1_regularization_strength=3.0), start(), gradients())
    assert (value == 0).any()


def test_adam_moves_by_the_rate_in_its_first_step():
    value = np.zeros(3)
    slots = (np.zeros(3), np.zeros(3))
    RULES["adam"].update(value, np.array([1e-3, -5.0, 40.0]), slots, 0.1, 1, AdamHyper(epsilon=0.0))
    np.testing.assert_allclose(value, [-0.1, 0.1, -0.1], rtol=1e-12)


@pytest.mark.parametrize(
    ("hyper", "slots"),
    [
        (SGDHyper(), {}),
        (SGDHyper(momentum=0.5), {"momentum": 0.0}),
        (AdamHyper(), {"m": 0.0, "v": 0.0}),
        (AdamWHyper(), {"m": 0.0, "v": 0.0}),
        (AdagradHyper(), {"accumulator": 0.1}),
        (RMSpropHyper(), {"rms": 0.0}),
        (
            RMSpropHyper(centered=True, momentum=0.1),
            {"rms": 0.0, "average_gradient": 0.0, "momentum": 0.0},
        ),
        (FtrlHyper(), {"accumulator": 0.1, "linear": 0.0}),
    ],
)
def test_a_rule_keeps_only_the_slots_it_needs(hyper, slots):
    (rule,) = (rule for rule in RULES.values() if rule.hyper is type(hyper))
    assert dict(rule.slots(hyper)) == slots


def test_hyper_parameters_travel_as_plain_numbers():
    for rule in RULES.values():
        hyper = rule.hyper()
        assert rule.hyper(**dataclasses.asdict(hyper)) == hyper


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGDHyper(momentum=1.5), "momentum must be between 0 and 1, it is 1.5"),
        (lambda: AdamHyper(beta_1=1.0), "beta_1 must be at least 0 and below 1"),
        (lambda: AdamWHyper(beta_2=-0.1), "beta_2 must be at least 0"),
        (lambda: RMSpropHyper(rho=2.0), "rho must be"),
        (lambda: AdagradHyper(initial_accumulator_value=-1), "must not be negative, it is -1"),
        (lambda: FtrlHyper(learning_rate_power=0.5), "learning_rate_power must be ≤ 0"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


TORCH = dict(np.load(Path(__file__).parents[1] / "peers" / "torch.npz"))


@pytest.mark.parametrize(
    ("name", "rule", "hyper"),
    [
        ("sgd", "sgd", SGDHyper(momentum=0.9)),
        ("sgd nesterov", "sgd", SGDHyper(momentum=0.9, nesterov=True)),
        ("adam", "adam", AdamHyper(epsilon=1e-30)),
        ("adamw", "adamw", AdamWHyper(epsilon=1e-30, weight_decay=0.1)),
        ("adagrad", "adagrad", AdagradHyper(epsilon=1e-30)),
        ("rmsprop", "rmsprop", RMSpropHyper(epsilon=1e-30)),
    ],
)
def test_a_rule_agrees_with_pytorch_where_epsilon_is_none(name, rule, hyper):
    value = run(rule, hyper, TORCH[f"rule/{name}/x0"].copy(), TORCH[f"rule/{name}/x1"])
    np.testing.assert_allclose(value, TORCH[f"rule/{name}/y"], rtol=1e-10)


@pytest.mark.parametrize(("name", "hyper"), [case[:2] for case in CASES], ids=IDS)
def test_a_rule_says_whether_a_gradient_of_zero_changes_anything(name, hyper):
    rule, value = RULES[name], start()
    slots = [np.full_like(value, initial) for initial in rule.slots(hyper).values()]
    rule.update(value, np.ones_like(value), slots, RATE, 1, hyper)
    before = [array.copy() for array in (value, *slots)]
    rule.update(value, np.zeros_like(value), slots, RATE, 2, hyper)
    same = all(map(np.array_equal, before, (value, *slots)))
    assert same or not rule.keeps_unread(hyper)
    assert rule.keeps_unread(hyper) == (name == "adagrad" or not (slots or hyper != SGDHyper()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdamWHyper(weight_decay=None), "weight_decay must be a finite number, it is None"),
        (lambda: AdamWHyper(weight_decay=-1), "weight_decay must not be negative"),
        (lambda: AdamHyper(epsilon=None), "epsilon must be a finite number"),
        (lambda: AdamHyper(beta_1="0.9"), "beta_1 must be a finite number, it is '0.9'"),
        (lambda: SGDHyper(momentum=np.nan), "momentum must be a finite number"),
        (lambda: RMSpropHyper(rho=None), "rho must be a finite number"),
        (lambda: AdagradHyper(epsilon=[1]), "epsilon must be a finite number"),
        (lambda: FtrlHyper(learning_rate_power=None), "learning_rate_power must be a finite"),
    ],
)
def test_a_hyper_parameter_is_a_number(make, message):
    with pytest.raises(ValueError, match=message):
        make()
