"""Roles of the processes that a launcher numbers: MPI ranks, Slurm tasks, torchrun's workers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import ClusterError, shown
from .spec import TASK_TYPES, ClusterSpec, Task

ROLES_VARIABLE = "PACELINE_ROLES"
_ROLE = re.compile(r"(chief|ps|evaluator)(?:=([0-9]{1,6}))?")


def roles_from(environ: Mapping[str, str]) -> dict[str, int]:
    """How many ranks are not workers, from PACELINE_ROLES.

    "evaluator" makes the last rank the evaluator; "chief,ps=2,evaluator" makes the first rank the
    chief, the last the evaluator, and two ps of those before it. All other ranks are workers.

    Raises:
        ClusterError: The variable has another form.
    """
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

    Args:
        size: The number of ranks.
        roles: The number of tasks of each role; workers may be left out: they are the rest.
        source: Who counts the ranks, for the error.

    Raises:
        ClusterError: The roles do not add up to `size`, or leave nobody to train.
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
    """A variable that a launcher sets to a number.

    Raises:
        ClusterError: It is not set, or not a number.
    """
    text = environ.get(name)
    if text is None or not re.fullmatch(r"\s*[0-9]{1,9}\s*", text, re.ASCII):
        raise ClusterError(
            f"{name} is {'not set' if text is None else shown(text)}, but {launcher} sets it to a "
            f"number; start the script with {launcher}, or remove {launcher}'s variables"
        )
    return int(text)


def rank_of(size: int, rank: int, launcher: str) -> int:
    """The rank, checked against the size.

    Raises:
        ClusterError: The rank is not below the size.
    """
    if rank >= size:
        raise ClusterError(
            f"{launcher} says rank {rank} of {size} processes; ranks are 0 to {size - 1}: "
            f"start the script with {launcher}, or remove {launcher}'s variables"
        )
    return rank
