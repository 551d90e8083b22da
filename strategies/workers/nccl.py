"""Arrays on cards go from worker to worker by NCCL, beside the communicator of their processes.

NCCL compares nothing, does not say on whom it waits, and waits for ever. So a call to it goes along
with one of the communicator, which has a few numbers to add up anyway: in the same order, under a
name that has what is on the card. Who skips a call, brings another array or dies is found there,
by name, and what NCCL has begun is aborted.
"""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ...autodiff import Array
from ...collectives import (
    DONE,
    CollectiveError,
    CollectiveTimeoutError,
    Communicator,
    Handle,
    PeerLostError,
)
from ..devices import gpu
from ..devices.device import Device
from ..devices.nccl import NcclRanks, UnderWay, knows, missing_for
from .own_cards import card_of
from .workers import Workers

_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 20e-6, 1e-3
_LOOK_SECS = 0.02
_GRACE_SECS = 0.5

_logger = logging.getLogger("paceline")


@dataclass(frozen=True)
class Account:
    """What a worker says of its card before all decide.

    Args:
        missing: Why it cannot take part, in words; empty if it can.
        card: Its card among those of all machines.
        version: Of its NCCL, which must be that of all.
    """

    missing: str
    card: str = ""
    version: int = 0


def account_of(device: Device, wire_dtype: str | None = None) -> Account:
    """That of this worker, which computes on `device`."""
    if wire_dtype is not None:
        return Account(f"wire_dtype={wire_dtype!r} needs the way through host memory")
    if device.kind != "GPU":
        return Account("paceline finds no GPU there")
    missing = missing_for([device.index])
    if missing:
        return Account(missing)
    return Account("", card_of(device), gpu.nccl().get_version())


def obstacle(accounts: Sequence[Account]) -> str:
    """Why NCCL cannot join workers with these accounts, in words; empty if it can.

    All workers find the same, as all have the same accounts.
    """
    missing = [f"worker {i}: {a.missing}" for i, a in enumerate(accounts) if a.missing]
    if missing:
        return "; ".join(missing)
    cards = [account.card for account in accounts]
    for rank, card in enumerate(cards):
        if cards.index(card) != rank:
            return (
                f"workers {cards.index(card)} and {rank} have the same card (GPU {card}), which "
                f"can be one rank of NCCL only"
            )
    versions = {account.version for account in accounts}
    if len(versions) > 1:
        return f"the workers have different versions of NCCL ({sorted(versions)})"
    return ""


def join_by_nccl(
    communicator: Communicator, device: Device, strict: bool = False, wire_dtype: str | None = None
) -> NcclWorkers | None:
    """Join the cards of all workers, which call this together; None where NCCL cannot.

    Args:
        communicator: Joins the workers. The id by which their cards find each other travels over
            it, and so is as secret as its other messages.
        device: Where this worker's gradients are.
        strict: Whether it is an error that NCCL cannot, on all workers; else it is said once.
        wire_dtype: In what gradients travel if not as they are, which NCCL cannot.

    Raises:
        ValueError: NCCL cannot (strict).
        CollectiveError: A worker was lost meanwhile, or did not come.
    """
    own = json.dumps(asdict(account_of(device, wire_dtype)))
    texts = Workers(communicator).texts(own, "accounts of cards")
    why_not = obstacle([Account(**json.loads(text)) for text in texts])
    if why_not and strict:
        raise ValueError(f"communication is NCCL, but {why_not} (strict_devices=True)")
    if why_not:
        text = "communication is NCCL, but %s; arrays on cards go the way they go without it."
        _logger.warning(text, why_not)
        return None
    nccl = gpu.nccl()
    # As whole numbers of 32 bits: communicators move no bytes.
    unique_id = np.zeros(len(nccl.get_unique_id()), np.int32)
    if communicator.rank == 0:
        unique_id[:] = np.frombuffer(nccl.get_unique_id(), np.uint8)
    communicator.broadcast(unique_id, "id of the communicator of cards")
    one = _joined(communicator, device.index, unique_id.astype(np.uint8).tobytes())
    _logger.info("Arrays on cards are exchanged among %d workers by NCCL.", communicator.size)
    return NcclWorkers(communicator, NcclRanks([one], [device.index]), device)


def _joined(communicator: Communicator, card: int, unique_id: bytes) -> Any:
    """This card's end of an NCCL communicator, when all have come."""
    found: list[Any] = []

    def join() -> None:
        try:
            with gpu.use(card):
                ranks = gpu.nccl().NcclCommunicator
                found.append(ranks(communicator.size, unique_id, communicator.rank))
        except RuntimeError as error:
            found.append(error)

    # In a thread of its own: NCCL waits for the others for ever, and cannot be called off.
    thread = threading.Thread(target=join, name="paceline-nccl-start", daemon=True)
    thread.start()
    wait = _Wait(communicator, "the start of NCCL")
    while thread.is_alive():
        thread.join(_LOOK_SECS)
        wait.look()
    if isinstance(found[0], RuntimeError):
        wait.give_up(str(found[0]))
    return found[0]


@final
class _Wait:
    """A wait for what NCCL does, which ends where the communicator knows of a failure."""

    def __init__(self, communicator: Communicator, what: str) -> None:
        self._communicator = communicator
        self._what = what
        self._began = time.monotonic()
        self._failed: float | None = None

    def look(self) -> None:
        """Raise if it is in vain."""
        now, failure = time.monotonic(), self._communicator.failure
        if failure:
            # One that leaves with the last step may be gone while our card still gets its part.
            self._failed = self._failed or now
            if now - self._failed > _GRACE_SECS:
                raise PeerLostError(f"{self._what}: {failure}")
        if now - self._began > self._communicator.timeout_secs:
            text = self._timed_out(now - self._began)
            self._communicator.close(text)
            raise CollectiveTimeoutError(text)

    def give_up(self, reason: str) -> None:
        """Tell the others, and raise."""
        text = f"{self._what}: {reason}"
        self._communicator.close(text)
        raise CollectiveError(text)

    def _timed_out(self, secs: float) -> str:
        members = self._communicator.members
        others = ", ".join(str(m) for m in members if m.rank != self._communicator.rank)
        return (
            f"{self._what} timed out after {secs:.3g} s: NCCL does not say which card it waits "
            f"for; {others} had come to this call, and give signs of life"
        )


@final
class NcclWorkers:
    """The cards of all workers, one of each, seen from one of them.

    Args:
        communicator: Joins the workers.
        ranks: This worker's rank of NCCL's communicator.
        device: Its card.

    Attributes:
        device: As given.
    """

    def __init__(self, communicator: Communicator, ranks: NcclRanks, device: Device) -> None:
        self.device = device
        self._communicator = communicator
        self._ranks = ranks
        self._latest: Any = None
        atexit.register(self.leave)

    def leave(self) -> None:
        """At the end of the program: give up what is under way, for nobody waits for it any more.

        An error elsewhere may have left it so. NCCL, whose own end waits for it, would wait for
        ever.
        """
        if self._latest is not None and not self._latest.done:
            self._ranks.abort()

    def takes(self, array: Array) -> bool:
        """Whether it moves arrays such as this one: on a card, of a dtype that NCCL knows."""
        return not isinstance(array, np.ndarray) and knows(array.dtype)

    def start_all_reduce(self, array: Array, numbers: np.ndarray, name: str) -> Handle:
        """Begin to replace an array on the card, and numbers, by their sums over all workers.

        Neither may be touched before the handle was waited for. All workers make the same calls in
        the same order; the array waits for what the card was given to compute before.

        Args:
            array: Contiguous, of one length and dtype on all workers.
            numbers: In host memory, few.
            name: What it is.
        """
        what = f"{name} ({array.dtype} of {array.size} on cards)"
        beside = self._communicator.start_all_reduce(numbers, what)
        return self._under_way(what, beside, self._ranks.all_reduce([array]))

    def all_gather(self, array: Array, name: str) -> list[Array]:
        """The arrays of all workers, in their order, on this card.

        Args:
            array: Contiguous, of one dtype on all workers; shapes may differ in the first
                dimension.
            name: What it is.
        """
        communicator = self._communicator
        row = array.shape[1:]
        what = f"{name} ({array.dtype} rows of {row} on cards)"
        found = communicator.all_gather(np.array([len(array)]), what)
        lengths = [int(length[0]) for length in found]
        ends = list(itertools.accumulate(lengths))
        with self.device.use():
            table = np.empty((ends[-1], *row), array.dtype, like=array)
        parts = [table[end - n : end] for end, n in zip(ends, lengths, strict=True)]
        self._under_way(what, DONE, self._ranks.gather(array, parts, communicator.rank)).wait()
        return parts

    def _under_way(self, what: str, beside: Handle, on_card: UnderWay) -> _UnderWay:
        (self._latest,) = on_card.events
        return _UnderWay(self._communicator, self._ranks, what, beside, on_card)


@final
class _UnderWay(Handle):
    """What the card does, and the all-reduce of some numbers beside it."""

    def __init__(
        self,
        communicator: Communicator,
        ranks: NcclRanks,
        what: str,
        beside: Handle,
        on_card: UnderWay,
    ) -> None:
        self._communicator = communicator
        self._ranks = ranks
        self._what = what
        self._beside = beside
        self._on_card = on_card

    def wait(self) -> None:
        # The caller waits, and not only the card's own stream: half a sum, of a worker that dies in
        # the midst of it, would else be in the update before anybody knows.
        try:
            self._beside.wait()
            self._wait_for_card()
        except BaseException:
            self._ranks.abort()
            raise
        finally:  # what was aborted ends, too, and its arrays may be given back only then
            self._on_card.wait()

    def _wait_for_card(self) -> None:
        wait, pause_secs = _Wait(self._communicator, self._what), _FIRST_PAUSE_SECS
        (event,) = self._on_card.events
        while not event.done:
            wait.look()
            error = self._ranks.error()
            if error:
                wait.give_up(error)
            time.sleep(pause_secs)
            pause_secs = min(2 * pause_secs, _LONGEST_PAUSE_SECS)
