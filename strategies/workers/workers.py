"""What the workers of one strategy do together, in terms of the arrays of strategies.

All workers make the same calls in the same order. A worker that is alone gets its own arrays back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...autodiff import Array, IndexedSlices
from ...collectives import DONE, Arrival, Communicator, Handle, Op
from ...observe import Collective
from ..devices.arrays import Summand, add_up
from ..devices.device import Device, to_host


class _Seen(Handle):
    """A collective under way; its end is what whoever waits for it sees of it."""

    def __init__(self, handle: Handle, seen: Collective) -> None:
        self._handle = handle
        self._seen = seen

    def wait(self) -> None:
        self._handle.wait()
        self._seen.end()


class _Widened(Handle):
    """A sum under way in a narrower dtype than that of the array that it goes to."""

    def __init__(self, handle: Handle, narrow: np.ndarray, array: np.ndarray, name: str) -> None:
        self._handle = handle
        self._narrow = narrow
        self._array = array
        self._name = name

    def wait(self) -> None:
        self._handle.wait()
        if not np.isfinite(self._narrow).all():
            largest = np.finfo(self._narrow.dtype).max
            raise FloatingPointError(
                f"{self._name}: their sum over the workers is not finite in {self._narrow.dtype}, "
                f"whose largest number is {largest:g}; leave wire_dtype out, or scale the loss down"
            )
        self._array[...] = self._narrow


class Cards(Protocol):
    """One card of each worker, where arrays on them need not go through host memory.

    Attributes:
        device: This worker's, on which are the arrays that are given and returned.
    """

    device: Device

    def takes(self, array: Array) -> bool:
        """Whether it moves arrays such as this one."""

    def start_all_reduce(self, array: Array, numbers: np.ndarray, name: str) -> Handle:
        """Begin to replace both, one on the card and one on the host, by their sums."""

    def all_gather(self, array: Array, name: str) -> list[Array]:
        """The arrays of all workers, which may differ in the first dimension."""


class Workers:
    """The workers that train together, seen from one of them.

    Args:
        communicator: Joins one rank per worker; None for a worker that is alone.
        wire_dtype: In what gradients of wider floating-point dtypes travel; by default their own.
        cards: Moves arrays that are on cards; without it they go through host memory.

    Attributes:
        cards: As given.
        num_collectives: How often they have added up or gathered at once, as models ask them to.
    """

    def __init__(
        self,
        communicator: Communicator | None = None,
        wire_dtype: np.dtype[np.float16] | None = None,
        cards: Cards | None = None,
    ) -> None:
        self.cards = cards
        self._communicator = communicator
        self._wire_dtype = wire_dtype
        self._full_batch: float | None = None
        self.num_collectives = 0

    @property
    def size(self) -> int:
        return 1 if self._communicator is None else self._communicator.size

    @property
    def rank(self) -> int:
        return 0 if self._communicator is None else self._communicator.rank

    @property
    def communicator(self) -> Communicator:
        """What joins the workers, where there are several."""
        assert self._communicator is not None, "a worker that is alone has nobody to talk to"
        return self._communicator

    def at_step(self, step: int) -> None:
        """Note the step that is being made: errors name it."""
        if self._communicator is not None:
            self._communicator.step = step

    def full_batch(self, largest_here: float) -> float:
        """The number of examples whose weight is 1.

        A worker that is alone takes the largest batch of the step; several workers the largest one
        of their first step, on which they agree then.
        """
        if self.size == 1:
            return largest_here or 1.0
        # Once only, as it would be one more exchange in each step, before any gradient can travel.
        # It need not be the largest one: weights are divided by their sum, so it only scales them.
        if self._full_batch is None:
            largest = np.array([largest_here], np.float64)
            self.communicator.all_reduce(largest, "the full batch", Op.MAX)
            self._full_batch = float(largest[0]) or 1.0
        return self._full_batch

    def start_adding_up(
        self, numbers: np.ndarray, name: str, after: Arrival | None = None
    ) -> Handle:
        """Begin to replace numbers by their sums over all workers; wait for the handle."""
        if self.size == 1:
            return DONE
        seen = Collective(name)
        handle = self.communicator.start_all_reduce(numbers, name, after=after)
        return _Seen(handle, seen)

    def empty_gradients(self, length: int, dtype: np.dtype[Any], name: str) -> np.ndarray:
        """Memory for gradients, all zeros, from which they are added up fastest."""
        if self._communicator is None or self._wire_dtype is not None:
            return np.zeros(length, dtype)
        return self._communicator.empty((length,), dtype, f"gradients {name}")

    def start_adding_up_gradients(
        self, gradients: np.ndarray, name: str, after: Arrival | None = None
    ) -> Handle:
        """`start_adding_up`, by way of the narrower dtype if one was asked for.

        Args:
            gradients: In host memory.
            name: What they are.
            after: The end of the copy by which they come there from a card.
        """
        narrow = self._wire_dtype
        if narrow is None or self.size == 1 or gradients.dtype.itemsize <= narrow.itemsize:
            return self.start_adding_up(gradients, name, after)
        if after is not None:
            after.synchronize()
        # What is too large becomes an infinity, and stays one in every sum: `_Widened` finds it on
        # all workers alike, where an error here would be one worker's only.
        with np.errstate(over="ignore"):
            sent = gradients.astype(narrow)
        return _Widened(self.start_adding_up(sent, name), sent, gradients, name)

    def add_up(self, value: Summand, name: str) -> Summand:
        """The sum of all workers' values; on the host if there are several, or on their card."""
        if self.size == 1:
            return value
        self.num_collectives += 1
        if isinstance(value, IndexedSlices):
            parts = self.gather_slices(value, name)
            with Device.of(parts[0].values).use():
                return add_up(parts)
        flat = _flat_copy(value)
        with Collective(name):
            self.communicator.all_reduce(flat, _with_shape(name, value.shape))
        return flat.reshape(value.shape)

    def add_up_counted(
        self,
        values: Sequence[Summand],
        count: int,
        name: str,
        bytes_per_pack: int,
        timeout_secs: float | None = None,
    ) -> tuple[list[Summand], float]:
        """The sums of all workers' values, and that of their counts, which travel with them.

        Arrays of one dtype travel together, up to `bytes_per_pack`, `IndexedSlices` by themselves.

        Args:
            values: As many on each worker, of the same shapes.
            count: What to add up besides; small enough for the dtypes of the values.
            name: What the exchange is for.
            bytes_per_pack: Where the next pack begins.
            timeout_secs: How long a worker may keep the others waiting, if not as long as ever.
        """
        if self.size == 1:
            return list(values), count
        usual = self.communicator.timeout_secs
        self.communicator.timeout_secs = usual if timeout_secs is None else timeout_secs
        try:
            return self._added_up_in_packs(values, count, name, bytes_per_pack)
        finally:
            self.communicator.timeout_secs = usual

    def _added_up_in_packs(
        self, values: Sequence[Summand], count: int, name: str, bytes_per_pack: int
    ) -> tuple[list[Summand], float]:
        sums, total = list(values), float(count)
        packs = _packs(values, bytes_per_pack, lambda value: self._cards_for(value) is not None)
        for pack in packs:
            arrays: list[Any] = [values[index] for index in pack]
            self.num_collectives += 1
            with Collective(name):
                what = _with_shape(name, *(array.shape for array in arrays))
                flat, total = self._added_up_flat(arrays, count, what)
            end = 0
            for index, array in zip(pack, arrays, strict=True):
                begin, end = end, end + array.size
                sums[index] = flat[begin:end].reshape(array.shape)
        if not packs:
            (total,) = self.add_up_numbers([count], f"count of {name}")
        for index, value in enumerate(values):
            if isinstance(value, IndexedSlices):
                sums[index] = self.add_up(value, name)
        return sums, total

    def _added_up_flat(self, arrays: Sequence[Array], count: int, name: str) -> tuple[Array, float]:
        """The sums of all workers' arrays, of one dtype, one behind the other; and of a count."""
        cards = self._cards_for(*arrays)
        if cards is None:
            counted = np.asarray(count, arrays[0].dtype).reshape(1)
            flat = np.concatenate([*(to_host(array).reshape(-1) for array in arrays), counted])
            self.communicator.all_reduce(flat, name)
            return flat[:-1], float(flat[-1].real)
        numbers = np.array([count], np.float64)
        with cards.device.use():
            flat = np.concatenate([cards.device.bring(array).reshape(-1) for array in arrays])
        cards.start_all_reduce(flat, numbers, name).wait()
        return flat, float(numbers[0])

    def _cards_for(self, *arrays: Summand) -> Cards | None:
        """What moves arrays like all of these between cards; None where the host has to."""
        cards = self.cards
        return cards if cards is not None and all(map(cards.takes, arrays)) else None

    def gather_slices(self, slices: IndexedSlices, name: str) -> list[IndexedSlices]:
        """All workers' slices, in the order of workers."""
        if self.size == 1:
            return [slices]
        cards = self._cards_for(slices.values, slices.indices)
        values = self._gathered(slices.values, cards, f"rows of {name}")
        indices = self._gathered(slices.indices, cards, f"row numbers of {name}")
        pairs = zip(values, indices, strict=True)
        return [IndexedSlices(v, i, slices.dense_shape) for v, i in pairs]

    def gather(self, array: Array, axis: int, name: str) -> Array:
        """All workers' arrays one after another along `axis`, along which they may differ.

        The result is on the host if there are several, or on their card.
        """
        if self.size == 1:
            return array
        self.num_collectives += 1
        with Device.of(array).use():
            first = np.moveaxis(array, axis, 0)
        what = _with_shape(name, ("any", *first.shape[1:]))
        with Collective(name):
            parts = self._gathered(first, self._cards_for(array), what)
        with Device.of(parts[0]).use():
            return _in_c_order(np.moveaxis(np.concatenate(parts), 0, axis))

    def _gathered(self, array: Array, cards: Cards | None, name: str) -> list[Array]:
        """All workers' arrays, which may differ in the first dimension: on the host without cards.

        None of them is the given one.
        """
        if cards is None:
            return self.communicator.all_gather(np.array(to_host(array), order="C"), name)
        with cards.device.use():
            own = _in_c_order(cards.device.bring(array))
        return cards.all_gather(own, name)

    def gather_numbers(self, number: int, name: str) -> list[int]:
        return self.gather(np.array([number], np.int64), 0, name).tolist()

    def add_up_numbers(self, numbers: Sequence[float], name: str) -> list[float]:
        return list(map(float, self.start_adding_up_numbers(numbers, name)()))

    def start_adding_up_numbers(
        self, numbers: Sequence[float], name: str
    ) -> Callable[[], list[float]]:
        """Begin to add up numbers over all workers; what is returned waits for the sums."""
        if self._communicator is None:  # to make an array takes longer than all else here
            return lambda: list(numbers)
        sums = np.array(numbers, np.float64)
        handle = self.start_adding_up(sums, name)

        def wait() -> list[float]:
            handle.wait()
            return sums.tolist()

        return wait

    def any_of_each(self, flags: Sequence[bool], name: str) -> list[bool]:
        """For each flag, of which all workers have as many, whether it is set on any worker."""
        return [bool(n) for n in self.add_up_numbers(flags, f"{name} ({len(flags)})")]

    def number_from_chief(self, number: int, name: str) -> int:
        """The first worker's number; nobody gets it before the first worker has called."""
        return self.gather_numbers(number, name)[0]

    def texts(self, text: str, name: str) -> list[str]:
        if self.size == 1:
            return [text]
        code_points = np.frombuffer(text.encode("utf-32-le"), np.int32)
        with Collective(name):
            gathered = self.communicator.all_gather(code_points, name)
        return [array.tobytes().decode("utf-32-le") for array in gathered]

    def text_from_chief(self, text: str, name: str) -> str:
        """The first worker's text."""
        return self.texts(text, name)[0]

    def of_all_replicas(
        self, values: Sequence[np.ndarray], like: np.ndarray, name: str
    ) -> list[np.ndarray]:
        """The values of the replicas of all workers, in the order of replicas.

        This worker's may be none; they have the shape and dtype of `like`.
        """
        if self.size == 1:
            return list(values)
        together = np.empty((len(values), *like.shape), like.dtype)
        for index, value in enumerate(values):
            together[index] = to_host(value)
        return list(self.gather(together, 0, name))

    def from_chief(self, value: np.ndarray, name: str) -> np.ndarray:
        """The first worker's value; those of the others must have its shape and dtype."""
        if self.size == 1:
            return value
        flat = _flat_copy(value)
        self.communicator.broadcast(flat, _with_shape(name, value.shape))
        return flat.reshape(value.shape)


def _packs(
    values: Sequence[Summand], bytes_per_pack: int, by_cards: Callable[[Array], bool]
) -> list[list[int]]:
    """The numbers of the dense values that travel together: of one dtype, and of so many bytes.

    And all of them, or none, between cards.
    """
    packs: list[list[int]] = []
    open_packs: dict[tuple[np.dtype, bool], tuple[list[int], int]] = {}
    for index, value in enumerate(values):
        if isinstance(value, IndexedSlices):
            continue
        kind = value.dtype, by_cards(value)
        pack, num_bytes = open_packs.get(kind, ([], 0))
        if not pack or num_bytes >= bytes_per_pack:
            pack, num_bytes = [], 0
            packs.append(pack)
        pack.append(index)
        open_packs[kind] = pack, num_bytes + value.nbytes
    return packs


def _with_shape(name: str, *shapes: tuple[object, ...]) -> str:
    """A name by which workers whose arrays differ in shape find out; what travels is flat."""
    texts = [f"({', '.join(map(str, shape))})" for shape in shapes]
    return f"{name} of shape {', '.join(texts)}"


def _in_c_order(array: Array) -> Array:
    return array if array.flags.c_contiguous else array.copy(order="C")


def _flat_copy(value: Summand) -> np.ndarray:
    """A contiguous one-dimensional copy on the host, which a communicator may write into."""
    return np.array(to_host(value), order="C").reshape(-1)
