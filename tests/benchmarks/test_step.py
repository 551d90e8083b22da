"""benchmarks/step.py and its kin: each variant trains, in turn with the others, and is reported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .loading import BENCHMARKS, load

profile_step, step, turns, workloads = map(load, ("profile_step", "step", "turns", "workloads"))
OURS = ("hand", "parts", "estimator", "fit", "fit-logs", "hand-replicas", "replicas")


def run(script: str, *arguments: str | Path) -> list[str]:
    command = [sys.executable, BENCHMARKS / script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("model", workloads.WORKLOADS)
@pytest.mark.parametrize("way", OURS)
def test_each_way_makes_the_steps_that_are_wanted(way: str, model: str) -> None:
    load(step.WAYS[way].partition(":")[0])  # step.py finds it beside itself; a test does not
    loop = step.make_loop(way, model)
    seconds, cpu_seconds = workloads.measure(loop, 2)
    assert len(seconds) == 2
    assert cpu_seconds > 0


def test_all_variants_of_a_model_appear_also_those_of_another_interpreter() -> None:
    ways = ("parts", "estimator", "torch", "jax")
    lines = run(
        "step.py", "--rounds", "1", "--steps", "2", "--models", "mlp-tiny", "--ways", *ways,
        "--before", sys.executable,
    )  # fmt: skip
    table = lines[lines.index("") + 1 :]
    found = [line[:18].strip() for line in table[1:-1]]
    assert [name for name in found if name not in step.PEERS and "fast" not in name] == [
        *("parts", "before parts", "estimator", "before estimator")
    ]
    assert table[-1].startswith("framework over bare parts: ")
    assert "before" in table[-1]


def test_ratios_are_of_times_of_the_same_round() -> None:
    fast = turns.Times(rounds=[[1.0, 1.0], [10.0, 10.0]])
    slow = turns.Times(rounds=[[2.0, 2.0], [20.0, 20.0]])
    assert slow.ratio_to(fast) == 2
    assert slow.min_ms == 2000


def test_a_variant_that_fails_is_no_hang(capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with pytest.raises(SystemExit, match="ended with status 1"):
        turns.take_turns({"broken": command}, rounds=1, num_steps=1)
    assert "no such model" in capfd.readouterr().err


def test_calls_are_counted_in_the_file_that_makes_them() -> None:
    def one_step() -> int:
        return len(repr(workloads.WORKLOADS["cnn"]))

    def loop(num_steps: int, after_step: Callable[[], object]) -> None:
        for _ in range(num_steps):
            one_step()
            after_step()

    stats = profile_step.profile(loop, num_steps=4)
    files = profile_step.by_file(stats, num_steps=4)
    assert files["benchmarks/test_step.py"].python >= 1
    assert files["benchmarks/test_step.py"].c == 2, "len and repr"
    assert sum(calls.python for calls in files.values()) > 2, "__repr__ of the dataclass too"


def test_the_profile_of_a_step_names_its_files() -> None:
    lines = run("profile_step.py", "--models", "mlp-tiny", "--ways", "estimator", "--steps", "3")
    assert lines[1].startswith("mlp-tiny, estimator: ")
    assert any(line.endswith("training/training.py") for line in lines)


def test_fit_is_measured_beside_the_estimator() -> None:
    lines = run("fit.py", "--rounds", "1", "--steps", "2", "--models", "mlp-tiny")
    found = {line[:18].strip() for line in lines}
    assert {"estimator", "fit", "fit-logs"} <= found
