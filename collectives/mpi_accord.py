"""Whether all ranks make the same calls, where the messages are MPI's own and carry no header."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .calls import NOTHING, RECORD_BYTES, RULE, Call, collective_call, differing_calls, record_text
from .communicator import Op
from .errors import MismatchError
from .members import Member
from .mpi_kinds import mpi_kind

# One large call faults in fresh scratch memory each time; chunks of this size reuse theirs.
CHUNK_BYTES = 2 << 20
# Calls of more than a chunk are compared each time, others when their number is a multiple of this.
COMPARED_CALLS = 128
# Different calls go different ways, as far as these suffice: ranks that make different ones then
# wait for each other, which is noticed, instead of adding up what does not belong together.
NUM_LANES = 4

_NUM_REMEMBERED = 256
_STATE = struct.Struct("<Qq")


@dataclass(frozen=True, slots=True)
class Plan:
    """A call, and what MPI needs for it.

    Attributes:
        call: What it is.
        key: 64 bits of its digest.
        dtype, length, op, root: What it is about.
        mpi_type, mpi_op: The same in MPI's terms.
        lane: Which of the communicator's lanes it takes.
    """

    call: Call
    key: int
    dtype: np.dtype[Any]
    length: int
    op: Op
    root: int
    mpi_type: Any
    mpi_op: Any
    lane: int


@final
class History:
    """What one communicator has called so far, as a number and digest; the latest calls in full.

    Attributes:
        tag: Which communicator.
        ranks: Its ranks in the world.
        sequence: Number of calls.
        digest: A digest of all of them, in order.
    """

    def __init__(self, tag: int, ranks: Sequence[int]) -> None:
        self.tag = tag
        self.ranks = tuple(ranks)
        self.sequence = 0
        self.digest = 0
        self._recent: list[tuple[int, int, Call]] = [(-1, 0, NOTHING)] * _NUM_REMEMBERED

    def add(self, call: Call, key: int) -> None:
        """Note a call; ``key`` is 64 bits of its digest."""
        self.sequence = sequence = self.sequence + 1
        # Python's hash of integers is the same in every process.
        self.digest = digest = hash((self.digest, key))
        self._recent[sequence % _NUM_REMEMBERED] = (sequence, digest, call)

    @property
    def latest(self) -> Call:
        """The latest call."""
        return self._recent[self.sequence % _NUM_REMEMBERED][2]

    @property
    def state(self) -> bytes:
        """Number and digest of the calls, in 16 bytes."""
        return _STATE.pack(self.sequence, self.digest)

    def at(self, sequence: int) -> tuple[int, Call] | None:
        """Return the digest after call number ``sequence``, and that call, if remembered."""
        number, digest, call = self._recent[sequence % _NUM_REMEMBERED]
        return (digest, call) if number == sequence else None


@final
class Accord:
    """The plans of one communicator, compared over its ranks.

    Args:
        mpi: The module ``mpi4py.MPI``.
        comm: A communicator on which nothing but comparisons is done collectively.
        members: Its ranks by name.
        history: The calls of this communicator.
    """

    def __init__(self, mpi: Any, comm: Any, members: Sequence[Member], history: History) -> None:
        self._mpi = mpi
        self._comm = comm
        self._members = tuple(members)
        self._history = history
        self._plans: dict[tuple[str, str], Plan] = {}
        self._lanes: dict[int, int] = {}
        self._table = np.zeros((len(self._members), _STATE.size + RECORD_BYTES), np.uint8)

    def plan(
        self, operation: str, name: str, dtype: np.dtype[Any], length: int, op: Op, root: int
    ) -> Plan:
        """Return the plan of a call; a look-up if it is the one that this name had last time."""
        plan = self._plans.get((operation, name))
        if (
            plan is None
            or plan.length != length
            or plan.dtype != dtype
            or plan.op is not op
            or plan.root != root
        ):
            call = collective_call(operation, name, dtype, length, op, root)
            key = int.from_bytes(call.digest[:8], "little")
            # Equal on all ranks: whoever adds another call is found out when they compare it.
            lane = self._lanes.get(key, len(self._lanes) % NUM_LANES)
            kind = mpi_kind(self._mpi, dtype, op)
            plan = Plan(call, key, dtype, length, op, root, *kind, lane)
            self._plans[operation, name] = plan
        return plan

    def agree(self, plan: Plan) -> None:
        """Compare a call over all ranks if it is new, long, or the turn has come.

        Raises:
            MismatchError: Some rank calls, or has called, something else.
        """
        if plan.key not in self._lanes:
            self._compare(plan.call)
            self._lanes[plan.key] = plan.lane
        elif plan.call.num_bytes > CHUNK_BYTES or not self._history.sequence % COMPARED_CALLS:
            self._compare(plan.call)

    def _compare(self, call: Call) -> None:
        """Compare this call and the digest of all so far.

        Every comparison looks the same on the wire, so that ranks which are at different calls, or
        compare for different reasons, still understand each other.
        """
        own, table = self._table[self._comm.rank], self._table
        own[: _STATE.size] = np.frombuffer(self._history.state, np.uint8)
        own[_STATE.size :] = np.frombuffer(call.record, np.uint8)
        self._comm.Allgather(self._mpi.IN_PLACE, table)
        if (table == own).all():
            return
        texts = [record_text(row[_STATE.size :].tobytes()) for row in table]
        if any(text != call.text for text in texts):
            names = map(str, self._members)
            raise MismatchError(differing_calls(zip(names, texts, strict=True)))
        raise MismatchError(
            f"the ranks have not made the same calls: they differ somewhere in the last "
            f"{COMPARED_CALLS} before {call.text}. {RULE}"
        )
