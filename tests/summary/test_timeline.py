"""OB-06: a timeline of chosen steps in Chrome's trace format."""

import itertools
import json
from functools import partial

import numpy as np
import pytest

import paceline as pl
from paceline.__main__ import main
from paceline.estimator import ProfilerHook
from paceline.observe import PHASES

from .test_in_training import batches, estimator, model_fn

PHASES_OF_A_STEP = {"input", "forward", "backward", "communication", "update"}


def events(path):
    return json.loads(path.read_text())["traceEvents"]


def test_ob_06_the_phases_of_each_replica_follow_each_other_without_gaps(tmp_path):
    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])
    run = estimator(tmp_path, strategy, profile_steps=range(3, 5))
    run.train(lambda: batches(6)().repeat(), steps=6)
    assert [path.name for path in tmp_path.glob("timeline*")] == ["timeline-3.json"]
    found = events(tmp_path / "timeline-3.json")
    for replica in (0, 1):
        spans = [e for e in found if e["ph"] == "X" and e["tid"] == replica]
        assert {e["name"] for e in spans} - {"input"} >= PHASES_OF_A_STEP - {"input"}
        assert {e["name"] for e in spans} <= set(PHASES)
        assert sum(e["name"] == "forward" for e in spans) == 2
        for one, other in itertools.pairwise(spans):
            assert one["ts"] + one["dur"] == pytest.approx(other["ts"], abs=1)
    names = {e["args"]["name"] for e in found if e["ph"] == "M"}
    assert names == {"worker 0", "replica 0", "replica 1"}


def test_ob_06_collectives_of_workers_have_their_names(tmp_path, on_workers):
    def work(strategy, index):
        run = estimator(tmp_path, strategy, profile_steps={2})
        run.train(lambda: batches(6, (2, index))().repeat(), steps=3)

    on_workers(2, 1, work)
    for worker in (0, 1):
        found = events(tmp_path / f"timeline-2-worker-{worker}.json")
        begins = [e for e in found if e["ph"] == "b"]
        ends = {e["id"]: e for e in found if e["ph"] == "e"}
        assert {e["name"] for e in begins} >= {"sums of a step", "gradients, part 0"}
        assert all(ends[e["id"]]["ts"] >= e["ts"] for e in begins)
        assert {e["pid"] for e in found} == {worker}


def test_timelines_of_workers_are_put_together(tmp_path, on_workers, capsys):
    def work(strategy, index):
        run = estimator(tmp_path, strategy, profile_steps={2})
        run.train(lambda: batches(6, (2, index))().repeat(), steps=3)

    on_workers(2, 1, work)
    files = sorted(map(str, tmp_path.glob("timeline-*")))
    both = tmp_path / "both.json"
    assert main(["timeline", *files, "-o", str(both)]) == 0
    assert {e["pid"] for e in events(both)} == {0, 1}
    assert main(["timeline", str(tmp_path / "checkpoint"), "-o", str(both)]) == 2
    assert "checkpoint is no timeline" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hook", "steps"),
    [
        (partial(ProfilerHook, 2), [3, 5, 7]),
        (partial(ProfilerHook, save_secs=1e-9), [2, 3, 4, 5, 6, 7]),
        (partial(ProfilerHook, steps={1, 2, 4, 5}), [2, 4]),
        (partial(ProfilerHook, steps=range(6, 100)), [6]),
    ],
)
def test_b8_a_profiler_hook_looks_at_the_steps_that_are_due_but_not_at_the_first(
    tmp_path, hook, steps
):
    traces = tmp_path / "traces"
    run = estimator(tmp_path / "run")
    run.train(lambda: batches(6)().repeat(), [hook(output_dir=traces)], steps=7)
    assert {path.name for path in traces.iterdir()} == {f"timeline-{step}.json" for step in steps}


@pytest.mark.parametrize(
    "given", [{}, {"save_steps": 1, "save_secs": 1}, {"save_secs": 1, "steps": {1}}]
)
def test_b8_a_profiler_hook_says_what_it_needs(given):
    with pytest.raises(ValueError, match="exactly one of save_steps, save_secs and steps"):
        ProfilerHook(**given)


def test_what_is_looked_at_changes_no_weights(tmp_path):
    for name, steps in (("seen", range(1, 9)), ("unseen", ())):
        run = estimator(tmp_path / name, profile_steps=frozenset(steps), model=model_fn)
        run.train(lambda: batches(6)().repeat(), steps=8)
    seen, unseen = (
        pl.Estimator(model_fn, tmp_path / name).get_variable_value("w")
        for name in ("seen", "unseen")
    )
    assert np.array_equal(seen, unseen)
