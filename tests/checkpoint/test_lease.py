"""D-11: what somebody reads is not deleted; the dead read nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import (
    CheckpointError,
    Saver,
    keep_last,
    latest_checkpoint,
    lease,
    list_checkpoints,
    load,
    save,
)


def start(model_dir: Path) -> None:
    """What a job does first."""
    with Saver(model_dir):
        pass


READ = """
import sys
from paceline.checkpoint import lease
with lease(sys.argv[1]):
    print("reading", flush=True)
    sys.stdin.read()
"""


def steps(model_dir: Path) -> list[int]:
    return [step for _, step in list_checkpoints(model_dir)]


@pytest.fixture
def reader(tmp_path: Path):
    """Another process that reads step 1."""
    path = save(tmp_path, 1, {"x": np.ones(3)})
    command = [sys.executable, "-c", READ, path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "reading\n"
    yield process
    process.kill()
    process.communicate(timeout=60)


def test_what_another_process_reads_stays_until_it_has_read(
    tmp_path: Path, reader: subprocess.Popen
) -> None:
    for step in (2, 3):
        save(tmp_path, step, {}, keep_max=1)
    assert steps(tmp_path) == [1, 3]
    reader.communicate("", timeout=60)
    save(tmp_path, 4, {}, keep_max=1)
    assert steps(tmp_path) == [4]


def test_the_lease_of_a_killed_reader_is_over(tmp_path: Path, reader: subprocess.Popen) -> None:
    save(tmp_path, 2, {}, keep_max=1)
    assert steps(tmp_path) == [1, 2]
    reader.send_signal(signal.SIGKILL)
    reader.wait(timeout=60)
    save(tmp_path, 3, {}, keep_max=1)
    assert steps(tmp_path) == [3]


def test_several_read_and_the_last_one_frees_it(tmp_path: Path) -> None:
    path = save(tmp_path, 1, {})
    with lease(path) as one, lease(path) as other:
        assert one == other == path
        save(tmp_path, 2, {}, keep_max=1)
        assert steps(tmp_path) == [1, 2]
    with lease(path):
        save(tmp_path, 3, {}, keep_max=1)
        assert steps(tmp_path) == [1, 3]
    save(tmp_path, 4, {}, keep_max=1)
    assert steps(tmp_path) == [4]


def test_the_state_file_does_not_list_what_only_a_reader_keeps(tmp_path: Path) -> None:
    with lease(save(tmp_path, 1, {})):
        save(tmp_path, 2, {}, keep_max=1)
        assert "model.ckpt-1" not in (tmp_path / "checkpoint").read_text()


def test_a_checkpoint_replaced_while_it_is_read_is_removed_afterwards(tmp_path: Path) -> None:
    path = save(tmp_path, 1, {"x": np.zeros(3)})
    with lease(path):
        save(tmp_path, 1, {"x": np.ones(3)})
        assert load(path).read("x").tolist() == [1, 1, 1]
        start(tmp_path)
        assert len(list(tmp_path.glob(".paceline-tmp-*"))) == 1
    start(tmp_path)
    assert list(tmp_path.glob(".paceline-tmp-*")) == []


def test_who_reads_a_checkpoint_that_is_saved_anew_is_told_so(tmp_path: Path) -> None:
    """It is not damaged."""
    with lease(save(tmp_path, 1, {"x": np.zeros(3)})) as path:
        reader = load(path)
        save(tmp_path, 1, {"x": np.ones(3)})
        with pytest.raises(CheckpointError, match="saved anew while it was read: load it again"):
            reader.read("x")


@pytest.mark.parametrize("name", ["model.ckpt-2", "absent/model.ckpt-1", ""])
def test_there_is_no_lease_of_what_is_not_there(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1, {})
    with pytest.raises(CheckpointError, match="checkpoint"), lease(tmp_path / name):
        pass


def test_there_is_no_lease_of_what_is_being_deleted(tmp_path: Path) -> None:
    path = Path(save(tmp_path, 1, {}))
    with (path / "manifest.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="is being deleted"), lease(path):
            pass


def test_without_locks_reading_and_deleting_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with lease(save(tmp_path, 1, {})):
        save(tmp_path, 2, {}, keep_max=1)
    assert steps(tmp_path) == [2]


def test_leases_leave_no_descriptor_open(tmp_path: Path) -> None:
    path = save(tmp_path, 1, {})
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with lease(path):
            pass
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_d_11_a_reader_beside_a_fast_saver_never_meets_half_a_checkpoint(tmp_path: Path) -> None:
    """It either gets a lease and reads all, or is told that it came too late."""
    stop, problems, num_read = threading.Event(), [], 0

    def read() -> None:
        nonlocal num_read
        while not stop.is_set():
            path = latest_checkpoint(tmp_path)
            try:
                with lease(str(path)):
                    values = load(str(path)).arrays()
            except CheckpointError as error:
                if "is no checkpoint" not in str(error) and "being deleted" not in str(error):
                    problems.append(error)
                continue
            if len({int(value[0]) for value in values.values()}) != 1:
                problems.append(values)
            num_read += 1

    save(tmp_path, 0, {f"{i}": np.full(1000, 0) for i in range(5)}, keep_max=1)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        with Saver(tmp_path, keep_last(1)) as saver:
            for step in range(1, 60):
                saver.save(step, {f"{i}": np.full(1000, step) for i in range(5)})
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert problems == []
    assert num_read > 0
