"""One job a model_dir: the second is told who the first is; the dead do not keep the living out."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint import (
    CheckpointError,
    Saver,
    latest_checkpoint,
    save,
    write_shard,
)

from .writers import Others

HOLD = """
import sys, numpy as np
from paceline.checkpoint import Saver
saver = Saver(sys.argv[1])
saver.save(1, {"x": np.zeros(3)})
saver.wait()
print("held", flush=True)
sys.stdin.read()
saver.close()
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that writes to tmp_path for a run."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate(timeout=60)


@pytest.mark.parametrize("write", [Saver, lambda path: save(path, 2, {})], ids=["run", "save"])
def test_b11_one_manager_refuses_a_second_job_with_its_host_pid_and_time(
    tmp_path: Path, holder: subprocess.Popen, write
) -> None:
    expected = (
        rf"model_dir '{tmp_path}' belongs to another job: pid {holder.pid} on host "
        rf"{socket.gethostname()} has been writing there since 20..-..-..T.*choose another"
    )
    with pytest.raises(CheckpointError, match=expected):
        write(tmp_path)
    assert latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1"), "reading is free"


def test_within_one_process_a_second_job_is_refused_too(tmp_path: Path) -> None:
    with Saver(tmp_path), pytest.raises(CheckpointError, match=f"pid {os.getpid()} on host"):
        Saver(tmp_path)
    with Saver(tmp_path) as saver:
        saver.save(1, {})


def test_a_job_that_ends_lets_the_next_one_in(tmp_path: Path, holder: subprocess.Popen) -> None:
    holder.communicate("", timeout=60)
    with Saver(tmp_path) as saver:
        saver.save(2, {})
    assert (tmp_path / ".paceline-lock").read_bytes() == b""


def test_the_lock_of_a_killed_job_is_taken_over_and_it_says_so(
    tmp_path: Path, holder: subprocess.Popen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="paceline")
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=60)
    assert json.loads((tmp_path / ".paceline-lock").read_bytes())["pid"] == holder.pid
    with Saver(tmp_path) as saver:
        saver.save(2, {"x": np.zeros(3)})
    assert f"took over model_dir '{tmp_path}' from pid {holder.pid} on host" in caplog.text
    assert "died without letting go" in caplog.text


def test_a_child_forked_by_a_job_does_not_keep_its_lock(tmp_path: Path) -> None:
    """As a pool of processes that outlives a killed job would."""
    program = """
import os, signal, sys
from paceline.checkpoint import Saver
saver = Saver(sys.argv[1])
child = os.fork()
if child == 0:
    print("forked", flush=True)
    os.close(1)
    sys.stdin.read()
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "forked\n"
    assert process.wait(timeout=60) == -signal.SIGKILL
    with Saver(tmp_path) as saver:
        saver.save(1, {})
    process.communicate("", timeout=60)


def test_a_child_forked_by_a_job_leaves_its_files_alone(tmp_path: Path) -> None:
    """Also one that comes to the end of the `with` block, with other files open by then."""
    program = """
import os, sys
from paceline.checkpoint import Saver
with Saver(sys.argv[1]) as saver:
    child = os.fork()
    if child == 0:
        files = [open(sys.argv[1] + f"/{i}", "w+") for i in range(9)]
        for file in files:
            file.write("kept")
            file.flush()
    else:
        assert os.waitpid(child, 0)[1] == 0
if child == 0:
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    assert [(tmp_path / f"{i}").read_text() for i in range(9)] == ["kept"] * 9


@pytest.mark.parametrize("content", [b"", b"{", b'{"host": "a", "pi', b"\0\0", b'{"host": []}'])
def test_what_a_killed_holder_left_in_the_lock_file_is_no_obstacle(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / ".paceline-lock").write_bytes(content)
    with Saver(tmp_path) as saver:
        saver.save(1, {})


@pytest.mark.parametrize("content", [b"precious\n", b"\xff", b'{"host": ' + b" " * 5000])
def test_a_lock_file_with_the_content_of_others_is_kept_and_refused(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / ".paceline-lock").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"\.paceline-lock' was not written by paceline"):
        save(tmp_path, 1, {})
    assert (tmp_path / ".paceline-lock").read_bytes() == content


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path, other: path.symlink_to(other), "symbolic link is where paceline keeps"),
        (lambda path, other: os.mkfifo(path), "not a regular file"),
        (lambda path, other: path.mkdir(), "Is a directory"),
    ],
)
def test_a_lock_file_that_is_no_file_is_refused(tmp_path: Path, make: Any, problem: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    model_dir = tmp_path / "model"
    model_dir.mkdir()
    make(model_dir / ".paceline-lock", precious)
    with pytest.raises(CheckpointError, match=problem):
        save(model_dir, 1, {})
    assert precious.read_text() == "kept"


def delete_lock(model_dir: Path) -> None:
    (model_dir / ".paceline-lock").unlink()


@pytest.mark.parametrize("lose", [shutil.rmtree, delete_lock])
def test_a_job_saves_nothing_more_where_its_directory_was_replaced_by_another_jobs(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    model_dir = tmp_path / "model"
    first = Saver(model_dir)
    first.save(1, {"x": np.zeros(3)})
    first.wait()
    lose(model_dir)
    with Saver(model_dir) as second, closing(first):
        second.save(7, {"x": np.ones(3)})
        second.wait()
        with pytest.raises(CheckpointError, match="was deleted or replaced"):
            first.save(300, {"x": np.zeros(3)})
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-7")
    assert not (model_dir / "model.ckpt-300").exists()


def test_what_is_not_committed_when_the_directory_is_lost_is_not_committed_any_more(
    tmp_path: Path,
) -> None:
    def lose_it_meanwhile(draft: str) -> Callable[[], list[str]]:
        report = write_shard(draft, 1, 2, {"y": np.zeros(3)})
        delete_lock(tmp_path)
        return lambda: [report]

    with pytest.raises(CheckpointError, match="was deleted or replaced"), Saver(tmp_path) as saver:
        saver.save(1, {"x": np.zeros(3)}, others=Others(1, lose_it_meanwhile))
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_warned_of_once_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with Saver(tmp_path) as saver:
        for step in range(3):
            saver.save(step, {})
    warnings = [r for r in caplog.records if "has no locks" in r.getMessage()]
    assert len(warnings) == 1


def test_a_refused_job_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with Saver(tmp_path):
        before = os.listdir("/proc/self/fd")
        for _ in range(5):
            with pytest.raises(CheckpointError):
                Saver(tmp_path)
        assert len(os.listdir("/proc/self/fd")) == len(before)
