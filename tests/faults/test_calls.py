"""Workers who do not make the same calls: an error on all that names both (D-26), no hang."""

import pytest

from paceline.cluster import LOST_PEER, local_cluster

SHORT, LONG = "all_reduce 'a' of float32[1000]", "all_reduce 'a' of float32[1001]"
DIFFERENCES = {
    "skips_a_call": (SHORT, "all_reduce 'b' of float32[1000]"),
    "calls_another": (SHORT, "all_gather 'a' of float32[any length]"),
    "has_another_shape": (SHORT, LONG),
    "makes_another_variable": ("variable 'kernel' of shape (2, 3)", "'kernel' of shape (3, 2)"),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_over_ring_all_workers_name_both_calls_and_who_made_them(start_job, detection, difference):
    workers = start_job(local_cluster(2), "calls.py", difference)
    workers[1].wait_for("AT THE FAULT")
    with detection(f"RING, worker 1 {difference.replace('_', ' ')}"):
        ended = [worker.end() for worker in workers]
    for code, _, errors in ended:
        assert code == 1
        told = errors.splitlines()[-1]
        for call, worker in zip(DIFFERENCES[difference], ("worker 0", "worker 1"), strict=True):
            assert call in told
            assert worker in told


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_over_mpi_the_job_ends_and_names_both_calls(mpiexec, detection, difference):
    """A short call left out is noticed by MPI's watch only later: it is told by number then."""
    job = mpiexec(2, "calls.py", difference)
    job.wait_for("AT THE FAULT")
    with detection(f"MPI, worker 1 {difference.replace('_', ' ')}"):
        code, _, errors = job.end()
    assert code != 0
    assert "worker 1" in errors
    calls = DIFFERENCES[difference] if difference != "skips_a_call" else ("all_reduce 'b'",)
    for call in calls:
        assert call in errors


def test_a_worker_that_leaves_early_is_named(start_job):
    first, second = start_job(local_cluster(2), "calls.py", "leaves_early")
    assert second.end()[0] == 0
    code, _, errors = first.end()
    assert code == LOST_PEER
    assert "has left: it has closed its communicator" in errors.splitlines()[-1]


@pytest.mark.parametrize("how", ["ends_early", "raises"])
def test_a_custom_loop_that_ends_without_closing_says_goodbye_or_why(start_job, how):
    first, second = start_job(local_cluster(2), "calls.py", how)
    assert second.end()[0] == (1 if how == "raises" else 0)
    code, _, errors = first.end()
    assert code == LOST_PEER
    told = {"raises": "it gave up: ValueError: the data of worker 1", "ends_early": "has left: it"}
    assert "worker 1 (" in errors.splitlines()[-1]
    assert told[how] in errors.splitlines()[-1]
