"""A bar on a terminal, silence elsewhere, and hardly any cost."""

from __future__ import annotations

import fcntl
import io
import os
import re
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

import pytest

from paceline.observe import Progress, RemoteProgress, ensure_handler, logger, progress
from paceline.observe.progress import VARIABLE, figures

FreshLogging = Callable[[], AbstractContextManager[None]]

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A pseudo-terminal as `sys.stderr` within a `with` block.

    Attributes:
        output: all that was written to it, once the block has ended.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("COLUMNS", raising=False)
        self.output = ""
        self._received = bytearray()
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self._monkeypatch = monkeypatch
        self._reader = threading.Thread(target=self._read)

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 65536):
                self._received += data
        except OSError:  # how Linux says that the other end is closed
            pass

    def __enter__(self) -> Self:
        self._monkeypatch.setattr(sys, "stderr", self.stream)
        self._reader.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._monkeypatch.undo()
        self.stream.close()
        self._reader.join()
        os.close(self._master)
        self.output = self._received.decode()

    @property
    def lines(self) -> list[str]:
        """The output with every redraw on a line of its own, without colours."""
        lines = ESCAPES.sub("", self.output).replace("\r", "\n").splitlines()
        return [line.strip() for line in lines if line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


def test_on_a_terminal_the_bar_shows_count_rate_times_and_values(terminal: Terminal) -> None:
    with terminal, progress(200, "train") as bar:
        bar.update(100, loss=0.5)
        bar.update(200, loss=0.12345)
    last = terminal.lines[-1]
    assert re.match(r"train \S+ 200/200 [\d,]+ step/s  0:00:00 < 0:00:00  loss 0.1235", last)


@pytest.mark.parametrize("width", [50, 60, 80])
def test_in_a_narrow_terminal_the_count_is_whole_and_a_line_is_a_line(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    with terminal, progress(12_000, "train") as bar:
        bar.update(6_000, loss=0.12345, **{"examples/s": 123456.0})
        bar.update(12_000, loss=0.12345, **{"examples/s": 123456.0})
    assert "12000/12000 " in terminal.lines[-1]
    assert max(map(len, terminal.lines)) <= width


def test_without_a_total_the_bar_counts(terminal: Terminal) -> None:
    with terminal, progress(None, "evaluate", unit="batch") as bar:
        bar.update(7)
    assert re.match(r"evaluate \S+ 7/\?\s+0:00:00", terminal.lines[-1])


def test_text_in_brackets_is_shown_as_it_is(terminal: Terminal) -> None:
    with terminal, progress(2, "train [bold]") as bar:
        bar.update(1)
    assert "train [bold] " in terminal.lines[-1]


def test_the_cursor_and_stderr_come_back_also_after_an_error(terminal: Terminal) -> None:
    with terminal:
        with pytest.raises(ZeroDivisionError), progress(2, "train") as bar:
            bar.update(1 // 0)
        assert sys.stderr is terminal.stream
    assert terminal.output.rstrip().endswith("\x1b[?25h")


def test_log_lines_stand_above_the_bar_and_are_whole(
    terminal: Terminal, fresh_logging: FreshLogging
) -> None:
    with terminal, fresh_logging():
        ensure_handler()
        with progress(2, "train") as bar:
            bar.update(1)
            logger().info("saved [step] %d", 7)
        logger().info("later")
    assert [line[8:] for line in terminal.lines if "INFO" in line] == [
        " INFO  saved [step] 7",
        " INFO  later",
    ]
    assert terminal.lines[-2].startswith("train")


def test_standard_output_that_goes_elsewhere_still_goes_there(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal, progress(2, "train"):
        print("result")
    assert capsys.readouterr().out == "result\n"
    assert "result" not in terminal.output


def test_bars_open_at_the_same_time_share_the_terminal(terminal: Terminal) -> None:
    with terminal, progress(2, "train") as outer:
        outer.update(1)
        with progress(3, "evaluate") as inner:
            inner.update(3)
            inner.close()
            inner.close()
        outer.update(2)
    assert any(line.startswith("evaluate") and "3/3" in line for line in terminal.lines)
    assert terminal.lines[-1].startswith("train")
    assert "2/2" in terminal.lines[-1]
    hidden, shown = terminal.output.count("\x1b[?25l"), terminal.output.count("\x1b[?25h")
    assert (hidden, shown) == (1, 1), "there must be one live region"


def test_updates_after_close_draw_nothing(terminal: Terminal) -> None:
    with terminal:
        bar = progress(2, "train")
        bar.close()
        bar.update(1)
    assert terminal.lines
    assert not any("1/2" in line for line in terminal.lines)


def calls_in(bar: Progress, step: int) -> int:
    """How many functions are called in an update."""
    calls = []
    sys.setprofile(lambda frame, event, function: calls.append(event))
    bar.update(step, loss=0.5)
    sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in calls) - 1  # the end of the profile


def test_an_update_between_two_drawings_calls_next_to_nothing(terminal: Terminal) -> None:
    with terminal, progress(None, "train") as bar:
        assert statistics.median(calls_in(bar, step) for step in range(1000)) <= 2


def test_a_bar_is_drawn_at_most_ten_times_a_second(terminal: Terminal) -> None:
    start = time.perf_counter()
    with terminal, progress(None, "train") as bar:
        for step in range(300_000):
            bar.update(step)
        elapsed_secs = time.perf_counter() - start
    num_drawn = sum("train" in line for line in terminal.lines)
    assert 2 <= num_drawn <= 5 + 10 * elapsed_secs


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_elsewhere_nothing_is_printed(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(2, "train") as bar:
        bar.update(1, loss=0.5)
    bar.close()
    assert stream is None or stream.getvalue() == ""


def test_elsewhere_rich_is_not_imported() -> None:
    code = (
        "import sys; from paceline.observe import progress\n"
        "with progress(2, 'train') as bar: bar.update(1)\n"
        "assert 'rich' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("rate", "elapsed_secs", "left", "values", "expected"),
    [
        (None, 0.0, 10, {}, "0:00:00"),
        (2.0, 3.4, 10, {}, "2 step/s  0:00:03 < 0:00:05"),
        (0.0, 3.0, 10, {}, "0:00:03"),
        (12.345, 3.0, None, {"loss": 1 / 3}, "12.3 step/s  0:00:03  loss 0.3333"),
        (2449.6, 3661, 0, {"a": 1, "b": 2e-9}, "2,450 step/s  1:01:01 < 0:00:00  a 1  b 2e-09"),
        (1.0, 90_000, -5, {}, "1 step/s  1 day, 1:00:00 < 0:00:00"),
    ],
)
def test_the_figures_beside_the_bar(
    rate: float | None,
    elapsed_secs: float,
    left: int | None,
    values: dict[str, float],
    expected: str,
) -> None:
    assert figures(rate, "step", elapsed_secs, left, values) == expected


def test_progress_that_is_told_in_lines_is_drawn_by_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with progress(7, "train", environ={VARIABLE: "lines"}) as bar:
        for step in range(1, 8):
            bar.update(step, loss=1 / step)
    lines = told.getvalue().encode().splitlines()
    assert 2 <= len(lines) <= 7  # the first, a few a second, and the last

    remote = RemoteProgress()
    monkeypatch.setenv("TERM", "xterm")
    with Terminal(monkeypatch) as terminal:
        assert all(remote.take(line) for line in lines)
        remote.close()
    assert "7/7" in ESCAPES.sub("", terminal.output)
    assert "loss 0.1429" in ESCAPES.sub("", terminal.output)


@pytest.mark.parametrize(
    "line", [b"", b"12:00:00 INFO  text", b"\x1epaceline-progress {", b"\x1epaceline-progress []"]
)
def test_other_lines_are_no_progress(line: bytes) -> None:
    assert not RemoteProgress().take(line)


def test_the_progress_of_others_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with progress(7, "train", environ={VARIABLE: "lines"}) as bar:
        bar.update(1)
    with Terminal(monkeypatch) as terminal:
        remote = RemoteProgress()
        assert remote.take(told.getvalue().encode().strip(b"\n"), is_shown=False)
        remote.close()
    assert terminal.output == ""
