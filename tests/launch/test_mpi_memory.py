"""What killed ranks of MPICH leave in shared memory."""

import mmap
import os
import signal

import pytest

from paceline.cluster.machine import (
    explain_signal,
    is_too_small,
    mpich_leftovers,
    remove_leftovers,
)


@pytest.fixture
def segment(tmp_path):
    """A function that makes a file as MPICH does."""

    def make(name):
        path = tmp_path / name
        path.write_bytes(bytes(mmap.PAGESIZE))
        return path

    return make


def test_only_what_no_process_uses_was_left(segment, tmp_path):
    left, used, other = map(segment, ("mpich_shm_1_0", "mpich_shm_2_0", "something_else"))
    with open(used, "r+b") as file, mmap.mmap(file.fileno(), 0):
        assert set(mpich_leftovers(str(tmp_path), 0)) == {left}
        remove_leftovers((), str(tmp_path), 0)
    assert not left.exists()
    assert used.exists()
    assert other.exists()


def test_what_was_made_a_moment_ago_may_belong_to_a_rank_that_begins(segment, tmp_path):
    path = segment("mpich_shm_1_0")
    assert mpich_leftovers(str(tmp_path), 60) == {}
    os.utime(path, (0, 0))
    assert mpich_leftovers(str(tmp_path), 60) == {path: mmap.PAGESIZE}


def test_what_a_job_that_died_young_has_left_is_removed_too(segment, tmp_path):
    path = segment("mpich_shm_1_0")
    remove_leftovers((), str(tmp_path), age_secs=0.1)
    assert not path.exists()


def test_what_lay_there_before_the_job_is_left_alone(segment, tmp_path):
    segment("mpich_shm_1_0")
    before = mpich_leftovers(str(tmp_path), 0)
    new = segment("mpich_shm_2_0")
    remove_leftovers(before, str(tmp_path), 0)
    assert mpich_leftovers(str(tmp_path), 0) == before
    assert not new.exists()


def test_a_bus_error_is_explained_and_no_other_signal(tmp_path):
    assert "MiB are free now" in explain_signal(signal.SIGBUS, str(tmp_path))
    assert "is full" in explain_signal(signal.SIGBUS, str(tmp_path / "absent"))
    assert explain_signal(signal.SIGSEGV, str(tmp_path)) == ""


@pytest.mark.parametrize(("free", "num_ranks", "small"), [(64 << 20, 2, False), (1 << 20, 1, True)])
def test_room_is_asked_for_each_rank(free, num_ranks, small):
    assert is_too_small(free, num_ranks) is small
