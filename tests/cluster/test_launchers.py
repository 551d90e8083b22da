"""Resolvers from the variables of mpirun, srun and torchrun; and who is believed (CL-14, CL-17)."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster import (
    ClusterError,
    ClusterSpec,
    MPIClusterResolver,
    SlurmClusterResolver,
    Task,
    TorchrunClusterResolver,
    job_id,
    resolve,
    restart_count,
)
from paceline.cluster.ranks import expand_nodes, hosts_of_ranks, tasks_per_node

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "1"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"}
JSRUN = {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "3"}
SRUN_PMIX = {"PMIX_RANK": "1", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "node[01-02]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_JOB_ID": "7",
}
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "host-a",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RUN_ID": "none",
}
TF_CONFIG = {
    "TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
}


@pytest.mark.parametrize("environ", [OPEN_MPI, MPICH, JSRUN, SRUN_PMIX])
def test_cl14_ranks_of_mpirun_are_workers(environ):
    resolver = MPIClusterResolver(environ=environ)
    assert resolver.task == Task("worker", 1)
    assert resolver.cluster_spec().num_tasks("worker") == 3
    assert resolver.cluster_spec().chief() == Task("worker", 0)
    assert resolver.master() == ""


@pytest.mark.parametrize(
    ("roles", "tasks"),
    [
        ("", "worker 0, worker 1, worker 2, worker 3, worker 4, worker 5"),
        ("evaluator", "worker 0, worker 1, worker 2, worker 3, worker 4, evaluator 0"),
        ("chief,ps=1,evaluator=1", "chief 0, worker 0, worker 1, worker 2, ps 0, evaluator 0"),
        (" ps=2 , chief ", "chief 0, worker 0, worker 1, worker 2, ps 0, ps 1"),
    ],
)
def test_cl14_a_switch_gives_ranks_other_roles(roles, tasks):
    environs = [
        {"PMI_RANK": str(rank), "PMI_SIZE": "6", "PACELINE_ROLES": roles} for rank in range(6)
    ]
    found = [str(MPIClusterResolver(environ=environ).task) for environ in environs]
    assert ", ".join(found) == tasks


def test_cl14_roles_may_be_given_by_value():
    resolver = MPIClusterResolver({"evaluator": 1}, environ=MPICH | {"PMI_RANK": "2"})
    assert resolver.task == Task("evaluator", 0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"PACELINE_ROLES": "trainer"}, ["PACELINE_ROLES", "'trainer'", "for example"]),
        ({"PACELINE_ROLES": "ps=two"}, ["PACELINE_ROLES", "'ps=two'"]),
        ({"PACELINE_ROLES": "ps,ps"}, ["PACELINE_ROLES", "'ps'"]),
        ({"PACELINE_ROLES": "ps=3"}, ["3 processes", "leave none to train"]),
        ({"PACELINE_ROLES": "ps=9"}, ["3 processes", "do not fit"]),
        ({"PMI_RANK": "x"}, ["PMI_RANK is 'x'", "mpirun"]),
        ({"PMI_SIZE": "-1"}, ["PMI_SIZE is '-1'", "mpirun"]),
        ({"PMI_RANK": "3"}, ["rank 3 of 3", "0 to 2"]),
    ],
)
def test_wrong_variables_of_mpirun_are_refused_by_name(change, told):
    with pytest.raises(ClusterError) as caught:
        MPIClusterResolver(environ=MPICH | change)
    for text in told:
        assert text in str(caught.value)


def test_without_mpirun_its_resolver_says_how_to_start():
    with pytest.raises(ClusterError, match="no mpirun started this process"):
        MPIClusterResolver(environ={})


@pytest.mark.parametrize("environ", [MPICH, TORCHRUN, SRUN])
def test_a_world_of_one_is_a_job_of_one_process(environ):
    one = {"PMI_RANK": "0", "PMI_SIZE": "1", "RANK": "0", "WORLD_SIZE": "1"}
    one |= {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0"}
    one |= {"SLURM_STEP_NODELIST": "a", "SLURM_STEP_TASKS_PER_NODE": "1"}
    resolver = resolve({name: one.get(name, value) for name, value in environ.items()})
    assert resolver.task == Task("worker", 0)
    assert not resolver.cluster_spec()


def test_srun_gives_hosts_ports_and_ranks():
    resolver = SlurmClusterResolver(environ=SRUN)
    assert resolver.cluster_spec().addresses("worker") == (
        "node01:8888",
        "node01:8889",
        "node02:8888",
        "node02:8889",
    )
    assert resolver.task == Task("worker", 3)
    assert resolver.master() == "grpc://node02:8889"


@pytest.mark.parametrize(
    ("change", "addresses"),
    [
        (
            {"SLURM_DISTRIBUTION": "cyclic", "SLURM_PROCID": "3"},
            ("node01:7000", "node02:7000", "node01:7001", "node02:7001"),
        ),
        (
            {"SLURM_STEP_TASKS_PER_NODE": "1,3", "SLURM_LOCALID": "2"},
            ("node01:7000", "node02:7000", "node02:7001", "node02:7002"),
        ),
    ],
)
def test_srun_may_distribute_tasks_otherwise(change, addresses):
    resolver = SlurmClusterResolver(port_base=7000, environ=SRUN | change)
    assert resolver.cluster_spec().addresses("worker") == addresses


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"SLURM_STEP_NODELIST": "node[1"}, ["'node[1'", "node[01-04,07]"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x"}, ["'2(x'", "2(x3),1"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "3,3"}, ["2 nodes and 4 tasks", "'3,3'"]),
        ({"SLURM_LOCALID": "0"}, ["SLURM_LOCALID is 0", "block or cyclic"]),
        ({"SLURM_PROCID": "4"}, ["rank 4 of 4"]),
        ({"SLURM_PROCID": ""}, ["SLURM_PROCID is ''"]),
    ],
)
def test_wrong_variables_of_srun_are_refused_by_name(change, told):
    with pytest.raises(ClusterError) as caught:
        SlurmClusterResolver(environ=SRUN | change)
    for text in told:
        assert text in str(caught.value)


def test_without_srun_its_resolver_says_how_to_start():
    with pytest.raises(ClusterError, match=r"SLURM_NTASKS is not set.*srun"):
        SlurmClusterResolver(environ={})
    bare = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    with pytest.raises(ClusterError, match="SLURM_NODELIST"):
        SlurmClusterResolver(environ=bare)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", "a"),
        ("a,b.example.org", "a b.example.org"),
        ("n[1-3,7],login", "n1 n2 n3 n7 login"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[1-2]-ib", "n1-ib n2-ib"),
        ("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"),
        ("a[1],b[2]", "a1 b2"),
    ],
)
def test_slurm_node_lists(text, hosts):
    assert expand_nodes(text) == tuple(hosts.split())


@pytest.mark.parametrize("text", ["", ",", "a,,b", "a[", "a]", "a[]", "a[3-1]", "a[[1]]", "a[1-]"])
def test_malformed_slurm_node_lists_are_refused(text):
    with pytest.raises(ClusterError, match="node list"):
        expand_nodes(text)


@settings(deadline=None)
@given(st.text(alphabet="an0123456789[]-,", max_size=20))
def test_any_slurm_node_list_is_understood_or_refused(text):
    with contextlib.suppress(ClusterError):
        assert expand_nodes(text)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 12), st.booleans())
def test_every_rank_has_a_host_and_a_task_info_of_its_own(num_nodes, num_tasks, cyclic):
    hosts = tuple(f"n{i}" for i in range(num_nodes))
    counts = tasks_per_node(None, num_nodes, num_tasks)
    places = hosts_of_ranks(hosts, counts, cyclic)
    assert len(set(places)) == len(places) == num_tasks
    assert max(counts) - min(counts) <= 1


def test_torchrun_on_one_node_numbers_ports_from_its_own():
    resolver = TorchrunClusterResolver(environ=TORCHRUN)
    assert resolver.task == Task("worker", 1)
    assert resolver.cluster_spec().addresses("worker") == ("host-a:29401", "host-a:29402")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_master_on_loopback_is_one_node_whatever_else_is_said(host):
    environ = {k: v for k, v in TORCHRUN.items() if k != "LOCAL_WORLD_SIZE"} | {"MASTER_ADDR": host}
    addresses = TorchrunClusterResolver(environ=environ).cluster_spec().addresses("worker")
    assert [address.rsplit(":", 1)[1] for address in addresses] == ["29401", "29402"]


def test_torchrun_on_several_nodes_tells_the_first_address():
    environ = TORCHRUN | {"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "2001:db8::1"}
    resolver = TorchrunClusterResolver(environ=environ)
    assert resolver.cluster_spec().addresses("worker") == ("[2001:db8::1]:29401", "")


def test_without_torchrun_nobody_else_listens_on_the_master_s_port():
    """As in a Kubernetes job, whose service may let no other port through."""
    environ = {
        k: v for k, v in TORCHRUN.items() if k not in ("TORCHELASTIC_RUN_ID", "LOCAL_WORLD_SIZE")
    }
    addresses = resolve(environ).cluster_spec().addresses("worker")
    assert addresses == ("host-a:29400", "")


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_missing_variables_of_torchrun_are_refused_by_name(missing):
    on_two_nodes = TORCHRUN | {"LOCAL_WORLD_SIZE": "1"}
    environ = {name: value for name, value in on_two_nodes.items() if name != missing}
    with pytest.raises(ClusterError, match=missing):
        TorchrunClusterResolver(environ=environ)


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({}, "no TF_CONFIG"),
        ({"TF_CONFIG": "{}"}, "TF_CONFIG"),
        (TF_CONFIG | TORCHRUN | MPICH | SRUN, "TF_CONFIG"),
        (TORCHRUN | MPICH | SRUN, "torchrun (RANK)"),
        (OPEN_MPI | SRUN, "MPI (OMPI_COMM_WORLD_RANK)"),
        (MPICH | SRUN, "MPI (PMI_RANK)"),
        (SRUN, "Slurm (SLURM_PROCID)"),
        (SRUN | {"SLURM_JOB_NAME": "bash"}, "no TF_CONFIG"),
        (SRUN | {"SLURM_JOB_NAME": "interactive"}, "no TF_CONFIG"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "no TF_CONFIG"),
        ({k: v for k, v in TORCHRUN.items() if "ELASTIC" not in k}, "torchrun (RANK)"),
        ({"RANK": "1"}, "no TF_CONFIG"),  # a name that anybody may use
        ({"RANK": "0", "WORLD_SIZE": "1"}, "torchrun (RANK)"),
        ({"TF_CONFIG": '{"environment": "cloud"}'} | MPICH, "MPI (PMI_RANK)"),
    ],
)
def test_the_innermost_launcher_is_believed(environ, source):
    assert resolve(environ).source == source


JAX = {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "a:29500"}
KUBEFLOW = {
    "PET_NODE_RANK": "1",
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "auto",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29500",
}
FLUX = {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "1", "FLUX_JOB_ID": "f1"}
HOROVOD = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}
SKYPILOT = {
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n",
    "SKYPILOT_NUM_GPUS_PER_NODE": "4",
}
VOLCANO = {"VC_TASK_INDEX": "1", "VC_NODE_HOSTS": "job-node-0.job,job-node-1.job"}
SAGEMAKER = {"SM_HOSTS": '["algo-2", "algo-1"]', "SM_CURRENT_HOST": "algo-2"}
RANK_0 = {"MASTER_ADDR": "b", "MASTER_PORT": "5000"}


@pytest.mark.parametrize(
    ("environ", "source", "addresses"),
    [
        (JAX, "JAX (JAX_PROCESS_ID)", ("a:29500", "")),
        (
            JAX | {"JAX_COORDINATOR_ADDRESS": "[::1]:7"},
            "JAX (JAX_PROCESS_ID)",
            ("[::1]:7", "[::1]:8"),
        ),
        (KUBEFLOW, "Kubeflow (PET_NODE_RANK)", ("job-node-0-0.job:29500", "")),
        (FLUX, "Flux (FLUX_TASK_RANK)", ("127.0.0.1:8888", "127.0.0.1:8889")),
        (FLUX | {"FLUX_JOB_NNODES": "2"} | RANK_0, "Flux (FLUX_TASK_RANK)", ("b:5000", "")),
        (HOROVOD, "Horovod (HOROVOD_RANK)", ("127.0.0.1:8888", "127.0.0.1:8889")),
        (HOROVOD | {"HOROVOD_LOCAL_SIZE": "1"} | RANK_0, "Horovod (HOROVOD_RANK)", ("b:5000", "")),
        (SKYPILOT, "SkyPilot (SKYPILOT_NODE_RANK)", ("10.0.0.1:2222", "10.0.0.2:2222")),
        (
            SKYPILOT | {"MASTER_PORT": "5000"},
            "SkyPilot (SKYPILOT_NODE_RANK)",
            ("10.0.0.1:5000", "10.0.0.2:5000"),
        ),
        (VOLCANO, "Volcano (VC_TASK_INDEX)", ("job-node-0.job:2222", "job-node-1.job:2222")),
        (
            {"VK_TASK_INDEX": "1", "VC_NODE_HOSTS": "localhost,localhost"},
            "Volcano (VK_TASK_INDEX)",
            ("localhost:2222", "localhost:2223"),
        ),
        (SAGEMAKER, "SageMaker (SM_CURRENT_HOST)", ("algo-1:2223", "algo-2:2223")),
    ],
)
def test_each_launcher_tells_rank_1_who_and_where_it_is(environ, source, addresses):
    resolver = resolve(environ)
    assert resolver.source == source
    assert resolver.task == Task("worker", 1)
    assert resolver.cluster_spec().addresses("worker") == addresses


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, ["RANK=1", "MASTER_ADDR is not set"]),
        ({"WORLD_SIZE": "2"}, ["WORLD_SIZE=2", "RANK is not set"]),
        ({"OMPI_COMM_WORLD_RANK": "1"}, ["OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not"]),
        ({"PMIX_RANK": "1"}, ["PMIX_RANK=1", "SLURM_STEP_NUM_TASKS is not set"]),
        ({"PALS_RANKID": "1"}, ["PALS_RANKID=1", "PMI_SIZE is not set"]),
        ({"JAX_NUM_PROCESSES": "2"}, ["JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID is not set"]),
        (JAX | {"JAX_COORDINATOR_ADDRESS": ""}, ["JAX_COORDINATOR_ADDRESS is not set"]),
        (KUBEFLOW | {"PET_NPROC_PER_NODE": "2"}, ["PET_NPROC_PER_NODE is 2", "torchrun"]),
        (KUBEFLOW | {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2"}, ["PET_NPROC_PER_NODE is 2"]),
        (KUBEFLOW | {"PET_MASTER_PORT": ""}, ["PET_MASTER_PORT is not set"]),
        (FLUX | {"FLUX_JOB_NNODES": "2"}, ["FLUX_TASK_RANK=1", "set MASTER_ADDR and MASTER_PORT"]),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}, ["HOROVOD_SIZE=2", "MASTER_ADDR"]),
        (
            SKYPILOT | {"SKYPILOT_NODE_IPS": ""},
            ["SKYPILOT_NODE_RANK=1", "SKYPILOT_NODE_IPS is not"],
        ),
        ({"VC_TASK_INDEX": "0"}, ["VC_TASK_INDEX=0", "VC_*_HOSTS is not set"]),
        (VOLCANO | {"VC_PS_HOSTS": "x"}, ["VC_NODE_HOSTS, VC_PS_HOSTS"]),
        ({"SM_CURRENT_HOST": "algo-1"}, ["SM_CURRENT_HOST=algo-1", "SM_HOSTS is not set"]),
        (SAGEMAKER | {"SM_CURRENT_HOST": "algo-3"}, ["'algo-3'", "none of SM_HOSTS"]),
    ],
)
def test_one_of_several_that_cannot_find_the_others_is_refused_by_name(environ, named):
    """It would train alone otherwise, as chief, and so would each of the others."""
    with pytest.raises(ClusterError) as caught:
        resolve(environ)
    for text in (*named, "TF_CONFIG", "PACELINE_ALONE=1"):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (FLUX | {"FLUX_TASK_RANK": "2"}, "rank 2 of 2"),
        (VOLCANO | {"VC_TASK_INDEX": "2"}, "rank 2 of 2"),
        (SKYPILOT | {"SKYPILOT_NUM_NODES": "3"}, "lists 2 hosts, but SKYPILOT_NUM_NODES is 3"),
        (SAGEMAKER | {"SM_HOSTS": '["algo-1"'}, "SM_HOSTS is"),
        (KUBEFLOW | {"PET_NNODES": "1:4"}, "PET_NNODES is '1:4'"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": "a:b"}, "JAX_COORDINATOR_ADDRESS is 'b'"),
    ],
)
def test_variables_that_contradict_each_other_are_refused_by_name(environ, told):
    with pytest.raises(ClusterError, match=told):
        resolve(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"JAX_NUM_PROCESSES": "1"},
        {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "0"},
        {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "1"},
        {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"},
        {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "1"},
        {"VC_TASK_INDEX": "0", "VC_NODE_HOSTS": "job-node-0.job"},
        {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"},
        {
            "JOB_COMPLETION_INDEX": "3"
        },  # an indexed Job whose pods have nothing to do with each other
        {"PACELINE_ALONE": "0"},
        *({"PACELINE_ALONE": "1"} | several for several in (JAX, FLUX, SRUN, MPICH, TF_CONFIG)),
        {"PACELINE_ALONE": "1", "WORLD_SIZE": "2", "PACELINE_ROLES": "evaluator"},
    ],
)
def test_a_job_of_one_and_a_process_that_is_alone_on_purpose_are_alone(environ):
    resolver = resolve(environ)
    assert resolver.task == Task("worker", 0)
    assert not resolver.cluster_spec()


def test_another_value_of_paceline_alone_is_refused():
    with pytest.raises(ClusterError, match="PACELINE_ALONE must be 1 or 0, got 'yes'"):
        resolve({"PACELINE_ALONE": "yes"})


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        (FLUX | {"PMI_RANK": "1", "PMI_SIZE": "2"}, "MPI (PMI_RANK)"),  # of a program for MPI
        (FLUX | SRUN, "Flux (FLUX_TASK_RANK)"),  # Flux in a job of Slurm
        ({"JAX_NUM_PROCESSES": "4"} | SRUN, "Slurm (SLURM_PROCID)"),
        (KUBEFLOW | TORCHRUN, "torchrun (RANK)"),
        (SKYPILOT | RANK_0 | {"RANK": "1", "WORLD_SIZE": "2"}, "torchrun (RANK)"),
    ],
)
def test_the_first_launcher_that_tells_enough_is_believed(environ, source):
    assert resolve(environ).source == source


def test_a_shared_tf_config_takes_the_index_from_the_indexed_job():
    shared = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}'
    resolver = resolve({"TF_CONFIG": shared, "JOB_COMPLETION_INDEX": "1"})
    assert resolver.task == Task("worker", 1)
    resolver = resolve(TF_CONFIG | {"JOB_COMPLETION_INDEX": "0"})
    assert resolver.task == Task("worker", 1), "an index that TF_CONFIG has is its own"


def test_a_broken_tf_config_is_an_error_whoever_else_speaks():
    with pytest.raises(ClusterError, match="TF_CONFIG is not JSON"):
        resolve(MPICH | {"TF_CONFIG": "{"})


def test_all_tasks_agree_on_the_name_of_the_job():
    with_evaluator = ClusterSpec({"worker": ["a:1", "b:1"], "evaluator": ["c:1"]})
    without = with_evaluator.without_evaluator()
    assert job_id(with_evaluator, {}) == job_id(without, {})
    assert job_id(without, {}) != job_id(ClusterSpec({"worker": ["a:1", "b:2"]}), {})
    assert job_id(without, {"SLURM_JOB_ID": "1"}) != job_id(without, {"SLURM_JOB_ID": "2"})
    assert job_id(without, {"PACELINE_JOB_ID": "mine"}) == "mine"


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({}, 0),
        ({"PACELINE_RESTART_COUNT": "0"}, 0),
        ({"PACELINE_RESTART_COUNT": "2"}, 2),
        ({"TORCHELASTIC_RESTART_COUNT": "1"}, 1),
        ({"SLURM_RESTART_COUNT": "3", "PACELINE_RESTART_COUNT": "1"}, 3),
        ({"SLURM_RESTART_COUNT": "odd"}, 0),
    ],
)
def test_how_often_a_job_was_started_before(environ, count):
    assert restart_count(environ) == count
