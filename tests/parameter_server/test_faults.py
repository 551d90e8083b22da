"""D-24: what each role does when another one dies, for asynchronous steps and steps in common.

The table in docs/parameter_servers.md has a row for each test.
"""

import re
import signal

import pytest

from paceline import checkpoint
from paceline.cluster import LOST_PEER

IN_STEP = ("--max-staleness", 0)
in_both_ways = pytest.mark.parametrize("way", [(), IN_STEP], ids=["asynchronous", "in step"])
in_both_ways_one_slow = pytest.mark.parametrize(
    "way",
    [
        pytest.param((), id="asynchronous"),
        pytest.param(IN_STEP, id="in step", marks=pytest.mark.slow),
    ],
)
each_ps = pytest.mark.parametrize("ps", ["ps 0", pytest.param("ps 1", marks=pytest.mark.slow)])


@in_both_ways_one_slow
def test_d_24_a_worker_that_is_killed_stops_nobody(start_job, timed, way):
    job = start_job(*way, "--absence-secs", 4, num_workers=2)
    job.wait_until_all_train()
    job["worker 1"].kill()
    with timed(f"worker killed, {way}: the others make steps"):
        job["chief 0"].wait_for_more_steps()
        job["worker 0"].wait_for_more_steps()
    job.stop_training()
    with timed(f"worker killed, {way}: everybody has ended"):
        job.require_success("worker 1")
    for ps in ("ps 0", "ps 1"):
        assert "lost worker 1" in job[ps].output
        assert "worker 1 did not finish, and came back no more" in job[ps].output


@in_both_ways
def test_d_24_a_worker_that_was_killed_comes_back_and_goes_on_with_its_input(start_job, timed, way):
    job = start_job(*way)
    job.wait_until_all_train()
    job["worker 0"].kill()
    job["chief 0"].wait_for_more_steps()
    with timed(f"worker killed, {way}: it is back and makes steps"):
        job.start("worker 0").wait_for_more_steps()
    assert "The input goes on where this worker left it." in job["worker 0"].output
    job.stop_training()
    job.require_success()


@in_both_ways_one_slow
def test_d_24_a_worker_that_is_stopped_is_left_out_until_it_goes_on(start_job, timed, way):
    job = start_job(*way, "--silence-secs", 3)
    job.wait_until_all_train()
    job["worker 0"].signal(signal.SIGSTOP)
    with timed(f"worker stopped, {way}: servers leave it out after 3 s"):
        job["ps 0"].wait_for("lost worker 0")
        job["chief 0"].wait_for_more_steps()
    job["worker 0"].signal(signal.SIGCONT)
    with timed(f"worker goes on, {way}: it makes steps"):
        job["worker 0"].wait_for_more_steps()
    job.stop_training()
    job.require_success()


@in_both_ways
@each_ps
def test_d_24_a_ps_that_was_killed_is_filled_from_the_last_checkpoint(start_job, timed, way, ps):
    job = start_job(*way, evaluator=True)
    job.wait_until_all_train()
    job["chief 0"].wait_for("Saving checkpoints for", times=3)
    job[ps].kill()
    for trainer in ("chief 0", "worker 0"):
        job[trainer].wait_for("is lost: ")
    with timed(f"{ps} killed, {way}: all make steps again"):
        job.start(ps)
        for trainer in ("chief 0", "worker 0"):
            job[trainer].wait_for(") is back.")
            job[trainer].wait_for_more_steps()
    job["chief 0"].wait_for("Saving checkpoints for", times=5)
    job.stop_training()
    job.require_success()
    assert re.search(rf"{ps} .* goes on from .*model.ckpt-\d+", job["chief 0"].output)


@in_both_ways_one_slow
@each_ps
def test_d_24_a_ps_that_does_not_come_back_ends_the_job_with_its_name(start_job, timed, way, ps):
    job = start_job(*way, "--absence-secs", 3, evaluator=True)
    job.wait_until_all_train()
    job["evaluator 0"].wait_for("Saving dict for global step")
    job[ps].kill()
    with timed(f"{ps} killed for good, {way}: the job has ended"):
        for name in job.names(ps, "evaluator 0"):
            job[name].require_failure(ps, code=LOST_PEER)
    assert job["evaluator 0"].is_running  # training may be started again


@in_both_ways_one_slow
def test_d_24_a_ps_that_is_stopped_goes_on_with_what_it_has(start_job, timed, way):
    job = start_job(*way, "--silence-secs", 3)
    job.wait_until_all_train()
    job["ps 1"].signal(signal.SIGSTOP)
    for trainer in ("chief 0", "worker 0"):
        job[trainer].wait_for(" is lost: ")
    job["ps 1"].signal(signal.SIGCONT)
    with timed(f"ps 1 goes on, {way}: all make steps"):
        for trainer in ("chief 0", "worker 0"):
            job[trainer].wait_for(") is back.")
            job[trainer].wait_for_more_steps()
    job.stop_training()
    job.require_success()
    assert "goes on from" not in job["chief 0"].output


@in_both_ways_one_slow
def test_d_24_a_chief_that_was_killed_takes_the_values_from_the_servers(start_job, timed, way):
    job = start_job(*way, "--absence-secs", 30, evaluator=True)
    job.wait_until_all_train()
    job["chief 0"].kill()
    job["worker 0"].wait_for("chief 0 is gone. Training goes on without checkpoints for 30 s")
    job["worker 0"].wait_for_more_steps()
    step = job["worker 0"].last_step
    with timed(f"chief killed, {way}: it is back and makes steps"):
        job.start("chief 0").wait_for_more_steps()
    began = re.search(r"(?m)^begins at step (\d+)", job["chief 0"].output)
    assert int(began[1]) >= step
    job.stop_training()
    job.require_success()


@in_both_ways_one_slow
def test_d_24_a_chief_that_does_not_come_back_ends_the_job_with_its_name(start_job, timed, way):
    job = start_job(*way, "--absence-secs", 4, num_workers=2, evaluator=True)
    job.wait_until_all_train()
    job["evaluator 0"].wait_for("Saving dict for global step")
    job["chief 0"].kill()
    job["worker 0"].wait_for_more_steps()
    with timed(f"chief killed for good, {way}: the job has ended"):
        for name in job.names("chief 0", "evaluator 0"):
            job[name].require_failure("chief 0", "4 s", code=LOST_PEER)
    assert job["evaluator 0"].is_running


def test_d_24_a_chief_that_is_stopped_goes_on(start_job, timed):
    job = start_job("--silence-secs", 3)
    job.wait_until_all_train()
    job["chief 0"].signal(signal.SIGSTOP)
    job["worker 0"].wait_for("chief 0 is gone")
    job["worker 0"].wait_for_more_steps()
    job["chief 0"].signal(signal.SIGCONT)
    with timed("chief goes on: it makes steps"):
        job["chief 0"].wait_for_more_steps()
    job["worker 0"].wait_for("chief 0 is back.")
    job.stop_training()
    job.require_success()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_d_24_an_evaluator_that_dies_changes_nothing(start_job, fault):
    job = start_job(evaluator=True)
    job.wait_until_all_train()
    job["evaluator 0"].wait_for("Saving dict for global step")
    job["evaluator 0"].signal(fault)
    for trainer in ("chief 0", "worker 0"):
        job[trainer].wait_for_more_steps()
    job.stop_training()
    job.require_success("evaluator 0")


def test_d_24_an_evaluator_that_was_killed_comes_back(start_job):
    job = start_job(evaluator=True)
    job.wait_until_all_train()
    job["evaluator 0"].wait_for("Saving dict for global step")
    job["evaluator 0"].kill()
    job.start("evaluator 0").wait_for("Saving dict for global step")
    job.stop_training()
    job.require_success()


@in_both_ways_one_slow
def test_d_24_a_save_that_a_ps_does_not_survive_is_given_up(start_job, timed, way):
    job = start_job(*way, "--by", "ps 1", "--dies-in-write", 3)
    job["ps 1"].wait_for("AT THE FAULT")
    with timed(f"ps 1 killed in a save, {way}: all make steps again"):
        job.start("ps 1", "--by", "nobody")
        for trainer in ("chief 0", "worker 0"):
            job[trainer].wait_for(") is back.")
            job[trainer].wait_for_more_steps()
    job["chief 0"].wait_for("is given up: ")
    job["chief 0"].wait_for("Saving checkpoints for", times=6)
    job.stop_training()
    job.require_success()
    newest = checkpoint.latest_checkpoint(job.model_dir, verify=True)
    ended = re.search(r"chief 0 ended at step (\d+),", job["chief 0"].output)
    assert newest.endswith(f"-{ended[1]}")


@in_both_ways_one_slow
def test_d_24_a_last_save_that_a_ps_does_not_survive_is_an_error(start_job, way):
    """What was learned would be lost in silence otherwise."""
    arguments = ("--save-every", 100_000, "--absence-secs", 3)
    job = start_job(*way, *arguments, "--by", "ps 1", "--dies-in-write", 2)
    job.wait_until_all_train()
    job.stop_training()
    assert job["ps 1"].end() == -9
    job["chief 0"].require_failure("ps 1")  # it is its own checkpoint that it could not save
    for name in ("worker 0", "ps 0"):
        job[name].require_failure(code=LOST_PEER)
        assert re.search("ps 1|chief 0", job[name].last_line)


def test_who_has_finished_does_not_wait_for_ever_for_a_chief_that_died(start_job, timed):
    job = start_job("--absence-secs", 3, "--num-epochs", 1, "--by", "chief 0", "--pause-secs", 60)
    job["worker 0"].wait_for("Loss for final step")
    job["chief 0"].kill()
    with timed("chief killed for good, the worker has finished: the job has ended"):
        for name in job.names("chief 0"):
            job[name].require_failure("chief 0", "3 s", code=LOST_PEER)


@in_both_ways_one_slow
def test_d_24_a_job_whose_trainers_all_died_ends_on_the_servers(start_job, way):
    job = start_job(*way, "--absence-secs", 3)
    job.wait_until_all_train()
    for trainer in ("chief 0", "worker 0"):
        job[trainer].kill()
    for ps in ("ps 0", "ps 1"):
        job[ps].require_success()
        assert "chief 0 and worker 0 did not finish, and came back no more" in job[ps].output


NOBODY_CAME = "none came: chief 0, worker 0"


@pytest.mark.parametrize(
    ("absent", "last_words"),
    [
        (["chief 0"], {"worker 0": "chief 0", "ps 0": "chief 0", "ps 1": "chief 0"}),
        (["ps 0"], {"chief 0": "ps 0", "worker 0": "ps 0", "ps 1": NOBODY_CAME}),
        (["ps 1"], {"chief 0": "ps 1", "worker 0": "ps 1", "ps 0": None}),
        (["chief 0", "worker 0"], {"ps 0": NOBODY_CAME, "ps 1": NOBODY_CAME}),
    ],
    ids=["the chief", "the first ps", "another ps", "all trainers"],
)
def test_who_never_comes_is_named(start_job, absent, last_words):
    """None: it ends well, since those whom it has served are gone."""
    job = start_job("--start-timeout-secs", 4, "--absence-secs", 4, but=absent)
    for name, words in last_words.items():
        if words is None:
            job[name].require_success()
        else:
            job[name].require_failure(words, code=LOST_PEER)
