"""Phases of a step: each moment belongs to one."""

from __future__ import annotations

from paceline.observe import phase
from paceline.observe.phases import Stopwatch


def test_es15_one_context_goes_from_phase_to_phase_and_back_to_the_outer_one() -> None:
    stopwatch = Stopwatch()
    stopwatch.look()
    with stopwatch.running(), phase("forward"), phase("communication") as switch:
        switch("backward")
        with phase("update"):
            pass
        switch("communication")
    spans, _ = stopwatch.look_away()
    names = [span.name for span in spans]
    assert names == [
        "other",
        "forward",
        "communication",
        "backward",
        "update",
        "backward",
        "communication",
        "forward",
        "other",
    ]
    assert [span.begin for span in spans[1:]] == [span.end for span in spans[:-1]]


def test_es15_where_nobody_looks_switching_does_nothing() -> None:
    with phase("forward") as switch:
        switch("backward")
