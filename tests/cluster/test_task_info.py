"""What RunConfig derives from the cluster: each row of B3."""

import json

import pytest

from paceline.cluster import (
    ClusterError,
    ClusterSpec,
    MPIClusterResolver,
    SimpleClusterResolver,
    Task,
    TFConfigClusterResolver,
    agreed_model_dir,
    task_info_of,
)


def place(cluster, task, with_strategy=False, **more):
    config = {"cluster": cluster, "task": task and {"type": task[0], "index": task[1]}, **more}
    resolver = TFConfigClusterResolver(environ={"TF_CONFIG": json.dumps(config)})
    return task_info_of(resolver, with_strategy=with_strategy)


CLUSTER = {
    "chief": ["c:1"],
    "evaluator": ["e:1"],
    "ps": ["p0:1", "p1:1"],
    "worker": ["w0:1", "w1:1", "w2:1"],
}
TRAINING = {"chief": ["c:1"], "worker": ["w0:1", "w1:1", "w2:1"], "ps": ["p0:1", "p1:1"]}
WORKERS = {"worker": ["w0:1", "w1:1"]}
MASTER = {"master": ["m:1"], "worker": ["w0:1"], "ps": ["p:1"]}


@pytest.mark.parametrize("with_strategy", [False, True])
@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": "{}"}])
def test_b3_local_is_one_worker_without_tf_config(environ, with_strategy):
    found = task_info_of(TFConfigClusterResolver(environ=environ), with_strategy=with_strategy)
    assert (found.task_type, found.task_id) == ("worker", 0)
    assert found.is_chief
    assert found.num_worker_replicas == 1
    assert found.num_ps_replicas == 0
    assert found.global_id_in_cluster == 0
    assert found.master == found.evaluation_master == ""
    assert not found.cluster_spec
    assert found.evaluates
    assert not found.starts_server


@pytest.mark.parametrize("with_strategy", [False, True])
@pytest.mark.parametrize(
    ("task", "is_chief", "global_id", "master"),
    [
        (("chief", 0), True, 0, "grpc://c:1"),
        (("worker", 0), False, 1, "grpc://w0:1"),
        (("worker", 2), False, 3, "grpc://w2:1"),
        (("ps", 0), False, 4, "grpc://p0:1"),
        (("ps", 1), False, 5, "grpc://p1:1"),
    ],
)
def test_b3_counts_and_ids_the_chief_is_0_then_workers_and_ps_last(
    task, is_chief, global_id, master, with_strategy
):
    found = place(CLUSTER, task, with_strategy)
    assert (found.task_type, found.task_id) == task
    assert found.is_chief is is_chief
    assert found.global_id_in_cluster == global_id
    assert found.master == master
    assert found.num_worker_replicas == 4
    assert found.num_ps_replicas == 2
    assert found.cluster_spec.as_dict() == TRAINING
    assert found.starts_server
    assert not found.evaluates


@pytest.mark.parametrize("with_strategy", [False, True])
@pytest.mark.parametrize("cluster", [CLUSTER, TRAINING])
def test_b3_evaluator_is_outside_the_cluster_listed_or_not(cluster, with_strategy):
    found = place(cluster, ("evaluator", 0), with_strategy)
    assert found.cluster_spec == ClusterSpec({})
    assert found.num_worker_replicas == 0
    assert found.num_ps_replicas == 0
    assert found.global_id_in_cluster is None
    assert found.master == ""
    assert found.is_chief is with_strategy  # of itself
    assert not found.starts_server


@pytest.mark.parametrize(
    ("task", "is_chief", "global_id"),
    [(("worker", 0), True, 0), (("worker", 1), False, 1)],
)
def test_b3_with_strategy_worker_0_is_chief_if_none_is_listed(task, is_chief, global_id):
    found = place(WORKERS, task, with_strategy=True)
    assert found.is_chief is is_chief
    assert found.global_id_in_cluster == global_id
    assert found.num_worker_replicas == 2


def test_b3_one_chief_has_to_be_listed_without_a_strategy():
    with pytest.raises(ClusterError, match=r"TF_CONFIG.*w0:1.*must have one 'chief'.*train_distr"):
        place(WORKERS, ("worker", 0))


@pytest.mark.parametrize("with_strategy", [False, True])
def test_b3_one_chief_at_most(with_strategy):
    with pytest.raises(ClusterError, match="only one"):
        place({"chief": ["a:1", "b:1"]}, ("chief", 0), with_strategy)


def test_b3_with_strategy_there_is_at_most_one_evaluator():
    cluster = {**WORKERS, "evaluator": ["e0:1", "e1:1"]}
    with pytest.raises(ClusterError, match=r"cluster.evaluator is \['e0:1', 'e1:1'\]"):
        place(cluster, ("worker", 0), with_strategy=True)
    with pytest.raises(ClusterError, match="index of the evaluator is 1"):
        place(WORKERS, ("evaluator", 1), with_strategy=True)


def test_without_a_strategy_a_second_evaluator_is_refused_by_train_and_evaluate_alone():
    found = place(CLUSTER, ("evaluator", 1))
    with pytest.raises(ClusterError, match="only one evaluator"):
        found.refuse_second_evaluator()
    place(CLUSTER, ("evaluator", 0)).refuse_second_evaluator()


@pytest.mark.parametrize(
    ("task", "is_chief", "evaluates", "global_id"),
    [
        (("master", 0), True, True, 0),
        (("worker", 0), False, False, 1),
        (("ps", 0), False, False, 2),
    ],
)
def test_b3_master_plays_chief_counts_as_worker_and_evaluates(task, is_chief, evaluates, global_id):
    found = place(MASTER, task)
    assert found.is_chief is is_chief
    assert found.evaluates is evaluates
    assert found.global_id_in_cluster == global_id
    assert found.num_worker_replicas == 2


def test_b3_counts_and_ids_of_one_node_that_needs_no_server():
    found = place({"chief": ["c:1"]}, ("chief", 0))
    assert found.master == ""
    assert not found.starts_server
    assert found.num_worker_replicas == 1


def test_session_masters_take_the_task_info_of_addresses():
    masters = {"session_master": "grpc://x:1", "eval_session_master": "grpc://y:1"}
    found = place(CLUSTER, ("worker", 0), **masters)
    assert (found.master, found.evaluation_master) == ("grpc://x:1", "grpc://y:1")
    alone = place({}, None, **masters)
    assert (alone.master, alone.evaluation_master) == ("grpc://x:1", "grpc://y:1")


@pytest.mark.parametrize(
    ("environment", "serves"), [("cloud", True), ("google", False), ("", True)]
)
def test_b3_environment_of_google_starts_no_servers(environment, serves):
    found = place(CLUSTER, ("worker", 0), environment=environment)
    assert found.environment == environment
    assert found.starts_server is serves


def test_b3_service_masters_model_dir_are_taken_from_tf_config():
    told = {
        "service": {"key": 1},
        "session_master": "grpc://x:1",
        "eval_session_master": "grpc://y:1",
        "model_dir": "/m",
    }
    found = place(CLUSTER, ("worker", 0), **told)
    assert found.service == {"key": 1}
    assert (found.master, found.evaluation_master) == ("grpc://x:1", "grpc://y:1")
    assert agreed_model_dir(None, found) == "/m"


@pytest.mark.parametrize(
    ("given", "told", "agreed"),
    [(None, None, None), ("/a", None, "/a"), (None, "/b", "/b"), ("/a", "/a", "/a")],
)
def test_model_dir_comes_from_either_side(given, told, agreed):
    assert agreed_model_dir(given, place({}, None, model_dir=told)) == agreed


def test_model_dirs_that_differ_are_refused():
    with pytest.raises(ClusterError, match=r"started with model_dir '/b'.*is '/a'"):
        agreed_model_dir("/a", place({}, None, model_dir="/b"))


def test_a_sparse_worker_has_the_id_that_its_index_gives():
    found = place({"worker": {"3": "w3:1"}, "ps": ["p:1"]}, ("worker", 3), with_strategy=True)
    assert found.global_id_in_cluster == 3
    assert not found.is_chief


def test_a_resolver_without_a_task_has_no_place():
    with pytest.raises(ClusterError, match="give task_type and task_id"):
        task_info_of(SimpleClusterResolver(ClusterSpec(WORKERS)), with_strategy=True)


def test_cl14_ranks_of_mpirun_have_no_addresses():
    environ = {"PMI_RANK": "1", "PMI_SIZE": "3", "PACELINE_ROLES": "evaluator"}
    found = task_info_of(MPIClusterResolver(environ=environ), with_strategy=True)
    assert (found.task_type, found.task_id, found.is_chief) == ("worker", 1, False)
    assert found.num_worker_replicas == 2
    assert found.master == ""


def test_simple_resolver_checks_its_task():
    spec = ClusterSpec(WORKERS)
    assert SimpleClusterResolver(spec, task_type="worker", task_id=1).task == Task("worker", 1)
    assert SimpleClusterResolver(WORKERS, task_type="evaluator", task_id=0).task is not None
    with pytest.raises(ClusterError, match="not an index of 'worker'"):
        SimpleClusterResolver(spec, task_type="worker", task_id=2)
    with pytest.raises(ClusterError, match="give both, or neither"):
        SimpleClusterResolver(spec, task_type="worker")
