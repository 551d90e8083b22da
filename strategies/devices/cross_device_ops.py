"""How arrays of several local devices are combined: one policy object for each way of doing it."""

from __future__ import annotations

import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...autodiff import Array
from ...collectives import DONE, Handle
from ...observe import log_once
from ..replicas.interrupts import InterruptsPutOff
from . import gpu, nccl, one_card
from .device import Device


class ReduceOp(enum.Enum):
    """How to combine values over replicas."""

    SUM = "SUM"
    MEAN = "MEAN"

    @classmethod
    def parse(cls, value: ReduceOp | str) -> ReduceOp:
        """A `ReduceOp` from itself or from its name in any case.

        Raises:
            ValueError: `value` is neither SUM nor MEAN.
        """
        if isinstance(value, ReduceOp):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(f"reduce_op must be 'SUM' or 'MEAN' (or a ReduceOp), not {value!r}")


def mean_of(total: Array, count: float) -> Array:
    """`total / count`, in the dtype of `total` where that is a float, else in float64."""
    dtype = total.dtype if np.issubdtype(total.dtype, np.inexact) else np.float64
    mean = np.divide(total, count, dtype=dtype)
    return np.asarray(mean) if isinstance(mean, np.generic) else mean


class CrossDeviceOps(ABC):
    """Combines one array per local replica; subclass it to bring your own reduction.

    `reduce` is the only method to write. It must give the same bits for the same arrays each time:
    copies of a variable stay equal because all are updated from one reduced gradient.
    """

    @abstractmethod
    def reduce(
        self, arrays: Sequence[Array], destination: Device, out: Array | None = None
    ) -> Array:
        """The sum of `arrays` (equal shapes and dtypes, one per replica) on `destination`.

        It is called where `destination` computes; what another device has is to be brought there.

        Args:
            arrays: Left unchanged, except for one that is also `out`.
            destination: Where the result goes.
            out: If given, an array on `destination` that takes the result; it may be `arrays[0]`.
                Without it the result is a new array.
        """

    def start_all_reduce(self, arrays: Sequence[Array], devices: Sequence[Device]) -> Handle:
        """Begin to replace each array by the sum of all.

        Until the handle has been waited for, nobody touches the arrays. Cards may go on computing
        meanwhile, and `wait` lets their streams wait, not the caller.

        Args:
            arrays: One on each device, of equal shapes and dtypes, contiguous.
            devices: Where they are.
        """
        first = arrays[0]
        with devices[0].use():
            total = self.reduce(arrays, devices[0], out=first)
            if total is not first:  # who writes a CrossDeviceOps may leave `out` aside
                first[...] = total
        self.overwrite(arrays, devices)
        return DONE

    def overwrite(self, arrays: Sequence[Array], devices: Sequence[Device]) -> None:
        """Overwrite all arrays by the first one; they are as in `start_all_reduce`."""
        for array, device in zip(arrays[1:], devices[1:], strict=True):
            with device.use():
                array[...] = device.put(arrays[0])

    def missing_for(self, devices: Sequence[Device]) -> str:
        """What keeps it from working on these devices as it is meant to, in words; or nothing."""
        return ""

    def batch_reduce(
        self, values: Sequence[Sequence[Array]], destinations: Sequence[Device]
    ) -> list[Array]:
        """`reduce` for several values at once, each with its own destination."""
        sums = []
        for arrays, destination in zip(values, destinations, strict=True):
            with destination.use():
                sums.append(self.reduce(arrays, destination))
        return sums

    def broadcast(self, array: Array, destinations: Sequence[Device]) -> list[Array]:
        """A copy of `array` on each destination."""
        if destinations:
            names = ", ".join(map(str, destinations))
            log_once(logging.DEBUG, "Then broadcast to %s.", names)
        return [device.put(array) for device in destinations]

    def gather(self, arrays: Sequence[Array], axis: int, destination: Device) -> Array:
        """The concatenation of `arrays` along `axis` on `destination`, as a new array.

        Args:
            arrays: Of one rank ≥ 1 and of shapes that differ along `axis` only.
            axis: In [0, rank).
            destination: Where the result goes.

        Raises:
            ValueError: The arrays are scalars, `axis` is out of range, or the shapes do not fit.
        """
        _check_gather([array.shape for array in arrays], axis)
        with destination.use():
            return np.concatenate([destination.bring(array) for array in arrays], axis=axis)


def _check_gather(shapes: Sequence[tuple[int, ...]], axis: int) -> None:
    ndim = len(shapes[0])
    if ndim == 0:
        raise ValueError("gather needs values of rank ≥ 1, these are scalars; use reduce instead")
    if not 0 <= axis < ndim:
        raise ValueError(f"axis must be in [0, {ndim}) for values of rank {ndim}, it is {axis}")
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        raise ValueError(
            f"the replicas' values have shapes {list(shapes)}; to be gathered along axis {axis} "
            f"they must be equal in all others"
        )


def _sum(arrays: Sequence[Array], device: Device, out: Array | None) -> Array:
    """The sum in the order given, which fixes its rounding."""
    if len(arrays) == 1 and out is None:
        return device.put(arrays[0])
    with device.use():
        if out is not None and len(arrays) == 1:
            if out is not arrays[0]:
                out[...] = device.bring(arrays[0])
            return out
        total = np.add(device.bring(arrays[0]), device.bring(arrays[1]), out=out)
        total = np.asarray(total) if isinstance(total, np.generic) else total
        for array in arrays[2:]:
            np.add(total, device.bring(array), out=total)
        return total


class ReductionToOneDevice(CrossDeviceOps):
    """Copy everything to one device and add it up there, in replica order.

    Args:
        reduce_to_device: Where to add; the destination itself by default.
        accumulation_fn: `fn(arrays) -> array`, in the place of the sum.
    """

    def __init__(
        self,
        reduce_to_device: str | Device | None = None,
        accumulation_fn: Callable[[Sequence[Array]], Array] | None = None,
    ) -> None:
        self._device = None if reduce_to_device is None else Device.parse(reduce_to_device)
        self._accumulate = accumulation_fn

    def reduce(
        self, arrays: Sequence[Array], destination: Device, out: Array | None = None
    ) -> Array:
        device = self._device or destination
        log_once(logging.DEBUG, "Reduce to %s then broadcast to %s.", device, destination)
        if self._accumulate is None and device == destination:
            return _sum(arrays, destination, out)
        on_device = [device.bring(array) for array in arrays]
        if self._accumulate is None:
            return _sum([_sum(on_device, device, None)], destination, out)
        with device.use():
            total = self._accumulate(on_device)
        return _sum([total], destination, out)


class HierarchicalCopyAllReduce(CrossDeviceOps):
    """Add up in groups of neighbouring devices first, then add the groups' sums.

    Made for cards that are linked in two groups (an NVIDIA DGX-1): only one array crosses from each
    group to the other, and one comes back.

    Args:
        num_packs: Of no effect, and anything but 1 is warned about: gradients arrive here already
            packed (`CommunicationOptions.bytes_per_pack`).
        group_size: The number of devices in a group.
    """

    def __init__(self, num_packs: int = 1, group_size: int = 4) -> None:
        if group_size < 1:
            raise ValueError(f"group_size must be ≥ 1, it is {group_size}")
        self.num_packs = _without_effect(num_packs)
        self._group_size = group_size

    def reduce(
        self, arrays: Sequence[Array], destination: Device, out: Array | None = None
    ) -> Array:
        groups = self._groups(arrays)
        plan = "Reduce in %s group(s) of up to %s, then to %s."
        log_once(logging.DEBUG, plan, len(groups), self._group_size, destination)
        if len(groups) == 1:
            return _sum(arrays, destination, out)
        sums = [_sum(group, Device.of(group[0]), None) for group in groups]
        return _sum(sums, destination, out)

    def overwrite(self, arrays: Sequence[Array], devices: Sequence[Device]) -> None:
        groups, homes = self._groups(arrays), self._groups(devices)
        super().overwrite([group[0] for group in groups], [group[0] for group in homes])
        for group, home in zip(groups, homes, strict=True):
            super().overwrite(group, home)

    def _groups(self, items: Sequence[Any]) -> list[Sequence[Any]]:
        n = self._group_size
        return [items[i : i + n] for i in range(0, len(items), n)]


class NcclAllReduce(CrossDeviceOps):
    """Reduce with NVIDIA's NCCL, on a stream of each card beside the one that it computes on.

    NCCL takes one array of each card: those of several logical devices of a card are added up there
    first, on such a stream as well, and without another card that is all.

    Where NCCL cannot (arrays on the host, no NCCL here), they are copied to one device and added up
    there, which is said once. For the same arrays it gives the same bits each time, which may be
    others than those of the other ways: it adds up in an order of its own.

    Args:
        num_packs: Of no effect, and anything but 1 is warned about: gradients arrive here already
            packed (`CommunicationOptions.bytes_per_pack`).
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _without_effect(num_packs)

    def reduce(
        self, arrays: Sequence[Array], destination: Device, out: Array | None = None
    ) -> Array:
        groups = self._groups(arrays)
        if len(groups) < 2:
            return _sum(arrays, destination, out)
        homes = [Device.of(group[0]) for group in groups]
        cards = [home.index for home in homes]
        parts = [
            _contiguous(group[0], home) if len(group) == 1 else _sum(group, home, None)
            for group, home in zip(groups, homes, strict=True)
        ]
        is_near = destination.kind == "GPU" and destination.index in cards
        root = cards.index(destination.index) if is_near else 0
        with homes[root].use():
            total = out if out is parts[root] else np.empty_like(parts[root])
        # The own streams of all cards wait: what comes there next may overwrite the arrays, or
        # give their memory to another one.
        nccl.ranks_of(cards).reduce(parts, root, total).wait()
        if total is out or (out is None and homes[root].memory == destination.memory):
            return total
        return _sum([total], destination, out)

    def start_all_reduce(self, arrays: Sequence[Array], devices: Sequence[Device]) -> Handle:
        groups = self._groups(arrays)
        if not groups:
            return super().start_all_reduce(arrays, devices)
        for group in groups:
            if len(group) > 1:
                one_card.add_up(group)
        return self._spread(groups, lambda ranks, firsts: ranks.all_reduce(firsts))

    def overwrite(self, arrays: Sequence[Array], devices: Sequence[Device]) -> None:
        groups = self._groups(arrays)
        if not groups:
            super().overwrite(arrays, devices)
            return
        with InterruptsPutOff() as interrupts:  # what has begun is to be waited for
            interrupts.begin()
            self._spread(groups, lambda ranks, firsts: ranks.broadcast(firsts, 0)).wait()

    def _spread(
        self,
        groups: Sequence[Sequence[Array]],
        between_cards: Callable[[nccl.NcclRanks, Sequence[Array]], Handle],
    ) -> Handle:
        """Begin to overwrite the arrays of each card by the first of them, as NCCL makes these."""
        handles = []
        if len(groups) > 1:
            firsts = [group[0] for group in groups]
            ranks = nccl.ranks_of([gpu.home(first)[0] for first in firsts])
            handles.append(between_cards(ranks, firsts))
        for group in groups:
            if len(group) > 1:  # on the stream on which NCCL makes the first one
                event = one_card.overwrite(group)
                handles.append(nccl.UnderWay(group, [event] * len(group)))
        return _All(handles)

    def missing_for(self, devices: Sequence[Device]) -> str:
        if any(device.kind != "GPU" for device in devices):
            return "not all devices are GPUs"
        return nccl.missing_for(sorted({device.index for device in devices}))

    def _groups(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """The arrays of each card. None where NCCL cannot add up over these cards, or the host.

        If that is worth a word, it is said once.
        """
        if len(arrays) == 1:
            return []
        homes = [Device.of(array) for array in arrays]
        if any(home.kind != "GPU" for home in homes):
            if nccl.knows(arrays[0].dtype):
                text = "NcclAllReduce: the arrays are on the host, so they are added up there."
                log_once(logging.INFO, text)
            return []
        groups: dict[int, list[Array]] = {}
        for array, home in zip(arrays, homes, strict=True):
            groups.setdefault(home.index, []).append(array)
        if len(groups) > 1:
            if not nccl.knows(arrays[0].dtype):
                return []
            missing = nccl.missing_for(list(groups))
            if missing:
                text = "NcclAllReduce: %s; they are copied to one device and added up there."
                log_once(logging.WARNING, text, missing)
                return []
        return list(groups.values())


class _All(Handle):
    """What is over when all of these are."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self._handles = handles

    def wait(self) -> None:
        for handle in self._handles:
            handle.wait()


def _contiguous(array: Array, home: Device) -> Array:
    if array.flags.c_contiguous:
        return array
    with home.use():
        return array.copy(order="C")


def _without_effect(num_packs: int) -> int:
    """TensorFlow's number of packs, as it is given."""
    if num_packs != 1:
        log_once(
            logging.WARNING,
            "num_packs has no effect: gradients arrive in packs already; CommunicationOptions("
            "bytes_per_pack=...) sets the size of those that workers exchange.",
        )
    return num_packs
