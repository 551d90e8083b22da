"""Kill -9 at random instants around saves and deletions, with a reader beside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Forks savers, one after the other, each of which goes on from the newest checkpoint until it is
# killed; and one reader for all the time. Prints how many died and how many checkpoints were read.
# Nothing outlives it, or who waits for its output would wait for ever: a kill has a limit, and what
# was forked ends with it, however it ends.
DRIVER = """
import os, random, signal, sys, time
import numpy as np
from paceline.checkpoint import (
    CheckpointError, Saver, keep_last, latest_checkpoint, lease, list_checkpoints, load, save
)

root, num_kills, num_bytes = sys.argv[1], int(sys.argv[2]), int(float(sys.argv[3]) * 1e6)
names = [f"{i}" for i in range(20)]

def arrays_of(step):
    return {name: np.full(num_bytes // 160, step, np.int64) for name in names}

def check(path):
    found = load(path)
    for name, array in found.arrays().items():
        assert array.min() == array.max() == found.step, (path, name)
    assert found.names == tuple(names)
    return found.step

children = set()

def forked(function, *arguments):
    pid = os.fork()
    children.add(pid)
    if pid == 0:
        code = 1
        try:
            function(*arguments)
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid

def ended(pid):
    status = os.waitpid(pid, 0)[1]
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)

def go_on_saving(visible):
    step = check(latest_checkpoint(root))
    arrays = arrays_of(step)
    with Saver(root, keep_last(2)) as saver:
        left = [name for name in os.listdir(root) if name.startswith(".paceline-tmp")]
        # What the reader still reads goes with a later save.
        assert len(left) <= 1, left
        while True:
            step += 1
            for array in arrays.values():
                array += 1
            saver.save(step, arrays)
            for _, visible_step in saver.finished():
                os.write(visible, f"{visible_step}\\n".encode())

def go_on_reading(stop):
    num_read = 0
    while not os.path.exists(stop):
        try:
            with lease(latest_checkpoint(root)) as path:
                check(path)
            num_read += 1
        except CheckpointError as error:
            assert "is no checkpoint" in str(error) or "being deleted" in str(error), error
    with open(stop, "w") as file:
        file.write(str(num_read))

try:
    rng = random.Random(0)
    save(root, 0, arrays_of(0))
    began = time.perf_counter()
    save(root, 1, arrays_of(1))
    one_save_secs = time.perf_counter() - began
    limit_secs = 60 + int(100 * one_save_secs)
    stop = root + ".stop"
    reader = forked(go_on_reading, stop)
    for number in range(num_kills):
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"kill {number} took {limit_secs} s"))
        signal.alarm(limit_secs)
        read_end, write_end = os.pipe()
        saver = forked(go_on_saving, write_end)
        os.close(write_end)
        told = os.read(read_end, 1 << 16)  # at least one save was visible
        time.sleep(rng.uniform(0, 3 * one_save_secs))
        os.kill(saver, signal.SIGKILL)
        assert ended(saver) == -signal.SIGKILL
        while more := os.read(read_end, 1 << 16):
            told += more
        os.close(read_end)
        promised = max(map(int, told.split()))
        newest = check(latest_checkpoint(root, verify=True))
        assert newest >= promised, f"step {promised} was visible and {newest} is the newest now"
        for path, step in list_checkpoints(root):
            assert check(path) == step
    open(stop, "w").close()
    assert ended(reader) == 0, "the reader failed"
    signal.alarm(0)
    with Saver(root, keep_last(1)) as saver:
        assert [name for name in os.listdir(root) if name.startswith(".paceline-tmp")] == []
        saver.save(10**9, arrays_of(10**9))
    assert sorted(os.listdir(root)) == [".paceline-lock", "checkpoint", "model.ckpt-1000000000"]
    print(num_kills, newest, open(stop).read())
finally:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("num_kills", "megabytes"),
    [
        (10, 4),
        pytest.param(200, 40, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param(20, 400, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_the_newest_committed_checkpoint_survives_kill_9(
    tmp_path: Path, num_kills: int, megabytes: float
) -> None:
    """D-11: it loads and verifies, nothing that was visible is lost, nothing temporary is left."""
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "model"), f"{num_kills}"]
    result = subprocess.run(
        [*command, f"{megabytes}"], capture_output=True, text=True, timeout=1700, check=False
    )
    assert result.returncode == 0, result.stderr
    num_killed, newest, num_read = map(int, result.stdout.split())
    assert num_killed == num_kills
    assert newest >= num_kills, "each of them made progress"
    assert num_read > 0
