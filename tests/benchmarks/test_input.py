"""benchmarks/input.py: every variant hands out every example once, and the reports appear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .loading import load

benchmark = load("input")


def test_all_variants_hand_out_the_same_images() -> None:
    data = benchmark.Data(130)
    variants = benchmark.all_variants(data)
    assert {"gather", "take", "batches", "scaled", "per element", "threads"} <= variants.keys()
    total = data.floats.sum(dtype=np.float64)
    for name, variant in variants.items():
        sums = [np.asarray(images).sum(dtype=np.float64) for images, _ in variant()]
        is_scaled = name == "scaled" or name in benchmark.PER_ELEMENT
        assert np.isclose(sum(sums), total / 255 if is_scaled else total), name
        assert len(sums) == 3


def test_the_reports_appear(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    benchmark.report_speeds({"gather": 2e6, "batches": 1e6, "loader": 5e5})
    benchmark.report_state(10**6)
    benchmark.report_prefetch(step_secs=0.001, num_steps=5)
    benchmark.report_depths(step_secs=0.0001, num_steps=40)
    benchmark.report_memory_map(tmp_path, 10**6)
    output = capsys.readouterr().out
    for text in ("0.50", "2.00", "1,000,000 shuffled elements", "stall", "of best", "of its own"):
        assert text in output
    assert list(tmp_path.iterdir()) == []
