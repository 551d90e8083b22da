"""Cluster specifications: roles, addresses, ranks (CL-01, CL-02, CL-03)."""

import pytest

from paceline.cluster import ClusterError, ClusterSpec, Task, split_address

WHOLE = {
    "worker": ["w0:1", "w1:2"],
    "ps": ["p0:3"],
    "evaluator": ["e0:4"],
    "chief": ["c0:5"],
}


def test_a_task_prints_as_role_and_index():
    assert str(Task("worker", 2)) == "worker 2"


def test_cl02_tasks_are_listed_by_role_and_index():
    spec = ClusterSpec(WHOLE)
    assert spec.jobs == ("chief", "worker", "ps", "evaluator")
    assert ", ".join(map(str, spec.tasks())) == "chief 0, worker 0, worker 1, ps 0, evaluator 0"
    assert spec.num_tasks("worker") == 2
    assert spec.num_tasks("evaluator") == 1
    assert spec.addresses("worker") == ("w0:1", "w1:2")
    assert spec.address(Task("ps", 0)) == "p0:3"
    assert spec.as_dict() == WHOLE


@pytest.mark.parametrize(
    ("jobs", "training", "chief"),
    [
        (WHOLE, ["chief 0", "worker 0", "worker 1"], "chief 0"),
        ({"worker": ["a:1", "b:1"], "ps": ["c:1"]}, ["worker 0", "worker 1"], "worker 0"),
        ({"chief": ["a:1"], "ps": ["c:1"]}, ["chief 0"], "chief 0"),
        ({"master": ["a:1"], "worker": ["b:1"]}, ["chief 0", "worker 0"], "chief 0"),
        ({"worker": {3: "b:1", 1: "a:1"}}, ["worker 1", "worker 3"], "worker 0"),
    ],
)
def test_cl03_training_tasks_in_rank_order_and_who_is_chief(jobs, training, chief):
    spec = ClusterSpec(jobs)
    assert [str(t) for t in spec.training_tasks()] == training
    assert str(spec.chief()) == chief


def test_a_sparse_role_stays_a_map():
    spec = ClusterSpec({"worker": {2: "c:1"}, "ps": ["p:1"]})
    assert spec.as_dict() == {"worker": {2: "c:1"}, "ps": ["p:1"]}
    assert spec.address(Task("worker", 2)) == "c:1"


def test_equal_clusters_are_equal_and_hash_alike():
    other = ClusterSpec(dict(reversed(WHOLE.items())))
    assert ClusterSpec(WHOLE) == other
    assert hash(ClusterSpec(WHOLE)) == hash(other)
    assert ClusterSpec(WHOLE) != ClusterSpec({"worker": ["w0:1"]})


def test_an_empty_cluster_is_false():
    for jobs in (None, {}, {"worker": []}, {"worker": None, "ps": {}}):
        assert not ClusterSpec(jobs)


def test_an_evaluator_is_no_part_of_the_training_cluster():
    assert "evaluator" not in ClusterSpec(WHOLE).without_evaluator().jobs


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        (
            {"wroker": ["a:1"]},
            ["'wroker'", "chief, worker, ps, evaluator", "did you mean 'worker'"],
        ),
        ({"Worker": ["a:1"]}, ["'Worker'", "did you mean 'worker'"]),
        ({"chief": ["a:1", "b:1"]}, ["cluster.chief", "['a:1', 'b:1']", "only one"]),
        ({"chief": {1: "a:1"}}, ["cluster.chief", "{1: 'a:1'}"]),
        ({"chief": ["a:1"], "master": ["b:1"]}, ["cluster.master", "['b:1']", "remove 'master'"]),
        ({"worker": "a:1"}, ["cluster.worker", "'a:1'", "list"]),
        ({"worker": 3}, ["cluster.worker", "3", "list"]),
        ({"worker": ["a:1", 3]}, ["cluster.worker[1]", "3", "host:port"]),
        ({"worker": ["a"]}, ["cluster.worker[0]", "'a'", "port is missing"]),
        ({"worker": ["a:1", "a:1"]}, ["cluster.worker[1]", "'a:1'", "worker 0"]),
        ({"worker": ["a:1"], "ps": ["a:1"]}, ["cluster.ps[0]", "'a:1'", "worker 0"]),
        ({"worker": {-1: "a:1"}}, ["cluster.worker", "-1"]),
        ({"worker": {True: "a:1"}}, ["cluster.worker", "True"]),
    ],
)
def test_d_20_a_wrong_cluster_is_refused_with_key_value_and_fix(jobs, told):
    with pytest.raises(ClusterError) as caught:
        ClusterSpec(jobs)
    for text in told:
        assert text in str(caught.value)


def test_an_address_that_nobody_told_is_empty_and_may_repeat():
    spec = ClusterSpec({"worker": ["", ""]})
    assert spec.addresses("worker") == ("", "")


@pytest.mark.parametrize("task", [Task("ps", 0), Task("worker", 2), Task("worker", -1)])
def test_a_task_outside_the_cluster_is_refused_with_the_cluster(task):
    spec = ClusterSpec({"worker": ["a:1", "b:1"]})
    with pytest.raises(ClusterError, match=r"a:1.*may come from TF_CONFIG") as caught:
        spec.address(task)
    assert repr(task.type) in str(caught.value)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("host-1:2222", "host-1", 2222),
        ("job-worker-0.default.svc:2222", "job-worker-0.default.svc", 2222),
        ("cmle-training_master:65535", "cmle-training_master", 65535),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[2001:db8::1]:2222", "2001:db8::1", 2222),
    ],
)
def test_an_address_is_host_and_port(address, host, port):
    assert split_address(address) == (host, port)


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("host", "port is missing"),
        ("host:", "host:port"),
        (":2222", "host:port"),
        ("host:port", "host:port"),
        ("host:0", "1 to 65535"),
        ("host:65536", "1 to 65535"),
        ("host:99999999999999999999", "1 to 65535"),
        ("grpc://host:2222", "leave out 'grpc://'"),
        ("2001:db8::1:2222", "brackets"),
        ("host :2222", "host:port"),
        ("hôst:2222", "host:port"),
        ("host:٢٢", "host:port"),
        ("0.0.0.0:2222", "names no machine"),
        ("[::]:2222", "names no machine"),
    ],
)
def test_d_20_a_malformed_address_is_refused_with_a_hint(address, hint):
    with pytest.raises(ClusterError) as caught:
        split_address(address)
    assert repr(address) in str(caught.value)
    assert hint in str(caught.value)


def test_b2_tasks_of_other_roles_are_kept_and_left_alone():
    jobs = {"worker": ["a:1", "b:1"], "tensorboard": ["c:1"], "scheduler": {1: "d:1"}}
    spec = ClusterSpec(jobs)
    assert spec.as_dict() == jobs
    assert spec.jobs == ("worker",)
    assert [str(task) for task in spec.tasks()] == ["worker 0", "worker 1"]
    assert spec.without_evaluator() == spec != ClusterSpec({"worker": ["a:1", "b:1"]})
