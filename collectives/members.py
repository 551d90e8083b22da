"""Who takes part in a communicator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """One rank, by the name that its owner knows it by.

    Attributes:
        rank: Position in the communicator, from 0.
        task: The task's name, such as ``"worker 2"``.
        address: Where it listens, ``"host:port"``, or runs; empty if there is nothing to say.
    """

    rank: int
    task: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.task} ({self.address})" if self.address else self.task


def local_members(size: int, task: str = "rank") -> tuple[Member, ...]:
    """Return ``size`` members without addresses: "rank 0", "rank 1", …"""
    return tuple(Member(rank, f"{task} {rank}") for rank in range(size))
