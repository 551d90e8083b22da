"""Clusters on this machine, for demonstrations and tests."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path
from typing import Any

from .errors import ClusterError
from .spec import Task

LOOPBACK = "127.0.0.1"


def local_cluster(
    num_workers: int,
    *,
    chief: bool = False,
    num_ps: int = 0,
    evaluator: bool = False,
    host: str = LOOPBACK,
) -> tuple[dict[str, Any], ...]:
    """TF_CONFIG for each task of a cluster on this machine, on ports that are free now.

        configs = local_cluster(2)
        os.environ["TF_CONFIG"] = json.dumps(configs[0])

    Args:
        num_workers: How many workers.
        chief: Whether there is a chief beside them; else worker 0 is the chief.
        num_ps: How many parameter servers.
        evaluator: Whether there is an evaluator. The workers see it listed, and leave evaluation to
            it; nobody calls its address.
        host: The address of this machine to listen on.

    Returns:
        One dict a task: chief, workers, ps, evaluator.

    Raises:
        ClusterError: Nobody would train.
    """
    counts = {
        "chief": int(chief),
        "worker": num_workers,
        "ps": num_ps,
        "evaluator": int(evaluator),
    }
    if num_workers < 0 or num_ps < 0 or not (chief or num_workers):
        raise ClusterError(
            f"a cluster of {num_workers} workers and {num_ps} ps, {'with' if chief else 'without'} "
            f"a chief, has nobody to train; ask for at least one worker or a chief"
        )
    tasks = [Task(kind, index) for kind, count in counts.items() for index in range(count)]
    cluster: dict[str, list[str]] = {}
    for task, port in zip(tasks, free_ports(len(tasks), host), strict=True):
        cluster.setdefault(task.type, []).append(f"{host}:{port}")
    return tuple(
        {"cluster": cluster, "task": {"type": task.type, "index": task.index}} for task in tasks
    )


def free_ports(count: int, host: str = LOOPBACK) -> tuple[int, ...]:
    """Ports of this machine that nobody listens on now.

    They are taken from below the range from which the system numbers outgoing connections, so that
    none of those takes one before its task listens on it.
    """
    low, high = 15_000, _first_outgoing_port()
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(low, high), high - low):
        if len(ports) == count:
            break
        if _is_free(host, port):
            ports.append(port)
    return tuple(ports)


def _first_outgoing_port() -> int:
    """Where the range of outgoing connections begins; Linux's default where it is not told."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > 16_000 else 60_000


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host.strip("[]"), port))
        except OSError:
            return False
    return True


def num_cores() -> int:
    """The cores this process may use: its affinity, less what a container's quota takes away."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or no quota ("max")
        return cores
