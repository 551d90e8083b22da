"""Steps per second from marks."""

from __future__ import annotations

import pytest

from paceline.observe import Rate


@pytest.mark.parametrize(
    ("window_secs", "marks", "expected"),
    [
        (0, [(0, 0.0)], [None]),
        (0, [(0, 0.0), (10, 2.0), (40, 3.0)], [None, 5, 30]),
        (0, [(0, 0.0), (10, 0.0)], [None, None]),
        (0, [(100, 0.0), (110, 2.0)], [None, 5]),
        (0, [(10, 0.0), (20, 1.0), (5, 2.0), (8, 3.0)], [None, 10, None, 3]),
        (0, [(3, 0.0), (3, 2.0)], [None, 0]),
        (2, [(0, 0.0), (1, 1.0), (3, 2.0), (7, 3.0), (15, 4.0)], [None, 1, 1.5, 3, 6]),
        (2, [(0, 0.0), (10, 100.0)], [None, 0.1]),
    ],
)
def test_the_rate_is_counted_over_the_window(
    window_secs: float, marks: list[tuple[int, float]], expected: list[float | None]
) -> None:
    rate = Rate(window_secs)
    assert [rate.update(step, now) for step, now in marks] == expected


def test_a_negative_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window_secs must be at least 0; got -1"):
        Rate(-1)
