"""Saving in the background: blocked for a copy only, never torn, no error lost, no thread left."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline.checkpoint.writing as save_module
from paceline.checkpoint import (
    CheckpointError,
    Saver,
    keep_last,
    latest_checkpoint,
    list_checkpoints,
    load,
)


class Gate:
    """Holds background writes back until it is opened."""

    def __init__(self) -> None:
        self.write = save_module.write_part
        self.opened = threading.Event()
        self.entered = threading.Event()
        self.error: BaseException | None = None

    def __call__(self, *arguments: Any) -> Any:
        self.entered.set()
        assert self.opened.wait(timeout=60)
        if self.error is not None:
            raise self.error
        return self.write(*arguments)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(save_module, "write_part", gate)
    yield gate
    gate.opened.set()


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, logger="paceline")
    return lambda: [record.getMessage() for record in caplog.records]


def save_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "paceline-save"]


def test_a_save_returns_before_the_write_and_keeps_the_values_of_its_moment(
    tmp_path: Path, gate: Gate
) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Saver(tmp_path) as saver:
        saver.save(1, {"x": x, "transposed": x.T}, state={"position": 3})
        expected = x.copy()
        x += 100
        assert latest_checkpoint(tmp_path) is None
        assert saver.finished() == []
        gate.opened.set()
    checkpoint = load(tmp_path / "model.ckpt-1")
    np.testing.assert_array_equal(checkpoint.read("x"), expected)
    np.testing.assert_array_equal(checkpoint.read("transposed"), expected.T)
    assert checkpoint.state == {"position": 3}


def test_what_is_finished_is_visible_and_told_once(tmp_path: Path, gate: Gate) -> None:
    with Saver(tmp_path) as saver:
        saver.save(1, {"x": np.zeros(3)})
        assert saver.finished() == []
        gate.opened.set()
        saver.wait()
        saver.save(2, {"x": np.zeros(3)})
        saver.wait()
        finished = [(str(tmp_path / f"model.ckpt-{step}"), step) for step in (1, 2)]
        assert saver.finished() == finished
        assert [load(path).step for path, _ in finished] == [1, 2]
        assert saver.finished() == []


def test_the_end_waits_for_the_last_save(tmp_path: Path) -> None:
    with Saver(tmp_path) as saver:
        for step in range(4):
            saver.save(step, {"x": np.full(1000, step)})
    assert load(str(latest_checkpoint(tmp_path))).read("x")[0] == 3
    assert len(list_checkpoints(tmp_path)) == 4
    assert save_threads() == []


def test_many_saves_of_changing_arrays_each_hold_one_moment(tmp_path: Path) -> None:
    arrays = {f"{i}": np.zeros((i + 1) * 1000) for i in range(10)}
    with Saver(tmp_path, keep_last(None)) as saver:
        for step in range(12):
            for array in arrays.values():
                array[:] = step
            saver.save(step, arrays)
    for path, step in list_checkpoints(tmp_path):
        for array in load(path).arrays().values():
            assert set(array.tolist()) == {step}


def test_the_arrays_may_differ_from_save_to_save(tmp_path: Path) -> None:
    saves: list[dict[str, np.ndarray]] = [
        {"a": np.ones(3)},
        {"a": np.ones((100, 7), np.float16), "b": np.array(True)},
        {},
        {"c": np.arange(5, dtype=">i8")},
    ]
    with Saver(tmp_path) as saver:
        for step, arrays in enumerate(saves):
            saver.save(step, arrays)
    for step, arrays in enumerate(saves):
        found = load(tmp_path / f"model.ckpt-{step}").arrays()
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)


def test_a_second_save_waits_for_the_first_and_says_so_once(
    tmp_path: Path,
    gate: Gate,
    messages: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paceline.checkpoint.saver._LONG_WAIT_SECS", 0.01)
    with Saver(tmp_path) as saver:
        saver.save(0, {"x": np.zeros(3)})
        assert gate.entered.wait(timeout=60)
        opener = threading.Timer(0.05, gate.opened.set)
        opener.start()
        saver.save(1, {"x": np.ones(3)})
        opener.join()
        assert saver.finished()[:1] == [(str(tmp_path / "model.ckpt-0"), 0)]
        for step in range(2, 5):
            gate.opened.clear()
            gate.entered.clear()
            opener = threading.Timer(0.01, gate.opened.set)
            opener.start()
            saver.save(step, {"x": np.ones(3)})
            opener.join()
    warnings = [m for m in messages() if "takes longer than the time between two saves" in m]
    assert len(warnings) == 1
    assert "save less often" in warnings[0]
    assert len(list_checkpoints(tmp_path)) == 5


def finish_by(call: str) -> Callable[[Saver], object]:
    if call == "save":
        return lambda saver: saver.save(2, {})
    return lambda saver: getattr(saver, call)()


@pytest.mark.parametrize("call", ["save", "wait", "close", "finished"])
def test_an_error_of_the_background_surfaces_at_the_next_call_with_its_traceback(
    tmp_path: Path, gate: Gate, call: str
) -> None:
    with Saver(tmp_path) as saver:
        gate.error = OSError(28, "No space left on device", "somewhere")
        saver.save(1, {"x": np.zeros(3)})
        gate.opened.set()
        saver_thread = next(iter(save_threads()), None)
        if saver_thread is not None:
            saver_thread.join()
        with pytest.raises(CheckpointError, match=r"the disk is full") as caught:
            finish_by(call)(saver)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)]
        assert "__call__" in names, "the frame where it happened"
        gate.error = None
        if call != "close":  # it is told once, and saving may go on
            saver.save(3, {"x": np.ones(3)})
            saver.wait()
            assert saver.finished() == [(str(tmp_path / "model.ckpt-3"), 3)]


def test_an_error_of_the_last_save_surfaces_at_the_end(tmp_path: Path, gate: Gate) -> None:
    gate.error = RuntimeError("odd")
    with pytest.raises(RuntimeError, match="odd"), Saver(tmp_path) as saver:  # noqa: PT012
        saver.save(1, {})
        gate.opened.set()
    assert save_threads() == []


def test_an_error_of_the_run_is_not_hidden_by_one_of_the_last_save(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.error = RuntimeError("of the save")
    with pytest.raises(ValueError, match="of the run"), Saver(tmp_path) as saver:  # noqa: PT012
        saver.save(1, {})
        gate.opened.set()
        raise ValueError("of the run")
    assert "the last save failed, too: of the save" in caplog.text
    assert save_threads() == []


def test_an_error_of_the_run_waits_for_the_last_save(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of the run"), Saver(tmp_path) as saver:  # noqa: PT012
        saver.save(1, {"x": np.zeros(1000)})
        raise ValueError("of the run")
    assert latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")


def test_an_interrupted_wait_keeps_the_directory_until_the_write_has_ended(
    tmp_path: Path, gate: Gate
) -> None:
    """Else another job would take what is still being written for a left-over."""
    saver = Saver(tmp_path)
    saver.save(1, {"x": np.zeros(3)})
    assert gate.entered.wait(timeout=60)
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        saver.close()
    interrupt.join()
    with pytest.raises(CheckpointError, match="belongs to another job"):
        Saver(tmp_path)
    gate.opened.set()
    saver.close()
    with Saver(tmp_path):
        assert latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"step": -1, "arrays": {}}, ValueError),
        ({"step": 1, "arrays": {"x": [1.0]}}, TypeError),
        ({"step": 1, "arrays": {}, "state": {"x": object()}}, TypeError),
        ({"step": 1, "arrays": {}, "state": {"x": "0" * (1 << 24)}}, ValueError),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    tmp_path: Path, arguments: dict, error: type[Exception]
) -> None:
    with Saver(tmp_path) as saver:
        with pytest.raises(error):
            saver.save(**arguments)
        assert saver.finished() == []
    assert latest_checkpoint(tmp_path) is None


def test_after_the_end_nothing_is_saved(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    saver.close()
    saver.close()
    with pytest.raises(CheckpointError, match=r"closed"):
        saver.save(1, {})


def test_retention_is_the_policy_s(tmp_path: Path) -> None:
    with Saver(tmp_path, keep_last(2)) as saver:
        for step in range(5):
            saver.save(step, {})
    assert [step for _, step in list_checkpoints(tmp_path)] == [3, 4]


def test_an_interpreter_that_exits_without_closing_finishes_the_write(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np; from paceline.checkpoint import Saver\n"
        "Saver(sys.argv[1]).save(1, {'x': np.ones(2_000_000)})"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    assert load(tmp_path / "model.ckpt-1").read("x").sum() == 2_000_000


def test_left_overs_are_removed_at_the_start(
    tmp_path: Path, messages: Callable[[], list[str]]
) -> None:
    (tmp_path / ".paceline-tmp-model.ckpt-3-0123abcd").mkdir()
    with Saver(tmp_path):
        assert os.listdir(tmp_path) == [".paceline-lock"]
    assert any("left over from an interrupted save" in message for message in messages())


def test_a_started_save_keeps_the_values_that_are_copied_before_they_change(
    tmp_path: Path, gate: Gate
) -> None:
    arrays = {f"x{index}": np.full(1000, index, np.float32) for index in range(20)}
    with Saver(tmp_path) as saver:
        copies = saver.start(1, {**arrays, "pair": np.zeros(2)})
        assert copies.keys() == {*arrays, "pair"}
        for index, (name, array) in enumerate(arrays.items()):
            copies[name]()
            array += 100 + index
        copies["x3"]()  # it has been copied: what it is now does not count
        gate.opened.set()
    for index, name in enumerate(arrays):
        assert (load(tmp_path / "model.ckpt-1").read(name) == index).all()
