"""Clusters on this machine, its ports and cores (CL-08, CL-09)."""

import json
import os
import socket
import subprocess
import sys

import pytest

import paceline
from paceline.cluster import (
    ClusterError,
    Task,
    TFConfigClusterResolver,
    addresses,
    bind_problem,
    free_ports,
    hold_port,
    is_loopback,
    local_cluster,
    num_cores,
    port_owner,
    task_info_of,
)


def test_cl09_local_cluster_builds_tf_config_for_each_task():
    configs = local_cluster(2, chief=True, num_ps=1, evaluator=True)
    resolvers = [TFConfigClusterResolver(environ={"TF_CONFIG": json.dumps(c)}) for c in configs]
    assert [str(r.task) for r in resolvers] == [
        "chief 0",
        "worker 0",
        "worker 1",
        "ps 0",
        "evaluator 0",
    ]
    assert len({r.cluster_spec() for r in resolvers}) == 1
    spec = resolvers[0].cluster_spec()
    found = [spec.address(task) for task in spec.tasks()]
    assert len(set(found)) == 5
    assert all(address.startswith("127.0.0.1:") for address in found)


@pytest.mark.parametrize("evaluator", [False, True])
def test_the_workers_know_whether_an_evaluator_is_beside_them(evaluator):
    for config in local_cluster(2, evaluator=evaluator):
        resolver = TFConfigClusterResolver(environ={"TF_CONFIG": json.dumps(config)})
        place = task_info_of(resolver, with_strategy=True)
        assert place.has_evaluator is evaluator
        assert place.num_worker_replicas == (0 if place.task_type == "evaluator" else 2)


def test_cl09_the_two_workers_of_the_tutorial():
    first, second = local_cluster(2)
    assert first["cluster"] == second["cluster"]
    assert [c["task"] for c in (first, second)] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]


@pytest.mark.parametrize("counts", [(0, 0), (-1, 0), (2, -1)])
def test_a_cluster_without_anybody_to_train_is_refused(counts):
    with pytest.raises(ClusterError, match="ask for at least one"):
        local_cluster(counts[0], num_ps=counts[1])


def test_free_ports_are_different_and_can_be_listened_on():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_free_ports_are_outside_the_range_of_outgoing_connections():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as text:
        first = int(text.read().split()[0])
    assert all(port < first for port in free_ports(50))


def test_a_port_that_is_listened_on_is_not_free(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(addresses, "_candidates", lambda: [server.getsockname()[1]])
        assert free_ports(1) == ()


def test_a_port_is_given_once_by_all_processes_of_the_machine(monkeypatch):
    """Before its task listens, and while it does, and when it has ended."""
    ports = free_ports(2)
    monkeypatch.setattr(addresses, "_candidates", lambda: ports)
    assert free_ports(1) == ()
    ask = f"from paceline.cluster import addresses; addresses._candidates = lambda: {ports}; "
    ask += "print(addresses.free_ports(1))"
    for _ in range(2):
        assert subprocess.check_output([sys.executable, "-c", ask], text=True) == "()\n"
        with socket.create_server(("127.0.0.1", ports[0])):  # as servers do, with SO_REUSEADDR
            assert free_ports(1) == ()


def test_who_asks_for_ports_again_and_again_lets_the_oldest_go():
    host = "127.0.0.77"  # where nobody else asks
    (first,) = free_ports(1, host)
    with pytest.raises(OSError, match="in use"):
        hold_port(host, first)
    free_ports(addresses._MOST_HELD, host)
    assert len(addresses._held) == addresses._MOST_HELD
    assert hold_port(host, first) == first


def test_ports_of_another_machine_are_refused():
    with pytest.raises(OSError, match="assign"):
        free_ports(1, "192.0.2.1")


def test_cl08_a_busy_port_names_its_owner():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"(pid {os.getpid()})" in port_owner(port)
        with pytest.raises(OSError, match="in use") as caught:
            socket.create_server(("127.0.0.1", port))
        text = bind_problem(f"127.0.0.1:{port}", caught.value)
        assert f"port {port} is in use by" in text
        assert f"(pid {os.getpid()})" in text
    assert port_owner(port) is None


def test_cl08_an_address_of_another_machine_says_so():
    with pytest.raises(OSError, match="assign") as caught:
        socket.create_server(("192.0.2.1", 2222))
    assert "192.0.2.1 is not an address of this machine" in bind_problem(
        "192.0.2.1:2222", caught.value
    )


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("127.a", False),
        ("host", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_hosts(host, loopback):
    assert is_loopback(host) is loopback


def test_there_is_at_least_one_core():
    assert 1 <= num_cores() <= os.cpu_count()


def test_reading_the_cluster_needs_nothing_but_the_standard_library():
    code = """
import sys, types
root = types.ModuleType("paceline")
root.__path__ = sys.argv[1:]
sys.modules["paceline"] = root
from paceline.cluster import resolve
resolve({"TF_CONFIG": '{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}'})
heavy = {"numpy", "pydantic", "rich", "grpc", "mpi4py", "asyncio"} & set(sys.modules)
assert not heavy, heavy
"""
    package = os.path.dirname(paceline.__file__)
    subprocess.run([sys.executable, "-c", code, package], check=True)


def test_a_task_is_a_value():
    assert Task("ps", 1) == Task("ps", 1)
    assert len({Task("ps", 1), Task("ps", 1)}) == 1
