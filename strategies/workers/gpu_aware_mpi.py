"""Arrays on cards go from worker to worker by an MPI that takes them where they are.

The communicator makes these calls as all others: compared, in order, watched over. What is added
here is the order of streams, of which MPI knows nothing.
"""

from __future__ import annotations

import logging
from typing import final

import numpy as np

from ...autodiff import Array
from ...collectives import Communicator, Handle
from ..devices import gpu
from ..devices.device import Device
from .workers import Workers

_COMBINED = frozenset(map(np.dtype, ("float32", "float64", "int32", "int64")))
"""What MPI adds up itself. Others are added up by functions of NumPy's, in host memory."""

_logger = logging.getLogger("paceline")


def join_by_mpi(
    communicator: Communicator,
    device: Device,
    wish: bool | None = None,
    strict: bool = False,
    wire_dtype: str | None = None,
) -> MpiCards | None:
    """Let MPI move arrays on the cards of all workers, which call this together.

    None where arrays go through host memory: where any worker's cannot be moved, all do that.

    Args:
        communicator: Joins the workers.
        device: Where this worker's gradients are.
        wish: Whether MPI takes arrays on cards; None asks the library.
        strict: Whether it is an error, on all workers, that it was wished for and cannot be.
        wire_dtype: In what gradients travel if not as they are, which MPI cannot.

    Raises:
        ValueError: It cannot be (strict).
        CollectiveError: A worker was lost meanwhile, or did not come.
    """
    if wish is False or (wish is None and communicator.takes_gpu_arrays is None):
        return None
    own = _missing(communicator, device, wish, wire_dtype)
    texts = Workers(communicator).texts(own, "who can give MPI arrays on cards")
    if not any(texts):
        communicator.takes_gpu_arrays = True
        # An MPI that is mistaken about itself ends the process, without a word of ours.
        _logger.info(
            "Arrays on cards are given to MPI as they are. If it crashes, take "
            "CommunicationOptions(gpu_aware_mpi=False)."
        )
        return MpiCards(communicator, device)
    why_not = "; ".join(f"worker {i}: {text}" for i, text in enumerate(texts) if text)
    if wish and strict:
        raise ValueError(f"gpu_aware_mpi is True, but {why_not} (strict_devices=True)")
    if wish or not all(texts):
        _logger.warning("MPI is not given arrays on cards, since %s.", why_not)
    return None


def _missing(
    communicator: Communicator, device: Device, wish: bool | None, wire_dtype: str | None
) -> str:
    """Why this worker cannot take part, in words; empty if it can."""
    if communicator.takes_gpu_arrays is None:
        return "it communicates by RING, not by MPI"
    if device.kind != "GPU":
        return "paceline finds no GPU there"
    if wire_dtype is not None:
        return f"wire_dtype={wire_dtype!r} needs the way through host memory"
    if not (wish or communicator.takes_gpu_arrays):
        return "its MPI does not say that it takes arrays on GPUs"
    return ""


@final
class MpiCards:
    """The cards of all workers, one of each, seen from one of them.

    MPI reads and writes as soon as it is called, and has done so when it returns. So it is called
    when the card has come to the end of what it was given before; what the card is given next finds
    the result; and nobody gives it anything that touches the array in between.

    Args:
        communicator: Joins the workers, and takes arrays on cards.
        device: This worker's card.

    Attributes:
        device: As given.
    """

    def __init__(self, communicator: Communicator, device: Device) -> None:
        self.device = device
        self._communicator = communicator

    def takes(self, array: Array) -> bool:
        """Whether it moves arrays such as this one: on a card, of a dtype that MPI adds up."""
        return not isinstance(array, np.ndarray) and array.dtype in _COMBINED

    def start_all_reduce(self, array: Array, numbers: np.ndarray, name: str) -> Handle:
        """Begin to replace an array on the card, and numbers, by their sums over all workers.

        Neither may be touched before the handle was waited for. The call waits, behind the caller's
        back, for what the card was given to compute before.

        Args:
            array: Contiguous, of one length and dtype on all workers.
            numbers: In host memory, few.
            name: What it is.
        """
        communicator, written = self._communicator, gpu.end_of_work(*gpu.home(array))
        beside = communicator.start_all_reduce(numbers, f"numbers of {name}")
        return _Both(beside, communicator.start_all_reduce(array, name, after=written))

    def all_gather(self, array: Array, name: str) -> list[Array]:
        """The arrays of all workers, in their order, on this card.

        Args:
            array: Contiguous, of one dtype on all workers; shapes may differ in the first
                dimension.
            name: What it is.
        """
        with self.device.use():  # of the stream that computes is the memory that is returned
            gpu.end_of_work(*gpu.home(array)).synchronize()
            return self._communicator.all_gather(array, name)


@final
class _Both(Handle):
    def __init__(self, first: Handle, second: Handle) -> None:
        self._handles = first, second

    def wait(self) -> None:
        for handle in self._handles:
            handle.wait()
