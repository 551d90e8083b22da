"""Buckets: gradients of many variables packed together, one buffer for each replica.

A gradient is written straight into its slice; when all replicas have filled a bucket, it is added
up over them in one go (Li et al., "PyTorch Distributed", VLDB 2020, describe the scheme). Gradients
that touch only rows of a variable travel as `IndexedSlices` on their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...autodiff import Array, IndexedSlices, Tensor
from ...collectives import DONE, Handle
from ..devices import gpu
from ..devices.arrays import add_up, cut, moved
from ..devices.cross_device_ops import CrossDeviceOps
from ..replicas.interrupts import InterruptsPutOff
from ..variables.variable import Variable
from ..workers.workers import Workers
from .packs import Gradient, Pack, with_values


class GradientPart(Protocol):
    """The gradients of some variables that are reduced together.

    Attributes:
        variables: Whose they are.
        is_reduced_later: Whether `reduce` may only begin what goes on beside backward, so that to
            `finish` is for the end of backward.
    """

    variables: Sequence[Variable]
    is_reduced_later: bool

    def begin(self) -> None:
        """A round begins: what one that failed has left under way is over before it."""

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        """Note one gradient of one replica; a dense one may lie in its slice already."""

    def end(self, replica: int, missing: Sequence[int]) -> None:
        """Note that no more come of one replica: its loss does not depend on these variables."""

    def reduce(self, weights: Sequence[float]) -> None:
        """Add up this worker's gradients, each times its replica's weight.

        Those of weight 0 are left out: they may be no numbers.
        """

    def start(self, workers: Workers, name: str) -> None:
        """Begin to add up over all workers what `reduce` made."""

    def finish(self, workers: Workers, divisor: float) -> None:
        """Wait for the sum over all workers, and divide it."""

    def packs(self, replica: int) -> Sequence[Pack]:
        """What `reduce` made of all variables, where `replica` can read it.

        None where no replica of any worker had a gradient. That is not the same as zero: many rules
        change a variable whose gradient is zero.
        """


class Bucket:
    """Dense gradients of one dtype, packed into a contiguous buffer per replica.

    Behind the gradients lies one number per variable: how many replicas had a gradient of it. It
    travels with them, so that all workers learn alike what nobody had a gradient of.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        num_replicas: int,
        ops: CrossDeviceOps,
        workers: Workers,
    ) -> None:
        self.variables = variables
        self._ops = ops
        self._devices = [variables[0].device_of(replica) for replica in range(num_replicas)]
        self._buffers: list[Array] = []
        self._views: list[list[Array]] = []
        length = sum(v.size for v in variables) + len(variables)
        for replica, device in enumerate(self._devices):
            like = variables[0].leaf(replica).data
            # What the first replica has filled, and the others were added to, is what travels.
            if replica == 0 and isinstance(like, np.ndarray):
                buffer = workers.empty_gradients(length, like.dtype, f"of {variables[0].name} …")
            else:
                with device.use():
                    buffer = np.zeros(length, like.dtype, like=like)
            self._buffers.append(buffer)
            self._views.append(cut(buffer, [v.shape for v in variables]))
        joined = [buffer[: -len(variables)] for buffer in self._buffers]
        self._packs = [
            Pack(tuple(variables), tuple(views), of_all)
            for views, of_all in zip(self._views, joined, strict=True)
        ]
        self._all = [1] * len(variables)
        self._has_gradient = [self._all for _ in self._devices]
        self._num_gradients = [0] * len(variables)
        self._on_host = all(isinstance(buffer, np.ndarray) for buffer in self._buffers)
        self.is_reduced_later = not self._on_host
        self._local: Handle = DONE
        self._handle: Handle | None = None
        self._sent: np.ndarray | None = None
        self._staging: np.ndarray | None = None

    def slices(self, replica: int) -> list[tuple[Tensor, Array]]:
        """Each variable's tensor in `replica` with the slice that takes its gradient."""
        views = self._views[replica]
        return [(v.leaf(replica), view) for v, view in zip(self.variables, views, strict=True)]

    def begin(self) -> None:
        self._local.wait()
        self._local = DONE

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        view = self._views[replica][variable_index]
        if gradient is view:
            return
        _check_shape(self.variables[variable_index], gradient)
        # One that a caller has computed may lie where the replica computes, and not the variable.
        gradient = moved(gradient, self._devices[replica])
        if isinstance(gradient, IndexedSlices):
            view.fill(0)
            gradient.add_to(view)
        else:
            view[...] = gradient

    def end(self, replica: int, missing: Sequence[int]) -> None:
        self._has_gradient[replica] = self._all
        if missing:
            self._has_gradient[replica] = [int(i not in missing) for i in range(len(self._all))]
            for index in missing:
                self._views[replica][index].fill(0)

    def reduce(self, weights: Sequence[float]) -> None:
        if len(weights) == 1 and weights[0] == 1:  # of a replica that is alone: it is the sum
            self._num_gradients = self._has_gradient[0]
            return
        # Those of weight 0 are left out, and not multiplied by it: 0 times NaN is NaN.
        counted = [replica for replica, weight in enumerate(weights) if weight]
        for replica in counted:
            if weights[replica] != 1:  # full batches, and a replica that is alone, keep their bits
                buffer = self._buffers[replica]
                with self._devices[replica].use():  # whichever replica's thread comes here
                    np.multiply(buffer, weights[replica], out=buffer)
        if self._on_host:
            self._add_up(counted)
        else:
            self._start_adding_up(counted)
        if counted == [0]:
            self._num_gradients = self._has_gradient[0]
            return
        none = [0] * len(self.variables)
        had = [self._has_gradient[replica] for replica in counted]
        self._num_gradients = [sum(column) for column in zip(none, *had, strict=True)]

    def _start_adding_up(self, counted: Sequence[int]) -> None:
        """Begin to make the buffer of each card the sum of these replicas'."""
        for replica, device in enumerate(self._devices):
            if replica not in counted:
                with device.use():
                    self._buffers[replica].fill(0)
        if len(self._devices) > 1:
            with InterruptsPutOff() as interrupts:  # what has begun has to be known
                interrupts.begin()
                self._local = self._ops.start_all_reduce(self._buffers, self._devices)

    def _add_up(self, counted: Sequence[int]) -> None:
        """Make the first replica's buffer, which all read, the sum of these."""
        first = self._buffers[0]
        if not counted:
            first.fill(0)
        elif counted != [0]:
            parts = [self._buffers[replica] for replica in counted]
            total = self._ops.reduce(parts, self._devices[0], out=first)
            if total is not first:  # who writes a CrossDeviceOps may leave `out` aside
                first[...] = total

    def start(self, workers: Workers, name: str) -> None:
        first = self._buffers[0]
        if workers.cards is not None and workers.cards.takes(first):
            # It is behind the sum over this worker's cards by itself: both are on one stream.
            self._sent = np.array(self._num_gradients, np.int64)
            self._handle = workers.cards.start_all_reduce(first, self._sent, name)
            return
        self._local.wait()
        num = len(self.variables)
        self._sent, copied = first, None
        if not isinstance(first, np.ndarray):
            if self._staging is None:
                self._staging = gpu.pinned_zeros(len(first), first.dtype)
            self._sent = self._staging
            copied = gpu.start_download(first[:-num], self._staging[:-num])
        self._sent[-num:] = self._num_gradients
        self._handle = workers.start_adding_up_gradients(self._sent, name, copied)

    def finish(self, workers: Workers, divisor: float) -> None:
        self._local.wait()
        self._local = DONE
        if self._handle is not None:
            self._take_sum_of_workers()
        if divisor != 1:
            # On the host all replicas read the first one's buffer: nobody writes to it before all
            # have met again. A card needs the sum in its own memory, and has it there.
            num_copies = 1 if self._on_host else len(self._buffers)
            for buffer, device in zip(self._buffers[:num_copies], self._devices, strict=False):
                with device.use():
                    _divide(buffer, divisor)

    def _take_sum_of_workers(self) -> None:
        """Wait for what was sent, and bring it to the cards that need it."""
        assert self._handle is not None
        assert self._sent is not None
        self._handle.wait()
        self._handle = None
        self._num_gradients = self._sent[-len(self.variables) :].tolist()
        if self._sent is self._staging:
            num = len(self.variables)
            gpu.upload(self._sent[:-num], self._buffers[0][:-num])
        if not self._on_host:
            self._ops.overwrite(self._buffers, self._devices)

    def packs(self, replica: int) -> Sequence[Pack]:
        pack = self._packs[0 if self._on_host else replica]
        if all(self._num_gradients):
            return (pack,)
        found = zip(pack.variables, pack.gradients, self._num_gradients, strict=True)
        return [Pack.of_one(variable, view if n else None) for variable, view, n in found]


class Rows:
    """The gradient of a variable of which a step reads only some rows."""

    def __init__(self, variable: Variable, num_replicas: int) -> None:
        self.variables: Sequence[Variable] = (variable,)
        self.is_reduced_later = False
        self._devices = [variable.device_of(replica) for replica in range(num_replicas)]
        self._gradients: list[Gradient | None] = [None] * num_replicas
        self._total: Gradient | None = None
        self._name = ""
        self._reduced: list[Gradient | None] = []

    def begin(self) -> None:
        pass

    def take(self, replica: int, variable_index: int, gradient: Gradient) -> None:
        _check_shape(self.variables[0], gradient)
        self._gradients[replica] = gradient

    def end(self, replica: int, missing: Sequence[int]) -> None:
        if missing:
            self._gradients[replica] = None

    def reduce(self, weights: Sequence[float]) -> None:
        parts = []
        for gradient, weight, device in zip(self._gradients, weights, self._devices, strict=True):
            if gradient is not None and weight:
                with device.use():
                    weighted = with_values(np.multiply, moved(gradient, device), weight)
                parts.append(moved(weighted, self._devices[0]))
        with self._devices[0].use():
            self._total = add_up(parts, may_repeat=True) if parts else None
        self._gradients = [None] * len(self._gradients)

    def start(self, workers: Workers, name: str) -> None:
        self._name = name

    def finish(self, workers: Workers, divisor: float) -> None:
        if workers.size == 1:
            total = self._total
        else:
            with self._devices[0].use():
                total = self._of_workers(workers)
        if total is None:
            self._reduced = [None] * len(self._devices)
        else:
            with self._devices[0].use():
                total = with_values(np.divide, moved(total, self._devices[0]), divisor)
            self._reduced = [moved(total, device) for device in self._devices]
        self._total = None

    def _of_workers(self, workers: Workers) -> Gradient | None:
        """The sum over all workers, as rows whatever their graphs were; None where none has any.

        A gradient of no rows is one: momentum goes on. It travels as a row behind the last.
        """
        num_rows = self.variables[0].shape[0]
        own = self._rows([]) if self._total is None else _as_rows(self._total)
        if self._total is not None and not len(own.indices):
            own = self._rows([num_rows])
        total = workers.add_up(own, self._name)
        num_marks = int((total.indices == num_rows).sum())
        if not len(total.indices):
            return None
        end = len(total.indices) - num_marks
        return IndexedSlices(total.values[:end], total.indices[:end], total.dense_shape)

    def _rows(self, numbers: Sequence[int]) -> IndexedSlices:
        leaf = self.variables[0].leaf(0).data
        values = np.zeros((len(numbers), *leaf.shape[1:]), leaf.dtype, like=leaf)
        return IndexedSlices(values, np.asarray(numbers, np.int64, like=leaf), leaf.shape)

    def packs(self, replica: int) -> Sequence[Pack]:
        return (Pack.of_one(self.variables[0], self._reduced[replica]),)


def plan_buckets(variables: Sequence[Variable], bytes_per_pack: int) -> list[list[Variable]]:
    """Cut a list of variables into runs of one dtype and memory, of about `bytes_per_pack` each.

    The first is closed at a quarter of it: it travels early, under the rest of backward.
    """
    buckets: list[list[Variable]] = []
    room = 0
    for variable in variables:
        if not buckets or room <= 0 or _kind(buckets[-1][0]) != _kind(variable):
            room = bytes_per_pack if buckets else bytes_per_pack // 4
            buckets.append([])
        buckets[-1].append(variable)
        room -= variable.size * variable.dtype.itemsize
    return buckets


def _kind(variable: Variable) -> tuple[np.dtype, str]:
    """What is common to a bucket. One created outside the scope is on the host, others on cards."""
    return variable.dtype, variable.device_of(0).memory


def _divide(array: Array, divisor: float) -> None:
    """Divide in place; equal batches of 2, 4 or 8 replicas in half the time, to the same bits."""
    if math.frexp(divisor)[0] == 0.5:  # a power of two, whose reciprocal is exact
        np.multiply(array, 1 / divisor, out=array)
    else:
        np.divide(array, divisor, out=array)


def _as_rows(gradient: Gradient) -> IndexedSlices:
    """A gradient as one of rows, each once: a dense one as one of all."""
    if isinstance(gradient, IndexedSlices):
        return gradient.unique()
    rows = np.arange(len(gradient), like=gradient)
    return IndexedSlices(gradient, rows, tuple(gradient.shape))


def _check_shape(variable: Variable, gradient: Gradient) -> None:
    shape = variable.shape
    if tuple(gradient.shape) != shape:
        raise ValueError(
            f"the gradient of variable {variable.name!r} has shape {tuple(gradient.shape)}, "
            f"the variable has shape {shape}"
        )
