"""`paceline check-cluster`: the cluster as a table, and whether its addresses can be reached."""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from .addresses import bind_problem, is_loopback, split_address
from .launchers import resolve
from .spec import ClusterSpec, Task
from .token import MAKE_ONE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, job_token, needs_token

_DESCRIPTION = """
Show the cluster that TF_CONFIG or the variables of a launcher describe, listen on this
task's own address, and try to connect to all others until --timeout-secs have passed. Run it on
all machines at the same time, with a timeout that lets you start them all, before the job itself.
The exit code is 0 if all is well, 1 if an address is not, 2 if the description is wrong.
"""
_RETRY_SECS = 0.1
_LINGER_SECS = 0.5


@dataclass(frozen=True)
class Finding:
    """What was found out about one task's address; `problem` says what is wrong and what to do."""

    task: Task
    address: str
    state: str
    problem: str = ""


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.add_argument(
        "--timeout-secs",
        type=float,
        default=3.0,
        metavar="S",
        help="how long to try to reach the others (3)",
    )


def run_check(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> int:
    """Carry out `paceline check-cluster`; its exit code."""
    resolver = resolve(environ)
    spec = resolver.cluster_spec()
    print(resolver.describe())
    if not spec:
        print("There is nobody to reach.")
        return 0
    token = job_token(environ)
    findings = check_cluster(spec, resolver.task, arguments.timeout_secs)
    _print_table(findings, resolver.task)
    if token is None and needs_token(spec):
        print(
            f"neither {TOKEN_VARIABLE} nor {TOKEN_FILE_VARIABLE} is set: workers that other "
            f"machines can call refuse to listen without the job's secret; {MAKE_ONE}: give the "
            f"same one to all tasks"
        )
    problems = [finding for finding in findings if finding.problem]
    for finding in problems:
        print(f"{finding.task}: {finding.problem}")
    return 1 if problems else 0


def check_cluster(spec: ClusterSpec, own: Task | None, timeout_secs: float) -> list[Finding]:
    """Listen on the address of `own`, call all others at the same time; one finding a task."""
    tasks = spec.tasks()
    deadline = time.monotonic() + timeout_secs
    with ExitStack() as listening, ThreadPoolExecutor(max_workers=min(32, len(tasks))) as pool:
        found = {
            task: _listen(task, spec.address(task), listening)
            for task in tasks
            if task == own and _is_served(spec, task)
        }
        tries = {
            task: pool.submit(_reach, task, spec.address(task), deadline)
            for task in tasks
            if task != own and _is_served(spec, task)
        }
        found |= {task: future.result() for task, future in tries.items()}
        found |= {task: _unserved(spec, task) for task in tasks if task not in found}
        if tries and not any(finding.problem for finding in found.values()):
            time.sleep(_LINGER_SECS)  # those who try us as we try them may need another attempt
    return [_not_for_all(spec, found[task]) for task in tasks]


def _is_served(spec: ClusterSpec, task: Task) -> bool:
    return task.type != "evaluator" and bool(spec.address(task))


def _unserved(spec: ClusterSpec, task: Task) -> Finding:
    if task.type == "evaluator":
        return Finding(task, spec.address(task), "needs no address")
    return Finding(task, "", "address not told")


def _listen(task: Task, address: str, listening: ExitStack) -> Finding:
    """Listen on our own address. The kernel accepts connections, nobody needs to."""
    host, port = split_address(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = listening.enter_context(socket.socket(family, kind, protocol))
        # Connections of a job that has just ended are no obstacle.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(place)
        server.listen(128)
    except OSError as error:
        return Finding(task, address, "cannot be listened on", bind_problem(address, error))
    return Finding(task, address, "free to listen on")


def _reach(task: Task, address: str, deadline: float) -> Finding:
    """Connect to another task, again and again until the deadline."""
    while True:
        started = time.monotonic()
        try:
            _connect(address, max(0.05, deadline - started))
        except OSError as error:
            if time.monotonic() + _RETRY_SECS >= deadline:
                return Finding(task, address, *_why_not(address, error))
            time.sleep(_RETRY_SECS)
        else:
            return Finding(task, address, f"reached in {1e3 * (time.monotonic() - started):.0f} ms")


def _connect(address: str, timeout_secs: float) -> None:
    with socket.create_connection(split_address(address), timeout=timeout_secs) as connection:
        # On loopback, a connection to a port that nobody listens on may meet itself.
        if connection.getsockname() == connection.getpeername():
            raise ConnectionRefusedError("nobody listens there")


def _why_not(address: str, error: OSError) -> tuple[str, str]:
    """State and problem of an address that was not reached."""
    host, port = split_address(address)
    if isinstance(error, socket.gaierror):
        return "unknown host", bind_problem(address, error)
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens", (
            f"{host} answers, but nobody listens on port {port}; start that task, or "
            f"'paceline check-cluster --timeout-secs 60' there at the same time"
        )
    if isinstance(error, TimeoutError):
        return "no answer", (
            f"{host} does not answer on port {port}; see that the machine is up, and that no "
            f"firewall drops connections to this port"
        )
    return ("not reached", f"{host} cannot be reached: {error}; see that both are in one network")


def _not_for_all(spec: ClusterSpec, finding: Finding) -> Finding:
    """A loopback address in a cluster that has other addresses too is a mistake."""
    if finding.problem or not finding.address or finding.task.type == "evaluator":
        return finding
    hosts = [split_address(a)[0] for kind in spec.jobs for a in spec.addresses(kind) if a]
    host = split_address(finding.address)[0]
    if not is_loopback(host) or all(map(is_loopback, hosts)):
        return finding
    problem = (
        f"{host} means another machine on each machine, and this cluster has several; write the "
        f"name under which the others reach {finding.task}"
    )
    return Finding(finding.task, finding.address, finding.state, problem)


def _print_table(findings: list[Finding], own: Task | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("task", "address", "found")
    for finding in findings:
        mark = " (this process)" if finding.task == own else ""
        state = f"[{'red' if finding.problem else 'green'}]{escape(finding.state)}"
        table.add_row(f"{finding.task}{mark}", escape(finding.address) or "-", state)
    console = Console()
    if not console.is_terminal:  # a log file: do not fold what somebody may search for
        console = Console(width=160)
    console.print(table)
