"""Messages so short that what is done around them is most of their time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import final

import numpy as np

from .agreement import check_header
from .communicator import Array, Op
from .errors import LinkBroken
from .link import Link
from .messages import HEADER_BYTES, set_sequence
from .peers import Patience, Peers
from .plans import Plan, Plans


def exchange(peers: Peers, peer: int, link: Link, message: memoryview) -> memoryview:
    """Send ``message`` and return, in place, the one like it that the peer sends.

    The caller releases it.

    Raises:
        LinkBroken: The peer is gone.
        MismatchError: Its header is not the same.
    """
    num_bytes = len(message)
    sent = link.try_send(message)
    view = link.try_peek(num_bytes)
    if view is None or sent < num_bytes:
        view = _wait(peers, peer, link, message, sent)
    if view[:HEADER_BYTES] != message[:HEADER_BYTES]:
        check_header(peers, peer, view[:HEADER_BYTES], bytearray(message[:HEADER_BYTES]))
    return view


def _wait(peers: Peers, peer: int, link: Link, message: memoryview, sent: int) -> memoryview:
    """Go on with an exchange until both messages have come through.

    The header is looked at as soon as it comes: it may be all that does, if the peer is doing
    something else.
    """
    patience, has_header = Patience(peers), False
    while True:
        patience.wait(to=peer if sent < len(message) else None, source=peer)
        if sent < len(message):
            sent += link.try_send(message[sent:])
        view = link.try_peek(len(message) if has_header else HEADER_BYTES)
        if view is not None and not has_header:
            check_header(peers, peer, view, bytearray(message[:HEADER_BYTES]))
            has_header = True
            view = link.try_peek(len(message))
        if view is not None and sent == len(message):
            return view


@final
class ShortSwap:
    """A short all_reduce between two ranks, with all at hand to do it again on the same array.

    Args:
        peers: The two ranks.
        plans: Numbers the calls.
        plan: Of this call.

    Attributes:
        plan: The same.
    """

    def __init__(self, peers: Peers, plans: Plans, plan: Plan) -> None:
        self.plan = plan
        self._peers = peers
        self._plans = plans
        self._op = plan.op
        self._array: Callable[[], Array | None] = _nothing
        self._message = memoryview(bytearray(plan.message))
        self._payload: Array = np.frombuffer(self._message, plan.dtype, plan.length, HEADER_BYTES)
        self._link = peers.link(1 - peers.rank)

    def remember(self, array: Array) -> None:
        """Note that this array has been checked; it is not kept alive."""
        self._array = weakref.ref(array)

    def is_for(self, array: Array, op: Op) -> bool:
        """Whether this is the same array, which need not be checked again, and the same op."""
        return self._array() is array and self._op is op

    def run(self, array: Array) -> None:
        """Reduce ``array`` in place."""
        peers, plan, message, link = self._peers, self.plan, self._message, self._link
        peer = 1 - peers.rank
        peers.call = plan.call
        set_sequence(message, self._plans.number())
        self._payload[:] = array
        try:
            view = exchange(peers, peer, link, message)
            theirs: Array = np.frombuffer(view, plan.dtype, plan.length, HEADER_BYTES)
            if peer == 0:
                plan.ufunc(theirs, array, out=array)
            else:
                plan.ufunc(array, theirs, out=array)
            link.release(len(message))
        except LinkBroken as error:
            peers.raise_lost(peer, error)


def _nothing() -> None:
    return None
