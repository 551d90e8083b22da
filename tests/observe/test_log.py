"""Log lines show by default, once, and never against the user's own setting."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from paceline.observe import ensure_handler, forget_logged, log_once, logger

FreshLogging = Callable[[], AbstractContextManager[None]]
Capture = pytest.CaptureFixture[str]


def test_the_logger_is_called_paceline() -> None:
    assert logger() is logging.getLogger("paceline")


def test_lines_of_level_info_appear_once_with_time_and_level(
    capsys: Capture, fresh_logging: FreshLogging
) -> None:
    with fresh_logging():
        ensure_handler()
        ensure_handler()
        logger().info("loss = %.1f", 0.5)
        logger().debug("not shown")
        logging.getLogger("paceline.inputs").warning("below")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO  loss = 0\.5", lines[0])
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING below", lines[1])


def test_threads_that_log_a_line_once_at_the_same_time_log_it_once() -> None:
    """The first is still inside `logging` when the second one comes, and goes on."""
    found, first_logs, second_is_done = [], threading.Event(), threading.Event()

    def note(record: logging.LogRecord) -> bool:
        found.append(record.getMessage())
        first_logs.set()
        return threading.current_thread() is first and second_is_done.wait(60)

    forget_logged()
    logger().addFilter(note)
    try:
        first = threading.Thread(target=log_once, args=(logging.WARNING, "told to %s", "all"))
        first.start()
        assert first_logs.wait(60)
        log_once(logging.WARNING, "told to %s", "all")
        second_is_done.set()
        first.join(60)
        assert found == ["told to all"]
        log_once(logging.WARNING, "told to %s", "others")
        assert found[1:] == ["told to others"]
    finally:
        logger().removeFilter(note)


def test_lines_follow_stderr_when_it_is_replaced(
    capsys: Capture, fresh_logging: FreshLogging, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_logging():
        ensure_handler()
        later = io.StringIO()
        monkeypatch.setattr(sys, "stderr", later)
        logger().info("moved")
    assert "moved" in later.getvalue()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["paceline", None], ids=["our logger", "the root logger"])
def test_a_handler_of_the_users_own_is_respected(
    capsys: Capture, fresh_logging: FreshLogging, name: str | None
) -> None:
    stream = io.StringIO()
    with fresh_logging():
        logging.getLogger(name).addHandler(logging.StreamHandler(stream))
        ensure_handler()
        logger().warning("line")
        assert logger().level == logging.NOTSET
    assert stream.getvalue() == "line\n"
    assert capsys.readouterr().err == ""


def test_a_user_who_sets_up_logging_later_sees_no_line_twice(
    capsys: Capture, fresh_logging: FreshLogging
) -> None:
    stream = io.StringIO()
    with fresh_logging():
        ensure_handler()
        logging.basicConfig(stream=stream, format="%(message)s")
        logger().warning("line")
    assert stream.getvalue() == "line\n"
    assert capsys.readouterr().err == ""


def test_a_level_of_the_users_own_is_respected(
    capsys: Capture, fresh_logging: FreshLogging
) -> None:
    with fresh_logging():
        logger().setLevel(logging.ERROR)
        ensure_handler()
        logger().warning("not wanted")
        logger().error("wanted")
    err = capsys.readouterr().err
    assert "ERROR wanted" in err
    assert "not wanted" not in err


def test_a_process_without_stderr_logs_nothing_and_goes_on(
    fresh_logging: FreshLogging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with fresh_logging():
        ensure_handler()
        logger().info("line")


def test_lines_are_objects_of_json_on_request(capsys: Capture, fresh_logging: FreshLogging) -> None:
    with fresh_logging():
        ensure_handler({"PACELINE_LOG": "json"})
        values = {"loss": float("nan"), "w": np.ones(2), "x": (np.float32(1), None), "y": Path("y")}
        logger().info("loss = %s", 1, extra={"values": values})
        try:
            raise KeyError("boom")
        except KeyError:
            logger().exception("it failed")
    told, failed = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert told["values"] == {"loss": "nan", "w": [1.0, 1.0], "x": [1.0, None], "y": "y"}
    assert (told["level"], told["message"], told["pid"]) == ("INFO", "loss = 1", os.getpid())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", told["time"])
    assert failed["traceback"].endswith("KeyError: 'boom'")


def test_another_form_of_lines_is_refused(fresh_logging: FreshLogging) -> None:
    with fresh_logging(), pytest.raises(ValueError, match="must be text or json, it is 'xml'"):
        ensure_handler({"PACELINE_LOG": "xml"})
