"""`paceline check-cluster`: the cluster as a table, and what is wrong with it (D-01, D-20)."""

import argparse
import contextlib
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from paceline.cluster import ClusterError, ClusterSpec, Task, free_ports, local_cluster
from paceline.cluster.check import check_cluster, run_check

OWN = Task("worker", 0)


@pytest.fixture
def listening():
    """Addresses of this machine on which somebody listens."""
    with contextlib.ExitStack() as stack:

        def listen():
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield listen


def free():
    return f"127.0.0.1:{free_ports(1)[0]}"


def check(environ, capsys, timeout_secs=0.05):
    code = run_check(argparse.Namespace(timeout_secs=timeout_secs), environ)
    return code, capsys.readouterr().out


def test_all_is_well_when_everybody_answers(listening):
    spec = ClusterSpec({"worker": [free(), listening()], "ps": [listening()]})
    findings = check_cluster(spec, OWN, timeout_secs=5)
    assert [finding.task for finding in findings] == list(spec.tasks())
    assert [finding.problem for finding in findings] == ["", "", ""]
    assert findings[0].state == "free to listen on"
    assert findings[1].state.startswith("reached in")


def test_tasks_that_check_at_the_same_time_reach_each_other():
    spec = ClusterSpec({"worker": [free(), free()], "ps": [free()]})
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda own: check_cluster(spec, own, 10), spec.tasks()))
    assert not [finding for findings in found for finding in findings if finding.problem]


def test_d_01_a_task_that_is_not_there_is_named_with_its_address_and_what_to_do():
    spec = ClusterSpec({"worker": [free(), free()]})
    own, other = check_cluster(spec, OWN, timeout_secs=0.05)
    assert not own.problem
    assert (other.task, other.state) == (Task("worker", 1), "nobody listens")
    assert "start that task" in other.problem


def test_a_host_that_nobody_knows_is_named():
    spec = ClusterSpec({"worker": [free(), "no-such-host.invalid:2222"]})
    finding = check_cluster(spec, OWN, timeout_secs=0.05)[1]
    assert finding.state == "unknown host"
    assert "no-such-host.invalid is not known here" in finding.problem


def test_an_own_address_that_is_busy_names_who_has_it(listening):
    spec = ClusterSpec({"worker": [listening(), listening()]})
    finding = check_cluster(spec, OWN, timeout_secs=1)[0]
    assert f"(pid {os.getpid()})" in finding.problem


def test_an_own_address_of_another_machine_is_found_out(listening):
    spec = ClusterSpec({"worker": ["192.0.2.1:2222", listening()]})
    finding = check_cluster(spec, OWN, timeout_secs=1)[0]
    assert "is not an address of this machine" in finding.problem


def test_d_01_a_loopback_address_among_others_is_a_mistake(listening):
    spec = ClusterSpec({"worker": [free(), "no-such-host.invalid:2222"]})
    finding = check_cluster(spec, OWN, timeout_secs=0.05)[0]
    assert "127.0.0.1 means another machine on each machine" in finding.problem


def test_an_evaluator_is_not_tried(listening):
    spec = ClusterSpec({"worker": [free(), listening()], "evaluator": ["nowhere.invalid:1"]})
    finding = check_cluster(spec, OWN, timeout_secs=1)[-1]
    assert (finding.state, finding.problem) == ("needs no address", "")


def test_the_table_shows_every_task_and_marks_this_one(capsys):
    config = local_cluster(2, num_ps=1)[1]
    code, out = check({"TF_CONFIG": json.dumps(config)}, capsys)
    assert code == 1
    assert "TF_CONFIG: worker 1 of a cluster of 2 workers, 1 ps" in out
    for address in config["cluster"]["worker"] + config["cluster"]["ps"]:
        assert address in out
    assert "worker 1 (this process)" in out
    assert "worker 0: 127.0.0.1 answers, but nobody listens" in out


SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("cluster", "token", "is_told"),
    [
        (["no-such-host.invalid:1", "no-such-host.invalid:2"], "", True),
        (["no-such-host.invalid:1", "no-such-host.invalid:2"], SECRET, False),
        (["127.0.0.1:1", "127.0.0.1:2"], "", False),
    ],
)
def test_e3_a_missing_secret_is_told_where_other_machines_can_call(capsys, cluster, token, is_told):
    config = {"cluster": {"worker": cluster}, "task": {"type": "evaluator", "index": 0}}
    environ = {"TF_CONFIG": json.dumps(config), "PACELINE_TOKEN": token}
    _, out = check(environ, capsys)
    assert ("neither PACELINE_TOKEN nor PACELINE_TOKEN_FILE is set" in out) is is_told
    assert SECRET not in out


def test_one_process_has_nobody_to_reach(capsys):
    code, out = check({}, capsys)
    assert code == 0
    assert "one process" in out


def test_under_mpirun_there_are_no_addresses_to_try(capsys):
    code, out = check({"PMI_RANK": "0", "PMI_SIZE": "2"}, capsys)
    assert code == 0
    assert out.count("address not told") == 2


def test_a_wrong_description_is_an_error(capsys):
    with pytest.raises(ClusterError, match="TF_CONFIG is not JSON"):
        check({"TF_CONFIG": "{"}, capsys)
