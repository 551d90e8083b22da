"""TF_CONFIG: every platform's dialect, every rule of B3, every error (CL-01, D-20)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster import ClusterError, Task, TFConfigClusterResolver

CLUSTER = {"chief": ["c:1"], "worker": ["w0:1", "w1:1"], "ps": ["p:1"]}


def resolver_of(config, **overrides):
    text = config if isinstance(config, str) else json.dumps(config)
    return TFConfigClusterResolver(**overrides, environ={"TF_CONFIG": text})


def task(kind, index):
    return {"type": kind, "index": index}


@pytest.mark.parametrize(
    "environ", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": " "}, {"TF_CONFIG": "{}"}]
)
def test_cl17_without_tf_config_there_is_one_worker(environ):
    """Kubeflow sets nothing for a job of exactly one replica."""
    resolver = TFConfigClusterResolver(environ=environ)
    assert resolver.task == Task("worker", 0)
    assert not resolver.cluster_spec()
    assert resolver.master() == ""


@pytest.mark.parametrize(
    ("name", "config", "cluster", "place"),
    [
        (
            "the guide's example",
            {
                "cluster": {
                    "worker": ["host1:1", "host2:1", "host3:1"],
                    "ps": ["host4:1", "host5:1"],
                },
                "task": task("worker", 1),
            },
            {"worker": ["host1:1", "host2:1", "host3:1"], "ps": ["host4:1", "host5:1"]},
            Task("worker", 1),
        ),
        (
            "the tutorial's two ports of localhost",
            {
                "cluster": {"worker": ["localhost:12345", "localhost:23456"]},
                "task": task("worker", 0),
            },
            {"worker": ["localhost:12345", "localhost:23456"]},
            Task("worker", 0),
        ),
        (
            "CL-10: Kubeflow",
            {
                "cluster": {
                    "chief": ["mnist-chief-0.default.svc:2222"],
                    "ps": ["mnist-ps-0.default.svc:2222"],
                    "worker": [
                        "mnist-worker-0.default.svc:2222",
                        "mnist-worker-1.default.svc:2222",
                    ],
                },
                "task": task("ps", 0),
                "environment": "cloud",
            },
            {
                "chief": ["mnist-chief-0.default.svc:2222"],
                "worker": ["mnist-worker-0.default.svc:2222", "mnist-worker-1.default.svc:2222"],
                "ps": ["mnist-ps-0.default.svc:2222"],
            },
            Task("ps", 0),
        ),
        (
            "Kubeflow's evaluator inside the cluster (D-02)",
            {
                "cluster": {"chief": ["c:1"], "evaluator": ["e:1"]},
                "task": task("evaluator", 0),
                "environment": "cloud",
            },
            {"chief": ["c:1"], "evaluator": ["e:1"]},
            Task("evaluator", 0),
        ),
        (
            "an evaluator outside the cluster (D-02)",
            {"cluster": CLUSTER, "task": task("evaluator", 0)},
            CLUSTER,
            Task("evaluator", 0),
        ),
        (
            "Kubeflow's enableDynamicWorker",
            {"cluster": {"worker": {"1": "w1:1"}, "ps": ["p:1"]}, "task": task("worker", 1)},
            {"worker": {1: "w1:1"}, "ps": ["p:1"]},
            Task("worker", 1),
        ),
        (
            "the same from older builds, without ps",
            {"sparseCluster": {"worker": {"0": "w0:1"}, "ps": None}, "task": task("worker", 0)},
            {"worker": ["w0:1"]},
            Task("worker", 0),
        ),
        (
            "a dynamic ps, which sees no worker's index but those that are there",
            {
                "cluster": {"worker": {"0": "w0:1", "2": "w2:1"}, "ps": ["p:1"]},
                "task": task("ps", 0),
            },
            {"worker": {0: "w0:1", 2: "w2:1"}, "ps": ["p:1"]},
            Task("ps", 0),
        ),
        (
            "AI Platform's master",
            {
                "cluster": {"master": ["m:2222"], "worker": ["w:2222"], "ps": ["p:2222"]},
                "task": {"type": "master", "index": 0, "trial": "1", "cloud": "x"},
                "job": {"scale_tier": "CUSTOM"},
                "environment": "cloud",
            },
            {"chief": ["m:2222"], "worker": ["w:2222"], "ps": ["p:2222"]},
            Task("chief", 0),
        ),
        (
            "Vertex AI's chief, with an index as a string",
            {"cluster": {"chief": ["c:2222"], "worker": ["w:2222"]}, "task": task("chief", "0")},
            {"chief": ["c:2222"], "worker": ["w:2222"]},
            Task("chief", 0),
        ),
        (
            "chief and ps only (D-20)",
            {"cluster": {"chief": ["c:1"], "ps": ["p:1"], "worker": []}, "task": task("chief", 0)},
            {"chief": ["c:1"], "ps": ["p:1"]},
            Task("chief", 0),
        ),
        (
            "only an environment",
            {"environment": "cloud", "cluster": {}, "task": None},
            {},
            Task("worker", 0),
        ),
    ],
)
def test_d_20_every_dialect_is_understood(name, config, cluster, place):
    resolver = resolver_of(config)
    assert resolver.cluster_spec().as_dict() == cluster
    assert resolver.task == place
    assert (resolver.task_type, resolver.task_id) == (place.type, place.index)
    assert resolver.environment == config.get("environment", "")


WORKERS = {"cluster": {"worker": ["a:1", "b:1"]}}


def assert_refused(config, told):
    with pytest.raises(ClusterError) as caught:
        resolver_of(config)
    assert str(caught.value).startswith("TF_CONFIG")
    for text in told:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"task": task("chief", 0)}, ["task.type is 'chief'", "no 'cluster'"]),
        ({"task": task("evaluator", 0)}, ["task.type is 'evaluator'", "no 'cluster'"]),
        ({"task": task("worker", 1)}, ["task.index is 1", "no 'cluster'"]),
    ],
)
def test_b3_no_cluster_errors_name_the_key_and_the_value(config, told):
    assert_refused(config, told)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (WORKERS, ["task.type is None", "'cluster' is given"]),
        (WORKERS | {"task": {"index": 0}}, ["task.type is None", "say which task"]),
        (WORKERS | {"task": {"type": ""}}, ["task.type is ''", "say which task"]),
        (WORKERS | {"task": {"type": "worker"}}, ["task.index is None", "say which task"]),
        (WORKERS | {"task": task("worker", -1)}, ["task.index is -1", "0, 1, 2"]),
        (WORKERS | {"task": task("worker", 2)}, ["task.index is 2", "a:1", "may come from"]),
        (WORKERS | {"task": task("worker", 0.5)}, ["task.index is 0.5", "0, 1, 2"]),
        (WORKERS | {"task": task("worker", True)}, ["task.index is True"]),
        (WORKERS | {"task": task("worker", "one")}, ["task.index is 'one'"]),
        (WORKERS | {"task": task("ps", 0)}, ["task.type is 'ps'", "a:1", "may come from"]),
        (WORKERS | {"task": task("master", 0)}, ["task.type is 'master'", "write one of worker"]),
        (WORKERS | {"task": task("Worker", 0)}, ["task.type is 'Worker'"]),
        (WORKERS | {"task": task(["worker"], 0)}, ["task.type is ['worker']"]),
    ],
)
def test_b3_task_errors_name_the_key_and_what_there_is(config, told):
    assert_refused(config, told)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ('{"cluster": {', ["not JSON", "character 13"]),
        ("[1]", ["[1]", "JSON object"]),
        ("null", ["None", "JSON object"]),
        ('{"task": 1, "task": 2}', ["task", "[1, 2]", "more than once"]),
        ("[" * 100_000, ["deep nesting"]),
        ('{"task": {"index": ' + "9" * 5000 + "}}", ["not readable", "numbers"]),
        ({"cluster": [1]}, ["cluster is [1]", "object"]),
        ({"task": "worker"}, ["task is 'worker'", "object"]),
        ({"service": 3}, ["service is 3", "object"]),
        ({"environment": 3}, ["environment is 3", "string"]),
        ({"session_master": 3}, ["session_master is 3", "string"]),
        ({"eval_session_master": []}, ["eval_session_master is []", "string"]),
        ({"rpc_layer": 3}, ["rpc_layer is 3", "string"]),
        ({"model_dir": 3}, ["model_dir is 3", "string"]),
        ({"model_dir": ""}, ["model_dir is ''", "leave it out"]),
        (
            {"cluster": {"ps": ["a:1"]}, "task": task("ps", 0)},
            ["cluster is", "no chief and no worker"],
        ),
        ({"cluster": {"worker": []}, "task": task("worker", 0)}, ["cluster is", "no worker"]),
        ({"cluster": {"worker": ["a:1", ""]}}, ["cluster.worker[1] is ''", "host:port"]),
        ({"cluster": {"worker": ["a"]}}, ["cluster.worker[0]", "'a'", "port is missing"]),
        ({"cluster": {"worker": "a:1"}}, ["cluster.worker is 'a:1'", "list"]),
        ({"cluster": {"worker": 3}}, ["cluster.worker is 3", "list"]),
        ({"cluster": {"worker": [["a:1"]]}}, ["cluster.worker[0] is ['a:1']"]),
        ({"cluster": {"worker": {"one": "a:1"}}}, ["index of cluster.worker is 'one'"]),
        ({"cluster": {"worker": {"-1": "a:1"}}}, ["index of cluster.worker is '-1'"]),
        ({"cluster": {"worker": {"01": "a:1"}}}, ["index of cluster.worker is '01'"]),
        ({"cluster": {"wroker": ["a:1"]}}, ["'wroker'", "did you mean 'worker'"]),
        ({"cluster": {"chief": ["a:1", "b:1"]}}, ["cluster.chief", "only one"]),
        ({"cluster": {"chief": ["a:1"], "master": ["b:1"]}}, ["cluster.master is ['b:1']"]),
        ({"cluster": {"worker": ["a:1", "a:1"]}}, ["cluster.worker[1] is 'a:1'", "worker 0"]),
        ({"sparseCluster": {"worker": {"0": "a"}}}, ["sparseCluster.worker[0]", "'a'"]),
        (
            {"cluster": {"worker": ["a:1"]}, "sparseCluster": {"worker": {"0": "b:1"}}},
            ["sparseCluster is", "beside 'cluster'"],
        ),
        (
            {"cluster": {"master": ["a:1"]}, "task": task("evaluator", 0)},
            ["task.type is 'evaluator'", "cluster.master", "rename"],
        ),
    ],
)
def test_d_20_an_error_names_tf_config_the_key_the_value_and_the_fix(config, told):
    assert_refused(config, told)


def test_cl06_arguments_win_over_the_variable():
    config = {"cluster": CLUSTER, "task": task("worker", 0), "environment": "cloud"}
    resolver = resolver_of(
        config, task_type="ps", task_id=0, rpc_layer="http", environment="google"
    )
    assert resolver.task == Task("ps", 0)
    assert resolver.rpc_layer == "http"
    assert resolver.environment == "google"


def test_cl06_arguments_may_be_all_that_names_the_task():
    assert resolver_of(WORKERS, task_type="worker", task_id=1).task == Task("worker", 1)


def test_cl06_arguments_are_checked_like_the_variable():
    with pytest.raises(ClusterError, match=r"task\.index is 7"):
        resolver_of(WORKERS, task_type="worker", task_id=7)


@pytest.mark.parametrize(
    ("config", "arguments", "url"),
    [
        ({"cluster": CLUSTER, "task": task("worker", 1)}, {}, "w1:1"),
        ({"cluster": CLUSTER, "task": task("worker", 1), "rpc_layer": "grpc"}, {}, "grpc://w1:1"),
        ({"cluster": CLUSTER, "task": task("worker", 1)}, {"rpc_layer": "grpc"}, "grpc://w1:1"),
        ({"cluster": CLUSTER, "task": task("worker", 1)}, {"task_type": "ps", "task_id": 0}, "p:1"),
        ({"cluster": CLUSTER, "task": task("evaluator", 0)}, {}, ""),
        ({"cluster": {"chief": ["c:1"]}, "task": task("chief", 0)}, {}, ""),
        (
            {"cluster": CLUSTER, "task": task("ps", 0), "session_master": "grpc://x:9"},
            {},
            "grpc://x:9",
        ),
    ],
)
def test_cl06_master_is_the_url_of_a_task(config, arguments, url):
    assert resolver_of(config).master(**arguments) == url


def test_cl13_accelerators_are_what_was_given():
    assert resolver_of({}).num_accelerators() == {}
    assert resolver_of({}, num_accelerators={"GPU": 0}).num_accelerators() == {"GPU": 0}


def test_the_log_line_says_who_said_what():
    config = {"cluster": CLUSTER, "task": task("worker", 1)}
    line = "TF_CONFIG: worker 1 of a cluster of 1 chief, 2 workers, 1 ps"
    assert resolver_of(config).describe() == line
    local = TFConfigClusterResolver(environ={})
    assert local.describe() == "no TF_CONFIG: one process, worker 0"


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
addresses = st.sampled_from(["a:1", "b:2", "[::1]:3", "", "a", "a:0", ":1", "x:99999"]) | scalars
words = st.sampled_from(["chief", "worker", "ps", "evaluator", "master", "wroker"])
indices = st.sampled_from(["0", "1", "01", "-1", "²", "x", "9" * 30])
roles = st.dictionaries(
    words | st.text(max_size=4),
    st.lists(addresses, max_size=3) | st.dictionaries(indices, addresses, max_size=3) | scalars,
    max_size=4,
)
configs = st.dictionaries(
    st.sampled_from(
        ["cluster", "sparseCluster", "task", "service", "environment", "model_dir", "rpc_layer"]
    ),
    roles
    | st.fixed_dictionaries({"type": words | scalars, "index": indices | scalars})
    | st.recursive(scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=4),
)


@settings(deadline=None)
@given(configs)
def test_whatever_tf_config_holds_it_is_understood_or_refused_with_one_kind_of_error(config):
    assert_understood_or_refused(json.dumps(config))


@settings(deadline=None)
@given(st.text() | st.binary().map(lambda b: b.decode("utf-8", "surrogateescape")))
def test_whatever_text_tf_config_is_there_is_one_kind_of_error(text):
    assert_understood_or_refused(text)


def assert_understood_or_refused(text):
    refused = None
    try:
        assert resolver_of(text).task is not None
    except ClusterError as error:
        refused = str(error)
    assert refused is None or refused.startswith("TF_CONFIG")
