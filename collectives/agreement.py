"""Whether all ranks make the same call: compared in full at first use, by headers ever after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from .algorithms import gather_rows
from .arrays import UFUNCS
from .calls import (
    RECORD_BYTES,
    Call,
    Kind,
    Signature,
    differing_calls,
    is_record_of,
    pack_header,
    record_text,
    set_sequence,
)
from .errors import MismatchError
from .peers import Peers


@dataclass(frozen=True, slots=True)
class AgreedCall:
    """A call that all ranks have agreed on; its header has the number of the latest such call."""

    call: Call
    header: bytearray
    ufunc: np.ufunc


@final
class Agreement:
    """The calls that the ranks of one communicator have agreed on, and the number of the latest."""

    def __init__(self, peers: Peers, tag: int) -> None:
        self._peers = peers
        self._tag = tag
        self._sequence = 0
        self._agreed: dict[Signature, AgreedCall] = {}

    def next_number(self) -> int:
        self._sequence += 1
        return self._sequence

    def next(self, signature: Signature) -> AgreedCall:
        """Return this call, numbered; the first time, compare it over all ranks."""
        number = self.next_number()
        agreed = self._agreed.get(signature)
        # All ranks have made the same calls so far, so either all of them know this one or none
        # does; a rank that is elsewhere is found out by the header of what it sends.
        if agreed is None:
            call = self._peers.call = signature.call
            self._compare(call)
            header = pack_header(Kind.DATA, self._tag, 0, call.digest, call.num_bytes)
            agreed = self._agreed[signature] = AgreedCall(call, header, UFUNCS[signature.op])
            self._peers.known_calls[call.digest] = call
        set_sequence(agreed.header, number)
        self._peers.call = agreed.call
        return agreed

    def _compare(self, call: Call) -> None:
        """Raise a `MismatchError` that lists who calls what, unless all ranks call the same."""
        peers = self._peers
        # A rank that expects something else reads the caller's text behind this header.
        header = pack_header(Kind.FIRST_USE, self._tag, self._sequence, bytes(16), RECORD_BYTES)
        records = gather_rows(peers, header, call.record)
        if not all(is_record_of(record, call) for record in records):
            texts = enumerate(map(record_text, records))
            error = MismatchError(differing_calls((peers.name(rank), text) for rank, text in texts))
            peers.world.failure = error  # all ranks have found this out: no need to tell them
            raise error
