"""Jobs with parameter servers whose tasks come, go and end as they should: all as processes."""

import json
import re

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline.cluster import local_cluster
from paceline.collectives import DEFAULT_LINKS

RESULT = re.compile(r"ended at step (\d+), loss ([\d.e-]+): (.*)")
in_both_ways = pytest.mark.parametrize(
    "way",
    [
        pytest.param((), id="asynchronous"),
        pytest.param(("--max-staleness", 0), id="in step", marks=pytest.mark.slow),
    ],
)


def result_of(process):
    """What a task has printed at its end: step, loss, why."""
    found = RESULT.findall(process.output)
    assert len(found) == 1, f"{process.name}:\n{process.output}"
    step, loss, why = found[0]
    return int(step), loss, why


def newest(job):
    return checkpoint.load(checkpoint.latest_checkpoint(job.model_dir))


@in_both_ways
@pytest.mark.parametrize("chief", [True, False], ids=["chief", "worker 0 is the chief"])
def test_cl_05_b4_ps_and_every_other_role_end_by_themselves_with_the_same_result(
    start_job, way, chief
):
    """CL-05, D-03, D-04: one process per task, the same program everywhere."""
    num_workers = 2 if chief else 3
    job = start_job("--max-steps", 60, *way, num_workers=num_workers, chief=chief, evaluator=True)
    job.require_success()
    results = {name: result_of(job[name]) for name in job.names()}
    chief_result = results["chief 0" if chief else "worker 0"]
    step, loss, why = chief_result
    # Steps that are under way when it is reached count, too.
    assert 60 <= step <= 62
    assert why == "max_steps was reached"
    assert newest(job).step == step
    assert results.pop("evaluator 0")[:2] == (step, loss)
    assert set(results.values()) == {chief_result}


def require_one_result(output, *names):
    """Each of these tasks has printed where it ended, and all of them the same."""
    # Under mpirun one rank's line may begin where another one's has not ended.
    task = r"((?:chief|worker|ps|evaluator) \d)"
    lines = re.findall(task + r" ended at step (\d+), loss ([\d.e-]+): ", output)
    assert sorted(name for name, _, _ in lines) == sorted(names), output
    assert len({result for _, *numbers in lines for result in [tuple(numbers)]}) == 1, output


@pytest.mark.parametrize(("backend", "links"), [("grpc", DEFAULT_LINKS), ("mpi", ["mpi"])])
def test_d_04_b12_ps_never_ends_but_every_role_does_under_the_launcher(
    start_launcher, tmp_path, backend, links
):
    arguments = ("--backend", backend, "--workers", 2, "--ps", 2, "--chief", "--evaluator")
    output = start_launcher(arguments, tmp_path / "model", "--max-steps", 60, "--links", *links)
    names = ("chief 0", "worker 0", "worker 1", "ps 0", "ps 1", "evaluator 0")
    require_one_result(output, *names)


def test_under_mpirun_roles_are_those_of_the_switch(start_ranks, tmp_path):
    """No launcher, no TF_CONFIG: six ranks, and PACELINE_ROLES."""
    environ = {"PACELINE_ROLES": "chief,ps=1,evaluator"}
    output = start_ranks(6, environ, tmp_path / "model", "--max-steps", 60)
    names = ("chief 0", "worker 0", "worker 1", "worker 2", "ps 0", "evaluator 0")
    require_one_result(output, *names)


@in_both_ways
def test_under_mpirun_a_worker_that_is_asked_to_end_ends_all_and_nothing_is_lost(
    start_launcher, tmp_path, way
):
    """MPI ends all ranks with the first: it must not go before the chief has saved."""
    tasks = ("--backend", "mpi", "--workers", 2, "--ps", 1)
    fault = ("--by", "worker 1", "--sigterm-after", 20, "--save-every", 100_000)
    options = ("--links", "mpi", *way, *fault)
    start_launcher(tasks, tmp_path / "model", *options, exit_code=143)
    assert checkpoint.load(checkpoint.latest_checkpoint(tmp_path / "model")).step >= 20


@in_both_ways
def test_a_worker_that_comes_late_takes_part(start_job, way):
    configs = local_cluster(2, chief=True, num_ps=1)
    job = start_job(*way, configs=configs, but=["worker 1"])
    if not way:
        job["chief 0"].wait_for_step(30)
    else:  # the first step of all waits for all
        job["chief 0"].wait_for("begins at step 0")
    late = job.start("worker 1")
    late.wait_for_more_steps()
    job["chief 0"].wait_for_more_steps()
    job.stop_training()
    job.require_success()
    assert len({result_of(job[name]) for name in job.names()}) == 1


@in_both_ways
def test_a_worker_that_leaves_by_sigterm_comes_back_where_it_left_its_input(start_job, way):
    job = start_job(*way)
    job.wait_until_all_train()
    job["worker 0"].terminate()
    assert job["worker 0"].end() == 143
    before = job["chief 0"].last_step
    job["chief 0"].wait_for_more_steps()
    back = job.start("worker 0")
    back.wait_for_more_steps()
    assert "The input goes on where this worker left it." in back.output
    assert int(re.search(r"(?m)^begins at step (\d+)", back.output)[1]) >= before
    job.stop_training()
    job.require_success()


@in_both_ways
def test_a_job_that_was_killed_goes_on_from_its_last_checkpoint(start_job, way):
    job = start_job(*way)
    job.wait_until_all_train()
    job["chief 0"].wait_for("Saving checkpoints for", times=4)
    for name in job.names():
        job[name].kill()
    saved = newest(job)
    for name in job.names():
        job.start(name)
    for trainer in ("chief 0", "worker 0"):
        job[trainer].wait_for_more_steps()
    began = re.search(r"(?m)^begins at step (\d+)", job["chief 0"].output)
    assert int(began[1]) >= saved.step > 0
    assert len(saved.state["input"]) == 2
    for trainer in ("chief 0", "worker 0"):
        assert "The input goes on where the last run stopped." in job[trainer].output
    job.stop_training()
    job.require_success()


def test_max_steps_that_were_reached_before_end_the_job_at_once(start_job):
    first = start_job("--max-steps", 40)
    first.require_success()
    again = start_job("--max-steps", 40)
    again.require_success()
    results = {result_of(again[name]) for name in again.names()}
    assert {why for _, _, why in results} == {"max_steps=40 was reached before"}
    assert {step for step, _, _ in results} == {newest(again).step}


@pytest.mark.parametrize("max_staleness", [pytest.param(None, marks=pytest.mark.slow), 0, 2])
@pytest.mark.parametrize("short", ["chief 0", pytest.param("worker 0", marks=pytest.mark.slow)])
def test_who_has_less_data_stops_earlier_and_keeps_nobody_waiting(start_job, max_staleness, short):
    way = () if max_staleness is None else ("--max-staleness", max_staleness)
    job = start_job(*way, "--num-epochs", 2, "--by", short, "--one-batch")
    job.require_success()
    results = {result_of(job[name]) for name in job.names()}
    assert len(results) == 1
    [(step, _, why)] = results
    assert why == "the input ended"
    # Two epochs of 120 of the 240 examples in batches of 8, beside a single batch.
    assert step == (30 if max_staleness == 0 else 31)


def test_a_worker_without_data_says_so_and_the_others_go_on(start_job):
    job = start_job("--by", "worker 0", "--no-data", "--num-epochs", 2, "--absence-secs", 3)
    job["worker 0"].require_failure("the input gave no batch", "the dataset is empty")
    job.require_success("worker 0")
    assert result_of(job["chief 0"])[0] == 30


@in_both_ways
def test_a_loss_that_is_no_number_on_one_worker_spoils_nothing(start_job, way):
    """Ruling 10: it ends who has it, is not saved, and does not come to the others' variables."""
    job = start_job(*way, "--by", "worker 0", "--nan", "--absence-secs", 3)
    job["worker 0"].require_failure("NanLossDuringTrainingError", "nan")
    job["chief 0"].wait_for_step(30)
    job.stop_training()
    job.require_success("worker 0")
    assert all(np.isfinite(value).all() for value in newest(job).arrays().values())


@pytest.mark.parametrize("strategy", ["MultiWorkerMirrored", "none"])
def test_cl04_servers_that_the_strategy_does_not_use_are_an_error_on_every_role(
    start_job, strategy
):
    job = start_job("--strategy", strategy, "--start-timeout-secs", 5, num_workers=1, num_ps=1)
    for name in job.names():
        job[name].require_failure("parameter server", "ParameterServerStrategy()")


@pytest.fixture
def tf_config(monkeypatch):
    """`tf_config(num_workers, num_ps)`: this process is the first worker of such a cluster."""

    def become(num_workers=2, num_ps=1):
        config = local_cluster(num_workers, num_ps=num_ps)[0]
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))

    return become


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_staleness": -1}, r"max_staleness must be ≥ 0.*it is -1"),
        ({"replicas_to_aggregate": 1}, r"pass max_staleness=0"),
        ({"max_staleness": 2, "replicas_to_aggregate": 1}, r"pass max_staleness=0"),
        ({"max_staleness": 0, "replicas_to_aggregate": 0}, r"must be ≥ 1, it is 0"),
        ({"max_staleness": 0, "replicas_to_aggregate": 3}, r"from 1 to 2.*it is 3"),
        ({"absence_secs": 0}, r"absence_secs must be > 0"),
        ({"placement": "somewhere"}, r"placement.*round_robin.*by_size"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(tf_config, options, text):
    tf_config()
    with pytest.raises(ValueError, match=text):
        pl.ParameterServerStrategy(**options)


def test_a_cluster_without_servers_is_refused(tf_config):
    tf_config(num_ps=0)
    with pytest.raises(pl.cluster.ClusterError, match=r"has no ps.*MultiWorkerMirroredStrategy"):
        pl.ParameterServerStrategy()


@pytest.fixture
def strategy(tf_config):
    tf_config()
    return pl.ParameterServerStrategy()


def model_fn(features, labels, mode):
    raise AssertionError("it is not called")


def test_without_a_model_dir_there_is_no_training_on_servers(strategy):
    with pytest.raises(ValueError, match=r"model_dir is not given.*all tasks can reach"):
        pl.Estimator(model_fn, config=pl.RunConfig(train_distribute=strategy))


def test_train_alone_is_refused(strategy, tmp_path):
    config = pl.RunConfig(model_dir=tmp_path, train_distribute=strategy)
    with pytest.raises(ValueError, match="call train_and_evaluate, the same in every process"):
        pl.Estimator(model_fn, config=config).train(dict, steps=1)


def test_evaluation_on_servers_is_refused(strategy, tmp_path):
    config = pl.RunConfig(model_dir=tmp_path, train_distribute=strategy, eval_distribute=strategy)
    with pytest.raises(ValueError, match=r"cannot evaluate.*leave eval_distribute out"):
        pl.Estimator(model_fn, config=config).evaluate(dict)
