"""`paceline watch` tells how a run is, from its histories alone."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from paceline.__main__ import main
from paceline.observe import History, Run
from paceline.observe.watch import _waiting, screen, status

from .test_report import a_run, begin, steps, write

Capture = pytest.CaptureFixture[str]


def test_a_run_under_way_shows_its_step_rates_and_time_left(tmp_path: Path) -> None:
    write(tmp_path, worker_0=[begin(last_step=100), steps(10), steps(20, 0.25)])
    found = status(Run.read(str(tmp_path)), time.time())
    assert (found.step, found.last_step, found.loss) == (20, 100, 0.25)
    assert (found.steps_per_sec, found.examples_per_sec) == (10, 320)
    assert found.secs_left == 8
    assert found.line() == "step 20 of 100  loss 0.25  10 step/s  0:00:08 left"


def test_each_task_is_at_work_silent_failed_or_ended(tmp_path: Path) -> None:
    end = {"event": "end", "step": 20, "reason": "r"}
    write(
        tmp_path,
        worker_0=[begin(), steps(20)],
        worker_1=[begin(), {"event": "failure", "step": 10, "error": "E"}],
        worker_2=[begin(), steps(20), end],
        evaluator_0=[{"event": "evaluation", "step": 20, "name": "", "metrics": {"auc": 0.5}}],
    )
    run = Run.read(str(tmp_path))
    states = {task.name: (task.state, task.is_well) for task in status(run, time.time()).tasks}
    assert states == {
        "worker-0": ("at work", True),
        "worker-1": ("failed", False),
        "worker-2": ("ended", True),
        "evaluator-0": ("evaluates", True),
    }
    later = {task.name: task.state for task in status(run, run.last_time + 90).tasks}
    assert later["worker-0"].startswith("silent for 0:01:3")
    assert later["worker-2"] == "ended"


def test_the_screen_shows_who_is_alive_and_what_was_saved_and_evaluated(tmp_path: Path) -> None:
    run = Run.read(str(a_run(tmp_path)))
    console = Console(file=io.StringIO(), width=110)
    console.print(screen(run, run.last_time))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for told in (
        "max_steps was reached",
        "30 of 30 (100%)",
        "step 10, 0:00:0",
        "step 30: auc 0.75",
        "worker-1",
        "failed",
        "forward 75 %",
    ):
        assert told in shown


def test_paceline_watch_follows_a_run_to_its_end(tmp_path: Path, capsys: Capture) -> None:
    def train() -> None:
        history = History(str(tmp_path), "worker-0")
        history.note(**begin(last_step=10))
        history.note(**steps(10))
        history.note("end", step=10, reason="the input ended")

    trainer = threading.Timer(0.2, train)
    trainer.start()
    assert main(["watch", str(tmp_path)]) == 0
    trainer.join()
    assert capsys.readouterr().out.splitlines()[-1].endswith("the input ended")


def test_paceline_watch_ends_with_1_where_the_run_failed(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, worker_0=[begin(), {"event": "failure", "step": 3, "error": "OSError: x"}])
    assert main(["watch", str(tmp_path)]) == 1
    assert "failed: OSError: x" in capsys.readouterr().out


def test_text_of_a_history_moves_no_cursor_and_forges_no_line(tmp_path: Path) -> None:
    evil = "\x1b[2J\nstep 1"
    found = {"event": "evaluation", "step": 1, "name": evil, "metrics": {evil: 1.0, "none": None}}
    write(tmp_path, **{"a\x1b": [begin(), found, {"event": "failure", "step": 1, "error": evil}]})
    run = Run.read(str(tmp_path))
    line = status(run, time.time()).line()
    assert line.isprintable()
    assert r"failed: \x1b[2J\nstep 1" in line
    console = Console(file=io.StringIO(), width=110)
    console.print(screen(run, run.last_time))
    assert isinstance(console.file, io.StringIO)
    assert "\x1b" not in console.file.getvalue()


def test_paceline_watch_says_after_a_while_that_there_is_no_such_directory(tmp_path: Path) -> None:
    missing = str(tmp_path / "typo")
    assert _waiting(missing, 0.5) == f"waiting for a run in {missing}"
    told = f"waiting for a run in {missing}, which does not exist: is the path right?"
    assert _waiting(missing, 5) == told
    assert _waiting(str(tmp_path), 5) == f"waiting for a run in {tmp_path}"


def test_paceline_watch_once_needs_a_run(tmp_path: Path, capsys: Capture) -> None:
    assert main(["watch", "--once", str(tmp_path)]) == 2
    assert "there is no history" in capsys.readouterr().err
