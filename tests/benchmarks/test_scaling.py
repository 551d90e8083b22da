"""benchmarks/scaling.py: two workers by hand and by the Estimator make their steps."""

from __future__ import annotations

from .test_step import run


def test_each_way_of_talking_is_measured_beside_the_loop_by_hand() -> None:
    lines = run("scaling.py", "--rounds", "1", "--steps", "2", "--options", "usual")
    table = lines[lines.index("") + 2 :]
    ratios = {line[:28].strip(): float(line.split()[-1]) for line in table}
    assert ratios["hand, MPI"] == ratios["hand, alone"] == 1
    assert {"estimator, alone", "estimator, MPI", "estimator, RING"} <= ratios.keys()
