"""Who has come and who is missing, as one member of a RING knows it: without any I/O."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import final

from ...cluster import is_loopback
from ..members import Member
from .addresses import parse_address
from .frames import MAX_TABLE_ENTRIES, Entry, Hello, Missing, Table, cut
from .handshake import on_another_machine

# So many missing members are named, and called to find out why they are missing.
_MAX_NAMES = 8


def parent_of(rank: int) -> int:
    """Return the parent of ``rank`` in the binomial tree of all ranks, whose root is 0.

    >>> [parent_of(rank) for rank in range(1, 8)]
    [0, 0, 2, 0, 4, 4, 6]
    """
    return rank & (rank - 1)


def children_of(rank: int, size: int) -> list[int]:
    """Return the children of ``rank`` among ``size`` ranks.

    >>> [children_of(rank, 7) for rank in range(7)]
    [[1, 2, 4], [], [3], [], [5, 6], [], []]
    """
    span = rank & -rank or size
    steps = (1 << i for i in range(size.bit_length()))
    return [rank + step for step in steps if step < span and rank + step < size]


@final
class MemberTable:
    """What one member knows of all. Whoever calls a method holds the lock of the table's owner.

    Args:
        members: All members; only the address of rank 0 need be known.
        me: What this member says about itself.

    Attributes:
        members: The same; when they are all there, with their addresses.
        parent: This member's parent in the tree; at rank 0 itself.
        children: Its children, and below each of them who is missing there; empty if nobody is.
        turned_away: Who has called last that does not belong here.
        told: Who is missing, as rank 0 has told last.
    """

    def __init__(self, members: tuple[Member, ...], me: Hello) -> None:
        self.members = members
        self.parent = parent_of(me.rank)
        self.children = {child: str(members[child]) for child in children_of(me.rank, len(members))}
        self.turned_away = ""
        self.told = Missing(names=str(members[0]), remarks="")
        self._me = me
        # At rank 0 those who have come, elsewhere what has come of the table.
        self._entries = {0: _entry(me)} if me.rank == 0 else {}
        self._problems: dict[int, str] = {}

    @property
    def is_whole(self) -> bool:
        """Whether everything is known of everybody."""
        return len(self._entries) == len(self.members)

    @property
    def waiting_for(self) -> str:
        """Who is missing below this member in the tree; empty if nobody is."""
        return cut(", ".join(text for text in self.children.values() if text))

    def come(self, rank: int, hello: Hello) -> None:
        """Note that a member has come to rank 0, or come back as another process."""
        self._entries[rank] = _entry(hello)

    def go(self, rank: int, problem: str) -> None:
        """Note that a member is missing again, and why."""
        self._problems[rank] = problem
        if self._me.rank == 0:
            self._entries.pop(rank, None)
        if rank in self.children:
            self.children[rank] = str(self.members[rank])

    def note(self, rank: int, problem: str) -> None:
        """Note why a member could not be reached; empty if it can be."""
        self._problems[rank] = problem

    def problem(self, rank: int) -> str:
        """Return why a member is not there, as far as is known."""
        return self._problems.get(rank, "")

    def has_come(self, rank: int) -> bool:
        """Whether a member has come to rank 0."""
        return rank in self._entries

    def address(self, rank: int) -> str:
        """Return where a member listens that has come to rank 0; empty if it has not."""
        entry = self._entries.get(rank)
        return entry.address if entry else ""

    def incarnation(self, rank: int) -> str:
        """Return which process a member is."""
        return self._entries[rank].incarnation

    def num_here(self) -> int:
        """Return how many members, with this one, are on this host."""
        return sum(entry.host == self._me.host for entry in self._entries.values())

    def missing_to_all(self) -> Missing:
        """Return who has not come to rank 0, or not to its parent, and what is known about that."""
        absent = [member for member in self.members if not self.has_come(member.rank)]
        named = absent[:_MAX_NAMES]
        names = [*map(str, named)] or [self.waiting_for]
        names += [f"{len(absent) - len(named)} others"] if len(absent) > len(named) else []
        problems = [(member, self.problem(member.rank)) for member in named]
        remarks = [f"{member.task}: {problem}" for member, problem in problems if problem]
        remarks += [self.turned_away] if self.turned_away else []
        return _missing(", ".join(names), [*remarks, *_hints(absent)])

    def missing_to_me(self, connected: Container[int]) -> Missing:
        """Return who is missing: rank 0 or the parent, or whoever rank 0 says."""
        for rank in (0, self.parent):
            if rank not in connected and (problem := self.problem(rank)):
                member = self.members[rank]
                return _missing(str(member), [f"{member.task}: {problem}", *_hints([member])])
        return self.told

    def to_be_called(self) -> list[Member]:
        """Return missing members whose address is known, to find out why they are missing."""
        absent = [m for m in self.members if m.address and not self.has_come(m.rank)]
        return absent[:_MAX_NAMES]

    def complete(self) -> str:
        """Fill in the addresses of all members; return what is wrong with them, if anything is."""
        entries = [self._entries[member.rank] for member in self.members]
        self.members = tuple(
            member if member.address else replace(member, address=entry.address)
            for member, entry in zip(self.members, entries, strict=True)
        )
        if entries[self._me.rank].incarnation != self._me.incarnation:
            return f"another process is there as {self.members[self._me.rank]}"
        for member in self.members:
            host = entries[member.rank].host
            others = (other for other in self.members if entries[other.rank].host != host)
            if is_loopback(parse_address(member).host) and (other := next(others, None)):
                return f"{other} {on_another_machine(member)}"
        return ""

    def parts(self) -> list[Table]:
        """Return all that is known, in frames."""
        entries = [self._entries[member.rank] for member in self.members]
        return [
            Table(first=first, entries=tuple(entries[first : first + MAX_TABLE_ENTRIES]))
            for first in range(0, len(entries), MAX_TABLE_ENTRIES)
        ]

    def add(self, part: Table) -> None:
        """Take over what rank 0 knows."""
        for rank, entry in enumerate(part.entries, start=part.first):
            if rank < len(self.members):
                self._entries[rank] = entry


def _entry(hello: Hello) -> Entry:
    return Entry(address=hello.address, incarnation=hello.incarnation, host=hello.host)


def _missing(names: str, remarks: Iterable[str]) -> Missing:
    return Missing(names=cut(names), remarks=cut("; ".join(remarks)))


def _hints(missing: Iterable[Member]) -> list[str]:
    hosts = [parse_address(member).host for member in missing if member.address]
    return ["localhost is looked for on this machine only"] * any(map(is_loopback, hosts))
