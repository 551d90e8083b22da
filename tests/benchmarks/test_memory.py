"""benchmarks/memory.py: peaks of examples, beside those with another interpreter."""

from __future__ import annotations

import sys

from .test_step import run


def test_an_example_is_measured_here_and_there() -> None:
    options = ("--rounds", "1", "--jobs", "custom_loop", "--before", sys.executable)
    head, line = run("memory.py", *options)
    assert "now by before" in head
    *_, now, _, before, _, ratio = line.split()
    assert float(now) > 20
    assert abs(float(ratio) - float(now) / float(before)) < 0.1
