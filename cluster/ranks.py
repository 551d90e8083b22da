"""What the processes that a launcher numbers are: their roles, and Slurm's lists of their hosts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from .spec import TASK_TYPES, ClusterError, ClusterSpec, Task, shown

ROLES_VARIABLE = "PACELINE_ROLES"
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COUNT = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")
_MAX_NODES = 100_000
_ROLE = re.compile(r"(chief|ps|evaluator)(?:=([0-9]{1,6}))?")


def roles_from(environ: Mapping[str, str]) -> dict[str, int]:
    """How many ranks are not workers, from PACELINE_ROLES; see `MPIClusterResolver`."""
    roles: dict[str, int] = {}
    text = environ.get(ROLES_VARIABLE, "")
    for part in filter(None, (p.strip() for p in text.split(","))):
        found = _ROLE.fullmatch(part)
        if found is None or found[1] in roles:
            raise ClusterError(
                f"{ROLES_VARIABLE} is {shown(text)}, where {shown(part)} is not a role with a "
                f"number; write for example 'evaluator' or 'chief,ps=2,evaluator'"
            )
        roles[found[1]] = int(found[2] or 1)
    return roles


def tasks_of_ranks(size: int, roles: Mapping[str, int], source: str) -> tuple[Task, ...]:
    """The task of each rank: chief, then workers, then ps, then evaluator.

    Workers may be left out of `roles`: they are the rest. `source` counts the ranks, for the error.
    """
    unknown = set(roles) - set(TASK_TYPES)
    if unknown:
        raise ClusterError(f"{shown(min(unknown))} is no role; use {', '.join(TASK_TYPES)}")
    others = sum(number for kind, number in roles.items() if kind != "worker")
    counts = {"worker": size - others, **roles}
    trainers = counts["worker"] + counts.get("chief", 0)
    if others + counts["worker"] != size or counts["worker"] < 0 or trainers < 1:
        raise ClusterError(
            f"{source} started {size} processes, but the roles {shown(dict(roles))} do not fit: "
            f"they add up to another number, or leave none to train; start more processes or "
            f"change {ROLES_VARIABLE}"
        )
    return tuple(Task(kind, i) for kind in TASK_TYPES for i in range(counts.get(kind, 0)))


def spec_of_ranks(tasks: tuple[Task, ...], addresses: tuple[str, ...]) -> ClusterSpec:
    """The cluster of the tasks at these addresses; empty for one process, which needs none."""
    if len(tasks) == 1:
        return ClusterSpec()
    jobs: dict[str, list[str]] = {}
    for task, address in zip(tasks, addresses, strict=True):
        jobs.setdefault(task.type, []).append(address)
    return ClusterSpec(jobs)


def number_in(environ: Mapping[str, str], name: str, launcher: str) -> int:
    return as_number(environ.get(name), name, launcher)


def as_number(text: str | None, name: str, launcher: str) -> int:
    """The number that a variable of this name holds."""
    if text is None or not re.fullmatch(r"\s*[0-9]{1,9}\s*", text, re.ASCII):
        raise ClusterError(
            f"{name} is {'not set' if text is None else shown(text)}, but {launcher} sets it to a "
            f"number; start the script with {launcher}, or remove {launcher}'s variables"
        )
    return int(text)


def rank_and_size(
    environ: Mapping[str, str], names: tuple[str, str], launcher: str
) -> tuple[int, int]:
    """This process's rank and the number of all, from the variables of these names."""
    size, rank = (number_in(environ, name, launcher) for name in reversed(names))
    return checked_rank(rank, size, launcher), size


def checked_rank(rank: int, size: int, launcher: str) -> int:
    """The same rank, if there is such a one."""
    if rank >= size:
        raise ClusterError(
            f"{launcher} says rank {rank} of {size} processes; ranks are 0 to {size - 1}: "
            f"start the script with {launcher}, or remove {launcher}'s variables"
        )
    return rank


def expand_nodes(text: str) -> tuple[str, ...]:
    """The host names of a Slurm node list, as `scontrol show hostnames` prints them.

    "a[1-3,7],b" is a1, a2, a3, a7, b; "n[01-02]-ib" is n01-ib, n02-ib.
    """
    hosts = [host for part in _split_outside_brackets(text) for host in _expand(part, text)]
    if not hosts or not all(hosts):
        raise _malformed(text)
    return tuple(hosts)


def _malformed(text: str) -> ClusterError:
    return ClusterError(
        f"the Slurm node list {shown(text)} is not one; it looks like 'node[01-04,07],login', "
        f"and srun sets it"
    )


def _split_outside_brackets(text: str) -> list[str]:
    if re.search(r"\[[^\]]*\[|\][^\[]*\]|^[^\[]*\]|\[[^\]]*$", text):
        raise _malformed(text)
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text)]


def _expand(part: str, text: str) -> list[str]:
    """One element, with any number of bracketed groups."""
    pieces = re.split(r"\[([^\]]*)\]", part)
    options = [
        _numbers(piece, text) if odd else [piece]
        for piece, odd in zip(pieces, itertools.cycle((False, True)), strict=False)
    ]
    total = 1
    for option in options:
        total *= len(option)
    if total > _MAX_NODES:
        raise _malformed(text)
    return ["".join(choice) for choice in itertools.product(*options)]


def _numbers(group: str, text: str) -> list[str]:
    """The numbers of "01-03,7", with their leading zeros."""
    numbers: list[str] = []
    for item in group.split(","):
        found = _RANGE.fullmatch(item.strip())
        if found is None:
            raise _malformed(text)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first > _MAX_NODES:
            raise _malformed(text)
        numbers += [str(n).zfill(len(found[1])) for n in range(first, last + 1)]
    return numbers


def tasks_per_node(text: str | None, num_nodes: int, num_tasks: int) -> tuple[int, ...]:
    """The number of tasks on each node from "2(x3),1", which is 2, 2, 2, 1.

    A single number goes for all nodes; without a text, tasks are divided evenly, the first nodes
    taking one more.
    """
    if text is None:
        return tuple(num_tasks // num_nodes + (i < num_tasks % num_nodes) for i in range(num_nodes))
    counts: list[int] = []
    for item in text.split(","):
        found = _COUNT.fullmatch(item.strip())
        if found is None or int(found[2] or 1) > _MAX_NODES:
            raise ClusterError(
                f"the Slurm tasks per node {shown(text)} are none; they look like '2(x3),1', and "
                f"srun sets them"
            )
        counts += [int(found[1])] * int(found[2] or 1)
    if len(counts) == 1:
        counts *= num_nodes
    if len(counts) != num_nodes or sum(counts) != num_tasks:
        raise ClusterError(
            f"Slurm lists {num_nodes} nodes and {num_tasks} tasks, but the tasks per node are "
            f"{shown(text)}; start the script with srun, which sets all three"
        )
    return tuple(counts)


def hosts_of_ranks(
    hosts: tuple[str, ...], counts: tuple[int, ...], cyclic: bool
) -> tuple[tuple[str, int], ...]:
    """Host and local index of each rank: node by node, or dealt out in turn (`cyclic`)."""
    places = [(i, local) for i, count in enumerate(counts) for local in range(count)]
    if cyclic:
        places.sort(key=lambda place: (place[1], place[0]))
    return tuple((hosts[i], local) for i, local in places)
