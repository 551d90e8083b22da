"""Slurm's ways of writing lists: nodes, and how many tasks each of them runs."""

from __future__ import annotations

import itertools
import re

from .errors import ClusterError, shown

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COUNT = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")
_MAX_NODES = 100_000


def expand_nodes(text: str) -> tuple[str, ...]:
    """The host names of a Slurm node list, as `scontrol show hostnames` prints them.

    "a[1-3,7],b" is a1, a2, a3, a7, b; "n[01-02]-ib" is n01-ib, n02-ib.

    Raises:
        ClusterError: The list is malformed, or longer than any cluster.
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

    Raises:
        ClusterError: The text is malformed, or does not add up to the number of tasks.
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
