"""Who is in the job: tasks and their addresses; and the error of one that is described wrongly."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

TASK_TYPES = ("chief", "worker", "ps", "evaluator")
"""The roles of a cluster, in the order in which they are listed and ranked."""

_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>\d+)")


class ClusterError(ValueError):
    """The cluster, or this process's place in it, is described wrongly."""


def shown(value: object, limit: int = 160) -> str:
    """A value as an error prints it: its repr, cut where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= limit else f"{text[:limit]}…"


@dataclass(frozen=True)
class Task:
    """One process of a cluster: its role, and its index among those of that role."""

    type: str
    index: int

    def __str__(self) -> str:
        return f"{self.type} {self.index}"


class ClusterSpec:
    """The tasks of a cluster with their addresses. A value: it never changes, and it is hashable.

    Args:
        jobs: For each role its addresses ("host:port"), as a list or as a map from index to
            address where only some are known. Roles are chief, worker, ps and evaluator; `master`
            is an old name of chief. An empty address stands for one that is not known (under MPI);
            a role without tasks may be left out, empty or None. Tasks of other roles are somebody
            else's: `as_dict` lists them, and nothing else here knows of them.

    Raises:
        ClusterError: A misspelt role, a malformed address, more than one chief, or two tasks of
            one address.
    """

    __slots__ = ("_jobs",)

    def __init__(
        self, jobs: Mapping[str, Sequence[str] | Mapping[int, str] | None] | None = None
    ) -> None:
        given = dict(jobs or {})
        if "master" in given:
            if "chief" in given:
                raise ClusterError(
                    f"cluster.master is {shown(given['master'])} beside cluster.chief, which is "
                    f"the same role; remove 'master'"
                )
            given["chief"] = given.pop("master")
        others = sorted(set(map(str, given)) - set(TASK_TYPES))
        for name in others:
            _refuse_misspelt(name)
        indexed = {kind: _indexed(kind, given.get(kind)) for kind in (*TASK_TYPES, *others)}
        self._jobs = {kind: tasks for kind, tasks in indexed.items() if tasks}
        self._check()

    def _check(self) -> None:
        if self.num_tasks("chief") > 1 or set(self._jobs.get("chief", {0: ""})) != {0}:
            raise ClusterError(
                f"cluster.chief is {shown(self.as_dict()['chief'])}, but it must have only one "
                f"task; list the others under 'worker'"
            )
        seen: dict[str, Task] = {}
        for task in (*self.training_tasks(), *self._tasks_of("ps")):
            address = self.address(task)
            if address and (other := seen.setdefault(address, task)) != task:
                raise ClusterError(
                    f"cluster.{task.type}[{task.index}] is {shown(address)}, which is "
                    f"{other}'s address too; give each task its own"
                )

    @property
    def jobs(self) -> tuple[str, ...]:
        """The roles that have tasks, in the order chief, worker, ps, evaluator."""
        return tuple(kind for kind in TASK_TYPES if kind in self._jobs)

    def tasks(self) -> tuple[Task, ...]:
        """All tasks of these roles: by role, then by index."""
        return tuple(task for kind in TASK_TYPES for task in self._tasks_of(kind))

    def training_tasks(self) -> tuple[Task, ...]:
        """The tasks that train, in rank order: the chief if there is one, then the workers."""
        return (*self._tasks_of("chief"), *self._tasks_of("worker"))

    def _tasks_of(self, kind: str) -> tuple[Task, ...]:
        return tuple(Task(kind, index) for index in self._jobs.get(kind, ()))

    def addresses(self, task_type: str) -> tuple[str, ...]:
        """The known addresses of one role, in index order."""
        return tuple(self._jobs.get(task_type, {}).values())

    def num_tasks(self, task_type: str) -> int:
        """How many tasks of one role are listed."""
        return len(self._jobs.get(task_type, ()))

    def address(self, task: Task) -> str:
        """The "host:port" of a task, empty where nobody said.

        Raises:
            ClusterError: The cluster has no such task.
        """
        self.require(task)
        return self._jobs[task.type][task.index]

    def require(self, task: Task) -> None:
        """Refuse a task that is not in the cluster.

        Raises:
            ClusterError: Its role is not listed, or its index is not.
        """
        if task.type not in self._jobs:
            raise ClusterError(
                f"{shown(task.type)} is not a role in the cluster {shown(self.as_dict(), 600)} "
                f"(which may come from TF_CONFIG); it lists {', '.join(self._jobs) or 'none'}"
            )
        if task.index not in self._jobs[task.type]:
            known = ", ".join(map(str, self._jobs[task.type]))
            raise ClusterError(
                f"{shown(task.index)} is not an index of {task.type!r} in the cluster "
                f"{shown(self.as_dict(), 600)} (which may come from TF_CONFIG); "
                f"it lists {known}"
            )

    def chief(self) -> Task:
        """The task that writes files: the chief if there is one, else worker 0."""
        return Task("chief" if "chief" in self._jobs else "worker", 0)

    def without_evaluator(self) -> ClusterSpec:
        """The training cluster: an evaluator is never part of it, listed or not."""
        return ClusterSpec({kind: t for kind, t in self._jobs.items() if kind != "evaluator"})

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Role to addresses: a list, or a map from index to address where indices are missing."""
        return {
            kind: list(tasks.values()) if list(tasks) == list(range(len(tasks))) else dict(tasks)
            for kind, tasks in self._jobs.items()
        }

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(tuple((task, self.address(task)) for task in self.tasks()))

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"


class Address(NamedTuple):
    """Where a task listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def split_address(address: str) -> Address:
    """Host and port of "host:port" or "[2001:db8::1]:port".

    Raises:
        ClusterError: It has neither form, the port is not in 1..65535, or the host stands for
            every interface of a machine, which nobody can connect to.
    """
    found = _HOST_AND_PORT.fullmatch(address) if address.isascii() else None
    if found is None:
        raise ClusterError(f"{shown(address)} is not an address; {_address_hint(address)}")
    if len(found["port"]) > 5 or not 1 <= int(found["port"]) <= 65535:
        raise ClusterError(
            f"{shown(address)} has no port from 1 to 65535; write that on which the task listens"
        )
    host = found["v6"] or found["host"]
    if host in ("0.0.0.0", "::"):
        raise ClusterError(
            f"{shown(address)} names no machine; write the name or address under which the other "
            f"tasks reach this one"
        )
    return Address(host, int(found["port"]))


def _address_hint(address: str) -> str:
    if not address.strip():
        return "it is empty: write 'host:port', for example 'host-1:2222'"
    if "://" in address:
        return f"leave out {shown(address.split('://')[0] + '://')}: write 'host:port'"
    if address.count(":") > 1:
        return "write an IPv6 address in brackets, for example '[2001:db8::1]:2222'"
    if ":" not in address:
        return "its port is missing: write 'host:port', for example 'host-1:2222'"
    return "write 'host:port', for example 'host-1:2222'"


def _refuse_misspelt(name: str) -> None:
    """Refuse a role that is most likely meant to be one of ours."""
    close = difflib.get_close_matches(name.lower(), TASK_TYPES, n=1, cutoff=0.7)
    if close:
        raise ClusterError(
            f"cluster has the key {shown(name)}, which is no role; did you mean {close[0]!r}? "
            f"(The roles are {', '.join(TASK_TYPES)}; others are left alone.)"
        )


def _indexed(kind: str, given: object) -> dict[int, str]:
    """The tasks of one role in index order, whichever way they were listed."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        pairs = list(enumerate(given))
    else:
        raise ClusterError(
            f"cluster.{kind} is {shown(given)}; give a list of 'host:port', or a map from index "
            f"to 'host:port'"
        )
    for index, address in pairs:
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise ClusterError(f"cluster.{kind} has the index {shown(index)}; they are 0, 1, 2, …")
        _check_address(f"cluster.{kind}[{index}]", address)
    return dict(sorted(pairs))


def _check_address(key: str, address: object) -> None:
    if not isinstance(address, str):
        raise ClusterError(f"{key} is {shown(address)}; write 'host:port', as in 'host-1:2222'")
    if not address:
        return
    try:
        split_address(address)
    except ClusterError as error:
        raise ClusterError(f"{key}: {error}") from None
