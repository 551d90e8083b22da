"""Saves that are killed, fail, or meet each other: what was committed stays loadable."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import (
    CheckpointError,
    Saver,
    latest_checkpoint,
    list_checkpoints,
    load,
    read_text,
    save,
    write_text,
)
from paceline.checkpoint.access import only_writer
from paceline.checkpoint.local import exchange
from paceline.checkpoint.names import aside_name, temporary_name


def start(model_dir: Path) -> None:
    """What a job does first."""
    with Saver(model_dir):
        pass


# Saves steps (the n-th save has the value n) in children, the n-th of which dies at its n-th file
# operation, until one lives to the end. Prints how many died. "back" goes back to step 1, as a
# person does who edits the state file; where there is one, operations are counted from there.
KILLED_EVERYWHERE = """
import json, os, re, sys
import numpy as np
import paceline.checkpoint.local as files
from paceline.checkpoint import save

root, can_exchange = sys.argv[1], sys.argv[2] == "exchange"
steps, keep_max = json.loads(sys.argv[3]), json.loads(sys.argv[4])
WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "ctypes.dlsym"}
if not can_exchange:
    files.sys = type(sys)("elsewhere")
    files.sys.platform = "elsewhere"

def child(model_dir, fatal):
    count, counts = 0, "back" not in steps
    def watch(event, arguments):
        nonlocal count
        if counts and event in WATCHED:
            count += 1
            if count == fatal:
                os._exit(9)
    sys.addaudithook(watch)
    for value, step in enumerate(steps):
        if step == "back":
            counts = True
            path = os.path.join(model_dir, "checkpoint")
            edited = re.sub("ckpt-[0-9]+", "ckpt-1", open(path).read(), count=1)
            files.LocalFiles().replace(path, edited)
        else:
            save(model_dir, step, {"x": np.full(3, value)}, keep_max=keep_max)
    os._exit(0)

save(os.path.join(root, "warm-up"), 0, {"x": np.zeros(3)})  # imports open files too
fatal = 0
while True:
    fatal += 1
    pid = os.fork()
    if pid == 0:
        child(os.path.join(root, f"run-{fatal}"), fatal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 0:
        break
    assert status == 9, status
print(fatal - 1)
"""

VALUES = {1: [0], 2: [1, 2]}


def killed_everywhere(root: Path, how: str, steps: list[object], keep_max: int | None) -> int:
    """How many died; the n-th of them leaves `run-<n>`."""
    arguments = [str(root), how, json.dumps(steps), json.dumps(keep_max)]
    command = [sys.executable, "-c", KILLED_EVERYWHERE, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.parametrize("how", ["exchange", "two renames"])
def test_a_save_killed_at_any_file_operation_leaves_whole_checkpoints(
    tmp_path: Path, how: str
) -> None:
    """D-11, and the left-overs are gone after the next start."""
    num_killed = killed_everywhere(tmp_path, how, [1, 2, 2], keep_max=1)
    assert num_killed > 40

    reached = 0
    for fatal in range(1, num_killed + 1):
        model_dir = tmp_path / f"run-{fatal}"
        before_clean_up = latest_checkpoint(model_dir)
        start(model_dir)
        assert [name for name in os.listdir(model_dir) if name.startswith(".paceline-tmp")] == []
        latest = latest_checkpoint(model_dir)
        assert how == "two renames" or latest == before_clean_up
        assert latest == max(list_checkpoints(model_dir), default=(None, -1))[0]
        if latest is None:
            assert reached == 0
            continue
        assert load(latest).step >= reached, "a later kill must not lose what an earlier one kept"
        reached = load(latest).step
        for path, step in list_checkpoints(model_dir):
            assert load(path).read("x")[0] in VALUES[step]
        save(model_dir, 3, {"x": np.zeros(3)}, keep_max=1)
        assert [step for _, step in list_checkpoints(model_dir)] == [3]
    assert reached == 2


@pytest.mark.parametrize("how", ["exchange", "two renames"])
def test_whatever_was_committed_last_is_resumed_from_also_after_going_back(
    tmp_path: Path, how: str
) -> None:
    """A kill between a commit and the state file's new text loses nothing; nor does it bring back
    what was left behind by going back."""
    num_killed = killed_everywhere(tmp_path, how, [1, 2, 3, "back", 2], keep_max=None)
    num_unlisted = 0
    for fatal in range(1, num_killed + 1):
        model_dir = tmp_path / f"run-{fatal}"
        start(model_dir)
        values = {load(path).read("x")[0]: path for path, _ in list_checkpoints(model_dir)}
        if not values:
            continue
        state = (
            (model_dir / "checkpoint").read_text() if (model_dir / "checkpoint").exists() else ""
        )
        has_gone_back = state.startswith('model_checkpoint_path: "model.ckpt-1"') and "-3" in state
        expected = 0 if has_gone_back and 4 not in values else max(values)
        assert latest_checkpoint(model_dir) == values[expected], f"killed at operation {fatal}"
        num_unlisted += os.path.basename(values[expected]) not in state.splitlines()[0:1]
    assert num_unlisted > 0


@pytest.mark.parametrize("clean", [start, lambda path: save(path, 2, {})])
def test_left_overs_of_a_killed_save_are_removed_by_the_next_and_it_says_so(
    tmp_path: Path, clean: Callable[[Path], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="paceline")
    path = Path(save(tmp_path, 1, {"x": np.zeros(3)}))
    half = tmp_path / temporary_name("model.ckpt-2")
    shutil.copytree(path, half)
    (half / "manifest.json").unlink()
    (tmp_path / temporary_name("checkpoint")).write_text("half")
    assert [step for _, step in list_checkpoints(tmp_path)] == [1]
    assert latest_checkpoint(tmp_path) == str(path)

    clean(tmp_path)
    assert not list(tmp_path.glob(".paceline-tmp-*"))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert all("left over from an interrupted save" in message for message in messages)


@pytest.mark.parametrize("clean", [start, lambda path: save(path, 2, {})])
def test_a_small_file_that_another_process_is_writing_is_left_to_it(
    tmp_path: Path, clean: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluator, say, which needs no lock for that; a job starts at the worst moment."""
    replace = os.replace

    def replace_late(temporary: str, path: str) -> None:
        monkeypatch.undo()
        clean(tmp_path)
        replace(temporary, path)

    monkeypatch.setattr(os, "replace", replace_late)
    write_text(tmp_path, "note.json", "all of it")
    assert read_text(tmp_path, "note.json") == "all of it"
    assert not list(tmp_path.glob(".paceline-tmp-*"))


def test_a_checkpoint_set_aside_by_a_killed_replacement_is_put_back(tmp_path: Path) -> None:
    path = Path(save(tmp_path, 1, {"x": np.ones(3)}))
    path.rename(tmp_path / aside_name("model.ckpt-1"))
    start(tmp_path)
    assert load(path).read("x").tolist() == [1, 1, 1]


def test_a_checkpoint_set_aside_and_already_replaced_is_removed(tmp_path: Path) -> None:
    path = Path(save(tmp_path, 1, {"x": np.ones(3)}))
    shutil.copytree(path, tmp_path / aside_name("model.ckpt-1"))
    start(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".paceline-lock", "checkpoint", "model.ckpt-1"]


def test_a_directory_without_manifest_is_replaced_by_a_save_of_its_step(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt-1" / "junk").mkdir(parents=True)
    assert load(save(tmp_path, 1, {"x": np.ones(3)})).step == 1


def test_a_full_disk_is_named_and_what_was_there_stays(tmp_path: Path) -> None:
    path = save(tmp_path, 1, {"x": np.zeros(3)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(
            CheckpointError, match=r"cannot save .*data-00000-of-00001.*raise the limit"
        ):
            save(tmp_path, 2, {"x": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert latest_checkpoint(tmp_path) == path
    assert sorted(os.listdir(tmp_path)) == [".paceline-lock", "checkpoint", "model.ckpt-1"]


def test_ck_08_d_25_many_savers_in_one_directory_never_tear_it(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def saver(worker: int) -> None:
        try:
            for step in range(4):
                save(tmp_path, step, {"x": np.full(100, worker)}, keep_max=3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=saver, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list_checkpoints(tmp_path)) == 3
    for path, _ in list_checkpoints(tmp_path):
        assert len(set(load(path).read("x").tolist())) == 1


def test_waiting_for_another_saver_ends_and_names_the_directory(tmp_path: Path) -> None:
    with (
        only_writer(str(tmp_path)),
        pytest.raises(CheckpointError, match=rf"{tmp_path}.*another process .* for 0\.05 s"),
        only_writer(str(tmp_path), timeout_secs=0.05),
    ):
        raise AssertionError("the lock was given to two")


@pytest.mark.skipif(sys.platform != "linux", reason="exchanging two names is Linux's")
def test_two_names_are_exchanged_in_one_step(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if exchange(str(tmp_path / "a"), str(tmp_path / "b")):
        assert os.listdir(tmp_path / "a") == ["b"]
        assert os.listdir(tmp_path / "b") == ["a"]
    with pytest.raises(FileNotFoundError):
        exchange(str(tmp_path / "a"), str(tmp_path / "absent"))


def in_the_way(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("")
    return tmp_path / "file"


@pytest.mark.parametrize("write", [start, lambda path: save(path, 1, {})])
@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (in_the_way, "a file is in the way"),
        (lambda tmp_path: in_the_way(tmp_path) / "below", "a file is in the way"),
        (lambda tmp_path: Path("/proc/paceline"), "choose another"),
    ],
    ids=["a file", "below a file", "not a place for files"],
)
def test_a_model_dir_that_cannot_be_written_is_named_with_the_fix(
    tmp_path: Path, write: Callable[[Path], str], make: Callable[[Path], Path], fix: str
) -> None:
    model_dir = make(tmp_path)
    with pytest.raises(CheckpointError, match=f"model_dir '{model_dir}'.*{fix}") as caught:
        write(model_dir)
    assert isinstance(caught.value.__cause__, OSError)


def test_preparing_creates_the_directory_and_leaves_it_empty(tmp_path: Path) -> None:
    model_dir = tmp_path / "a" / "b"
    start(model_dir)
    assert [name for name in os.listdir(model_dir) if not name.startswith(".")] == []
    assert latest_checkpoint(model_dir) is None


@contextmanager
def descriptors_left(num: int) -> Iterator[None]:
    """A context in which this process may open only so many files more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    opened = []
    try:
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(num):
            os.close(opened.pop())
        yield
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("num", range(6))
def test_a_save_that_may_open_no_more_files_says_so_and_damages_nothing(
    tmp_path: Path, num: int
) -> None:
    save(tmp_path, 1, {"x": np.ones(3)})
    problem = ""
    with descriptors_left(num):
        try:
            save(tmp_path, 2, {"x": np.ones(3)}, keep_max=1)
        except CheckpointError as error:
            problem = str(error)
    assert num >= 2 or "raise the limit (ulimit -n)" in problem
    path = latest_checkpoint(tmp_path)
    assert path is not None
    load(path).verify()
    assert problem or path.endswith("ckpt-2")
    save(tmp_path, 3, {"x": np.ones(3)}, keep_max=1)  # as if nothing had been
    assert [step for _, step in list_checkpoints(tmp_path)] == [3]
