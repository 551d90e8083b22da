"""Learning-rate schedules: values worked out by hand."""

from __future__ import annotations

import math

import pytest

from paceline.nn.optimizers import schedules as s

TABLE = [
    (s.Constant(0.1), {0: 0.1, 1000: 0.1}),
    (s.ExponentialDecay(1.0, 10, 0.5), {0: 1.0, 5: math.sqrt(0.5), 10: 0.5, 20: 0.25}),
    (s.ExponentialDecay(1.0, 10, 0.5, staircase=True), {0: 1.0, 9: 1.0, 10: 0.5, 29: 0.25}),
    (s.PiecewiseConstantDecay([2, 4], [1.0, 0.5, 0.1]), {0: 1, 2: 1, 3: 0.5, 4: 0.5, 5: 0.1}),
    (s.PolynomialDecay(1.0, 10, 0.2), {0: 1.0, 5: 0.6, 10: 0.2, 99: 0.2}),
    (s.PolynomialDecay(1.0, 10, 0.0, power=2.0), {0: 1.0, 5: 0.25, 10: 0.0}),
    (s.PolynomialDecay(1.0, 10, 0.0, cycle=True), {0: 1.0, 10: 0.0, 11: 0.45, 15: 0.25, 20: 0.0}),
    (s.CosineDecay(1.0, 10), {0: 1.0, 5: 0.5, 10: 0.0, 11: 0.0}),
    (s.CosineDecay(1.0, 10, alpha=0.2), {0: 1.0, 5: 0.6, 10: 0.2}),
    (
        s.CosineDecay(0.0, 10, warmup_target=1.0, warmup_steps=4),
        {0: 0.0, 2: 0.5, 4: 1.0, 9: 0.5, 14: 0.0},
    ),
    (s.LinearWarmup(0.8, 4), {0: 0.0, 1: 0.2, 4: 0.8, 100: 0.8}),
    (s.LinearWarmup(s.CosineDecay(1.0, 10), 5, 0.5), {0: 0.5, 5: 1.0, 10: 0.5, 15: 0.0}),
]


@pytest.mark.parametrize(("schedule", "expected"), TABLE, ids=[str(row[0]) for row in TABLE])
def test_a_schedule_gives_the_rate_of_each_step(schedule, expected):
    assert {step: schedule(step) for step in expected} == pytest.approx(expected, abs=1e-12)


def test_schedules_are_plain_values():
    schedule = s.LinearWarmup(s.PiecewiseConstantDecay([2], [1.0, 0.5]), 4)
    equal = s.LinearWarmup(s.PiecewiseConstantDecay((2,), (1.0, 0.5)), 4)
    assert schedule == equal
    assert hash(schedule) == hash(equal)
    assert "boundaries=(2,), values=(1.0, 0.5)" in repr(schedule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: s.PiecewiseConstantDecay([1, 2], [1.0, 0.5]), "2 values and 2 boundaries"),
        (lambda: s.PiecewiseConstantDecay([2, 1], [1.0, 0.5, 0.1]), r"must rise.*\(2, 1\)"),
        (lambda: s.ExponentialDecay(1.0, 0, 0.5), "decay_steps must be positive, it is 0"),
        (lambda: s.LinearWarmup(0.1, -1), "warmup_steps must be positive, it is -1"),
        (lambda: s.get(-0.1), "learning_rate must be a finite number ≥ 0"),
        (lambda: s.get(math.nan), "learning_rate must be a finite number ≥ 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_get_wraps_numbers_and_passes_functions():
    assert s.get(0.1) == s.Constant(0.1)
    own = lambda step: 1 / (1 + step)  # noqa: E731
    assert s.get(own) is own
