"""An evaluator that dies, and one whose training dies."""

import re

from paceline.cluster import local_cluster


def test_training_goes_on_without_its_evaluator(start_job, tmp_path):
    """Where nobody watches over the job as a whole."""
    fault = ("--fault", "kill", "--by", "evaluator 0")
    *workers, evaluator = start_job(
        local_cluster(2, evaluator=True), "train.py", tmp_path, "--steps", 200, *fault
    )
    evaluator.wait_for("AT THE FAULT")
    assert evaluator.end()[0] == -9
    for worker in workers:
        code, out, errors = worker.end()
        assert code == 0, errors
        assert re.search("ended at step 200, loss .*, evaluated once", out)


def test_an_evaluator_waits_for_training_that_died_and_ends_with_its_restart(start_job, tmp_path):
    def start_workers(*fault):
        configs = local_cluster(2, evaluator=True)
        return start_job(configs[:2], "train.py", tmp_path, "--steps", 40, *fault)

    [evaluator] = start_job(
        local_cluster(2, evaluator=True)[2:], "train.py", tmp_path, "--steps", 40
    )
    for worker in start_workers("--fault", "kill", "--by", "worker 0"):
        assert worker.end()[0] != 0
    assert evaluator.is_running
    for worker in start_workers():
        assert worker.end()[0] == 0
    code, out, errors = evaluator.end()
    assert code == 0, errors
    assert "evaluator 0 ended at step 40, loss" in out


def test_the_launcher_ends_the_job_whose_evaluator_died(launch, detection, tmp_path):
    fault = ("--fault", "kill", "--by", "evaluator 0")
    job = launch("grpc", "train.py", tmp_path, *fault, evaluator=True)
    job.wait_for("AT THE FAULT")
    with detection("RING, evaluator 0 under the launcher: kill"):
        code, _, errors = job.end()
    assert code == 137
    assert "[launch] evaluator 0 failed (signal 9)" in errors
