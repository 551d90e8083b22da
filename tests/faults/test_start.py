"""A job that does not come together: a worker never starts, or cannot listen (D-01, CL-08)."""

import re
import socket

import pytest

from paceline.cluster import LOST_PEER, local_cluster


def test_d_01_who_is_missing_is_said_every_10_s_and_at_the_end(start_job, tmp_path):
    configs = local_cluster(3)
    absent = configs[0]["cluster"]["worker"][1]
    workers = start_job(
        configs[::2], "train.py", tmp_path, "--steps", 1, "--start-timeout-secs", 15
    )
    for worker in workers:
        code, _, errors = worker.end()
        assert code == LOST_PEER
        waits = rf"waiting for worker 1 \({absent}\):"  # on a busy machine it wakes up later
        assert re.search(rf"{waits} 1\d s of at most 15 s \(worker 1: connection refused", errors)
        assert re.search(rf"gave up: {waits} 15 s", errors.splitlines()[-1])
    assert not list(tmp_path.iterdir())


def test_cl08_a_port_in_use_is_named_with_its_task(start_job, tmp_path):
    configs = local_cluster(2)
    address = configs[1]["cluster"]["worker"][1]
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        first, second = start_job(
            configs, "train.py", tmp_path, "--steps", 1, "--start-timeout-secs", 2
        )
        code, _, errors = second.end()
        assert code == LOST_PEER
        told = errors.splitlines()[-1]
        assert f"worker 1 ({address})" in told
        assert f"port {port} is in use" in told
        code, _, errors = first.end()
        assert code == LOST_PEER
        assert "worker 1" in errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("with MPI", r"start of worker 0 gave up: waiting for worker 1: \d"),
        ("without MPI", r"Timeout \(0:00:02\)!"),
    ],
)
def test_over_mpi_a_worker_that_does_not_come_does_not_keep_the_others_for_ever(mpiexec, how, told):
    """Within MPI_Init nobody can say who is missing; whoever waits there shows where."""
    code, _, errors = mpiexec(2, "late.py", how).end()
    assert code != 0
    assert re.search(told, errors)
