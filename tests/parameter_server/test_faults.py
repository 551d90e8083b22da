"""D-24: what each role does when another one dies, for asynchronous steps and steps in common."""

import signal

import pytest

from paceline import checkpoint

in_both_ways = pytest.mark.parametrize(
    "way", [(), ("--max-staleness", 0)], ids=["asynchronous", "in step"]
)


@in_both_ways
def test_a_worker_that_dies_stops_nobody(start_job, timed, way):
    job = start_job(*way, "--absence-secs", 4, num_workers=2, evaluator=True)
    job["worker 1"].wait_for_step(20)
    job["worker 1"].kill()
    with timed(f"worker killed, {way}: the others make steps"):
        job["chief 0"].wait_for_more_steps()
        job["worker 0"].wait_for_more_steps()
    job.stop_training()
    with timed(f"worker killed, {way}: everybody has ended"):
        job.require_success("worker 1")
    for ps in ("ps 0", "ps 1"):
        assert "lost worker 1" in job[ps].output
