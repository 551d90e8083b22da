"""What becomes of a job when one of its workers dies, fails or stalls."""

import pytest

import paceline as pl
from paceline.cluster import LOST_PEER, local_cluster


def options(fault, culprit):
    """How to fail; only who is stopped needs a short limit for its silence."""
    limit = ("--silence-secs", 3) if fault == "stop" else ()
    return ("--fault", fault, "--by", f"worker {culprit}", *limit)


TOLD = {"raise": "it gave up: KeyError: 'something is missing'", "stop": "it has been silent for "}
"""What the others say of a worker, beside its name, where more than its death is known."""


def newest_checkpoint(model_dir):
    """The newest checkpoint, read as a whole: its checksums are right."""
    found = pl.checkpoint.load(pl.checkpoint.latest_checkpoint(model_dir))
    assert found.arrays()
    return found


@pytest.fixture
def survivors(start_job, detection):
    """`survivors(num_workers, model_dir, fault, culprit)`: how the others ended, and the address
    of the culprit."""

    def run(num_workers, model_dir, fault, culprit):
        configs = local_cluster(num_workers)
        workers = start_job(configs, "train.py", model_dir, *options(fault, culprit))
        workers.pop(culprit).wait_for("AT THE FAULT")
        with detection(f"RING, worker {culprit} of {num_workers}: {fault}"):
            ended = [worker.end() for worker in workers]
        return ended, configs[0]["cluster"]["worker"][culprit]

    return run


@pytest.mark.parametrize(
    ("fault", "culprit"),
    [("kill", 0), ("kill", 1), ("exit", 1), ("raise", 0), ("stop", 0), ("stop", 1)],
)
def test_over_ring_the_others_end_and_name_the_culprit(survivors, tmp_path, fault, culprit):
    ended, address = survivors(2, tmp_path, fault, culprit)
    for code, _, errors in ended:
        assert code == LOST_PEER
        told = errors.splitlines()[-1]
        assert f"worker {culprit} ({address})" in told
        assert "all_reduce" in told
        assert "step 25" in told
        assert TOLD.get(fault, "") in told
    assert newest_checkpoint(tmp_path).step in (10, 20)


@pytest.mark.parametrize(
    ("fault", "culprit"), [("kill", 1), ("exit", 0), ("raise", 1), ("stop", 0)]
)
def test_over_mpi_the_launcher_ends_the_others_and_names_the_culprit(
    launch, detection, tmp_path, fault, culprit
):
    job = launch("mpi", "train.py", tmp_path, *options(fault, culprit))
    job.wait_for("AT THE FAULT")
    with detection(f"MPI, worker {culprit} of 2: {fault}"):
        code, _, errors = job.end()
    if fault == "stop":
        assert code == LOST_PEER
        assert f"failed: lost worker {culprit}" in errors
        assert "it has been silent for " in errors
        assert "step 25" in errors
    else:
        assert code == {"kill": 137, "exit": 3, "raise": 1}[fault]
        assert f"[launch] worker {culprit} failed" in errors
    assert newest_checkpoint(tmp_path).step in (10, 20)


def test_all_of_several_survivors_name_the_same_culprit(survivors, tmp_path):
    ended, address = survivors(3, tmp_path, "kill", 1)
    for code, _, errors in ended:
        assert code == LOST_PEER
        assert f"lost worker 1 ({address})" in errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("backend", "steps"), [("grpc", ()), ("mpi", ()), ("grpc", ("--replay-steps",))]
)
def test_d_23_a_restarted_job_ends_as_if_nothing_had_happened(
    launch, tmp_path, weights, backend, steps
):
    """D-23: it goes on from the last checkpoint with the same data."""
    fault = ("--fault", "kill", "--by", "worker 1", "--once", *steps)
    job = launch(backend, "train.py", tmp_path, "--steps", 40, *fault, max_restarts=1)
    code, out, errors = job.end()
    assert code == 0, errors
    assert "worker 1 failed (signal 9); restart 1 of 1 of the whole job" in errors
    assert errors.count("step = 0") == 2, "only the first start begins at the beginning"
    assert out.count("ended at step 40") == 2
    assert newest_checkpoint(tmp_path).arrays()["w"].tobytes() == weights
