"""Learning-rate schedules: values worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from paceline.autodiff import Tensor
from paceline.nn import optimizers
from paceline.nn.optimizers import schedules as s
from paceline.strategies import MirroredStrategy, Variable

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


STORED = json.loads(
    (Path(__file__).parents[1] / "peers" / "keras_schedules.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", STORED["cases"], ids=lambda c: f"{c['name']} {c['arguments']}")
def test_a_schedule_gives_keras_rates(case):
    schedule = getattr(s, case["name"])(*case["arguments"], **case["options"])
    rates = {step: schedule(int(step)) for step in case["rates"]}
    assert rates == pytest.approx(case["rates"], rel=1e-6, abs=2e-8)  # in float32, there


def test_each_wave_begins_at_its_own_step():
    """However long: neither a step early nor late by the rounding of a logarithm."""
    for t_mul in (1.0, 2.0, 3.0, 5.0):
        schedule = s.CosineDecayRestarts(1.0, 7, t_mul)
        start, length = 0, 7
        for _ in range(12):
            assert schedule(start) == pytest.approx(1.0, abs=1e-9)
            assert schedule(start + length - 1) < 0.06
            start, length = start + length, int(length * t_mul)


def test_a_schedule_of_ones_own_may_compute_with_tensors():
    class InverseRoot(s.LearningRateSchedule):
        def __init__(self, first):
            self.first = first

        def __call__(self, step):
            return self.first * np.sqrt(Tensor(np.float32(1 / (step + 1))))

    w = Variable(np.zeros(1))
    optimizer = optimizers.SGD(InverseRoot(2.0))
    for _ in range(4):
        optimizer.apply_gradients([(np.ones(1), w)])
    expected = -2 * sum(1 / math.sqrt(step + 1) for step in range(4))
    assert w.numpy()[0] == pytest.approx(expected, rel=1e-6)
    assert optimizer.learning_rate == pytest.approx(2 / math.sqrt(5))
    assert InverseRoot(2.0).get_config() == {"first": 2.0}


@pytest.mark.parametrize("rate", [None, "0.1", True])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(TypeError, match="learning_rate must be a number, a schedule or a function"):
        optimizers.Adam(rate)


@pytest.mark.parametrize("options", [{}, {"skip_gradients_aggregation": True}])
def test_a_variable_without_a_gradient_is_named_once(caplog, options):
    """Where the step reduces gradients the reducer does it: see the strategies' tests."""
    strategy = MirroredStrategy(["CPU:0"])
    name = f"left_alone_{len(options)}"
    with strategy.scope():
        used, unused = Variable(np.ones(2), name="used"), Variable(np.ones(2), name=name)
        optimizer = optimizers.SGD(0.1)
        for _ in range(2):
            step = lambda: optimizer.apply_gradients(  # noqa: E731
                [(np.ones(2), used), (None, unused)], **options
            )
            strategy.run(step) if options else step()
    assert used.numpy().tolist() == [0.8, 0.8]
    assert [r.message for r in caplog.records if name in r.message] == [
        f"No gradient is given for some variables, which stay as they are: {name}."
    ]


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
        (lambda: s.CosineDecayRestarts(1.0, 5, t_mul=0.5), "t_mul must be at least 1, it is 0.5"),
        (lambda: s.InverseTimeDecay(1.0, -1, 0.5), "decay_steps must be positive, it is -1"),
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
