"""What is known about a call that has been agreed on, so that the next like it costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .agreement import compare_first_use
from .arrays import UFUNCS
from .calls import Call, collective_call
from .communicator import Array, Op
from .messages import HEADER_BYTES, Kind, pack_header, padding, set_sequence
from .peers import Peers

# Arrays up to this size are sent header and all from a scratch buffer.
SMALL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Plan:
    """A call that all ranks have agreed on.

    Attributes:
        call: What it is.
        header: The packed header; its sequence number is that of the latest such call.
        dtype, length, op, root: What it is about.
        ufunc: How elements are combined.
        message: A scratch buffer for header and payload; empty for long arrays.
        payload: The payload in ``message``.
    """

    call: Call
    header: bytearray
    dtype: np.dtype[Any]
    length: int
    op: Op
    root: int
    ufunc: np.ufunc
    message: memoryview
    payload: Array

    def fill(self, array: Array) -> memoryview:
        """Return the message with the header and ``array`` in it."""
        self.payload[:] = array
        self.message[:HEADER_BYTES] = self.header
        return self.message


@final
class Plans:
    """The plans of one communicator, by operation and name. All ranks make the same ones.

    The latest plan of a name is found by one look-up; an array of another length under the same
    name is looked up among all plans, and compared over all ranks if it is new.
    """

    def __init__(self, peers: Peers, tag: int) -> None:
        self._peers = peers
        self._tag = tag
        self._sequence = 0
        self._latest: dict[tuple[str, str], Plan] = {}
        self._by_digest: dict[bytes, Plan] = {}
        self._scratch = memoryview(bytearray(HEADER_BYTES + SMALL_BYTES))

    def next(
        self,
        operation: str,
        name: str,
        dtype: np.dtype[Any],
        length: int,
        op: Op = Op.SUM,
        root: int = 0,
    ) -> Plan:
        """Return the plan for this call, numbered; the first time, compare it over all ranks.

        Args:
            operation: The communicator's method.
            name: The caller's name for it.
            dtype: Of the array.
            length: Of the array; `ANY_LENGTH` where ranks may differ.
            op: How elements are combined, where they are.
            root: Whose array it is, where there is one.

        Raises:
            MismatchError: Some rank calls something else.
        """
        plan = self._latest.get((operation, name))
        number = self.number()
        if (
            plan is None
            or plan.length != length
            or plan.dtype != dtype
            or plan.op is not op
            or plan.root != root
        ):
            plan = self._agree(operation, name, dtype, length, op, root)
            self._latest[operation, name] = plan
        set_sequence(plan.header, number)
        self._peers.call = plan.call
        return plan

    def number(self) -> int:
        """Return the number of the next call."""
        self._sequence += 1
        return self._sequence

    def _agree(
        self, operation: str, name: str, dtype: np.dtype[Any], length: int, op: Op, root: int
    ) -> Plan:
        call = collective_call(operation, name, dtype, length, op, root)
        num_bytes = call.num_bytes
        known = self._by_digest.get(call.digest)
        if known is not None:
            return known
        self._peers.call = call
        compare_first_use(self._peers, self._tag, self._sequence, call)
        header = pack_header(Kind.DATA, self._tag, 0, call.digest, num_bytes)
        size = HEADER_BYTES + num_bytes + padding(num_bytes) if num_bytes <= SMALL_BYTES else 0
        message = self._scratch[:size]
        payload: Array = np.frombuffer(message, dtype, length if size else 0, min(size, 64))
        plan = Plan(call, header, dtype, length, op, root, UFUNCS[op], message, payload)
        self._by_digest[call.digest] = plan
        self._peers.known_calls[call.digest] = call
        return plan
