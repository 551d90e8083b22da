"""The module of this package that knows CuPy; `graphs` captures what it does.

A card may be several logical devices, its *parts*, each of which computes on a stream of its own:
they share the card's memory as logical CPUs share the host's, but not the order of what is done.
So an array belongs to the part in whose `use` it was made, its *home*. Why replicas on parts of one
card read no value that is not there yet, and overwrite none that is still to be read:

- Whatever a part computes is in the order of its stream, and only on arrays whose home it is. These
  are never computed with by another part: what this one needs, it copies by `put`, or `Staging`
  brings it.
- A copy between parts is ordered by two events, as one between cards: it waits for what writes the
  array, and what the home does from here on waits for the copy. CuPy's pool gives memory back to
  the stream on which it was taken, at once when the host lets go of it; that is the stream of the
  home, and whatever gets the memory next is computed behind the copy.
- Buffers of gradients are also read and written by the card's stream for communication
  (`one_card`): behind everything that the parts have been given so far, and in front of everything
  that they are given when they have been told to wait for its event. Nobody touches the buffers in
  between, and their memory goes back behind that event.
- CUDA's default stream, that of threads outside replicas, waits for all of these streams and they
  for it. What is made there belongs to no part: it counts as the first one's, and another part
  copies it.

Which part is the home, an array's memory tells (`home`). It has it from `_Allocator`, which passes
on the memory that CuPy's own would have given. The first part takes CuPy's as it is: a card that is
one device knows nothing of all this.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ...autodiff import Array
from ..replicas.interrupts import InterruptsPutOff
from .once import made_once


@cache
def _cupy() -> Any:
    """CuPy, or None where it is not installed or sees no GPU."""
    try:
        import cupy
    except ImportError:
        return None
    return cupy if cupy.is_available() else None


@cache
def _nccl() -> Any:
    """CuPy's module of NCCL, or None where there is no GPU, or CuPy finds no NCCL."""
    if _cupy() is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no NCCL is for whoever asks for it to say
        try:
            from cupy.cuda import nccl
        except ImportError:
            return None
    return nccl if nccl.available else None


def nccl() -> Any:
    """CuPy's module of NCCL, or None where there is no GPU, or CuPy finds no NCCL."""
    return _nccl()


def bus_id(index: int) -> str:
    """Where a card is in this machine, by which processes that number cards otherwise know it."""
    found: str = _cupy().cuda.runtime.deviceGetPCIBusId(index)
    return found


def count() -> int:
    """The number of GPUs that CuPy can use; 0 without CuPy or a driver."""
    cupy = _cupy()
    return cupy.cuda.runtime.getDeviceCount() if cupy else 0


Home: TypeAlias = "tuple[int, int]"
"""A card, and which part of it."""


def home(array: Array) -> Home:
    """The card in whose memory an array is, and the part of it to which it belongs."""
    return array.device.id, getattr(array.data.mem, "part", 0)


def put(array: Array, index: int, part: int = 0) -> Array:
    """A copy on a part of a card, in C order, behind its work; from host memory by pinned memory.

    Who changes variables goes through them as one line of numbers, which would be a copy in
    Fortran's order: CuPy keeps that, if it is not told otherwise.

    A copy from elsewhere waits for what writes the array, and what its home does from here on waits
    for the copy: it may overwrite the array, or give its memory to another one.
    """
    cupy, here = _cupy(), (index, part)
    source = here if isinstance(array, np.ndarray) else home(array)
    if source == here:
        with use(*here):
            return cupy.array(array, order="C")
    current = cupy.cuda.get_current_stream
    with InterruptsPutOff() as interrupts:  # the home has to know of what it is waited for
        interrupts.begin()
        with use(*source):
            written = current().record()
        with use(*here):
            current().wait_event(written)
            copy = cupy.array(array, order="C")
            read = current().record()
        with use(*source):
            current().wait_event(read)
    return copy


def get(array: Array) -> np.ndarray:
    """The values of an array in host memory, which waits for its home alone."""
    with use(*home(array)):
        values: np.ndarray = array.get()
    return values


@contextmanager
def use(index: int, part: int = 0) -> Iterator[None]:
    """Within it the calling thread computes on a card, on this package's stream of that part."""
    if index >= count():
        raise RuntimeError(f"GPU:{index} is not here: {count()} GPU(s) are visible to CuPy")
    cupy = _cupy()
    with cupy.cuda.Device(index), _stream(cupy, index, part), _taking_memory(cupy, part):
        yield


def _taking_memory(cupy: Any, part: int) -> AbstractContextManager[object]:
    """Within it new arrays of the thread belong to this part of their card."""
    current = cupy.cuda.get_allocator()
    is_ours = isinstance(current, _Allocator)
    if part == (current.part if is_ours else 0):
        return _AS_IT_IS
    below = current.below if is_ours else current
    allocator = _Allocator(cupy, below, part) if part else below
    return cupy.cuda.using_allocator(allocator)


def taking_from(allocator: Callable[[int], Any]) -> AbstractContextManager[object]:
    """Within it the calling thread's new arrays come from there, and belong to whom they would."""
    cupy = _cupy()
    current = cupy.cuda.get_allocator()
    if isinstance(current, _Allocator):
        allocator = _Allocator(cupy, allocator, current.part)
    found: AbstractContextManager[object] = cupy.cuda.using_allocator(allocator)
    return found


_AS_IT_IS = nullcontext()


class _Allocator:
    """Gives memory that says to which part of a card it belongs.

    Args:
        below: CuPy's allocator, or the program's own: where the memory comes from.
        part: The part.
    """

    def __init__(self, cupy: Any, below: Callable[[int], Any], part: int) -> None:
        self.below = below
        self.part = part
        self._pointer = cupy.cuda.MemoryPointer
        self._memory = _memory_of(cupy, part)

    def __call__(self, size: int) -> Any:
        taken = self.below(size)  # it goes back when nobody holds it
        return self._pointer(self._memory(taken.ptr, size, taken, taken.device_id), 0)


@made_once
def _memory_of(cupy: Any, part: int) -> Any:
    """The type of memory that belongs to a part of its card."""
    return type("MemoryOfPart", (cupy.cuda.UnownedMemory,), {"part": part})


class Staging:
    """Room for arrays on their way to a card: pinned memory, and as much on the card.

    The copy between the two is queued on the card's copy stream, and runs while the card computes.
    Whoever holds the room calls `send`, and `receive` or `deliver`, in turn. Why no byte is
    overwritten that is still to be read:

    - The host writes into the pinned memory when the copy that was queued last has been made: it
      waits for that copy's event.
    - The card's part is written by the copy stream alone, and nobody else ever has an array of it.
      It is read by the copies that are queued on the stream that computes; the copy stream waits
      for these before anything that is queued on it later.
    - CuPy's pool gives memory back to the stream on which it was taken, at once when the host lets
      go of it. What was received was taken by the stream that computes: who keeps it is of no
      matter here. The card's part was taken by the copy stream, which, see above, waits for its
      readers before it can overwrite it, also as part of another array.

    Args:
        num_bytes: The size of the room.
        index, part: The card, and the part of it that the arrays are for.
    """

    def __init__(self, num_bytes: int, index: int, part: int = 0) -> None:
        cupy = _cupy()
        self.num_bytes = num_bytes
        self._index, self._part = index, part
        self._pinned = _pinned(num_bytes, np.dtype(np.uint8))
        self._copying = _copy_stream(cupy, index, part)
        with cupy.cuda.Device(index), self._copying:
            self._on_card = cupy.empty(num_bytes, np.uint8)
            self._sent = cupy.cuda.Event(block=True, disable_timing=True)
            self._received = cupy.cuda.Event(disable_timing=True)

    def send(self, arrays: Sequence[np.ndarray], places: Sequence[slice]) -> None:
        """Queue the copy of arrays, each of which has its place in the room."""
        self._sent.synchronize()
        for array, place in zip(arrays, places, strict=True):
            np.copyto(_cut(self._pinned, place, array), array)
        end = places[-1].stop
        with _cupy().cuda.Device(self._index):
            self._on_card[:end].set(self._pinned[:end], self._copying)
            self._sent.record(self._copying)

    def receive(self, like: Sequence[np.ndarray], places: Sequence[slice]) -> list[Array]:
        """What was sent, as arrays of the stream that computes, which waits for them."""
        with self._reading():
            pairs = zip(like, places, strict=True)
            return [_cut(self._on_card, place, array).copy() for array, place in pairs]

    def deliver(self, targets: Iterable[tuple[Array, slice]], places: Sequence[slice]) -> None:
        """Overwrite bytes of arrays, in C order and of this part of the card, by what was sent."""
        with self._reading():
            for (array, chosen), place in zip(targets, places, strict=True):
                array.reshape(-1).view(np.uint8)[chosen] = self._on_card[place]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within it, the stream that computes reads what was sent; the next copy waits for that."""
        with use(self._index, self._part):
            computing = _cupy().cuda.get_current_stream()
            computing.wait_event(self._sent)
            yield
            self._received.record(computing)
            self._copying.wait_event(self._received)

    def wait(self) -> None:
        """Wait until what was sent has left the pinned memory."""
        self._sent.synchronize()


class Fetched:
    """A number on its way from a card to the host.

    The copy is queued behind what computes the number. `float` waits for it alone, by its event:
    the card may still be at what was queued since, and the host goes on to queue more.
    """

    __slots__ = ("_come", "_value")

    def __init__(self, array: Array) -> None:
        cupy = _cupy()
        for key, (event, _) in list(_on_their_way.items()):
            if event.done:
                _on_their_way.pop(key, None)
        self._value = _pinned(1, array.dtype)
        come = self._come = cupy.cuda.Event(disable_timing=True)
        stream = cupy.cuda.get_current_stream()
        array.reshape(1).get(stream, out=self._value, blocking=False)
        come.record(stream)
        _on_their_way[id(come)] = come, self._value

    def __float__(self) -> float:
        come = self._come  # once: another thread may ask meanwhile
        if come is not None:
            come.synchronize()
            self._come = None
        return float(self._value.item())


_on_their_way: dict[int, tuple[Any, np.ndarray]] = {}
"""Events of numbers, and the memory that these come to: CuPy gives pinned memory to others as soon
as nobody holds it. (Not `__del__`, which would have to wait, and in which Python drops an
interrupt.)"""


def _cut(room: Array, place: slice, like: np.ndarray) -> Array:
    return room[place].view(like.dtype).reshape(like.shape)


@made_once
def _copy_stream(cupy: Any, index: int, part: int) -> Any:
    """The stream on which batches travel to a part of a card.

    It does not block: CUDA's default stream, and those that wait for it, do not wait for this one.
    """
    with cupy.cuda.Device(index):
        return cupy.cuda.Stream(non_blocking=True)


@made_once
def _stream(cupy: Any, index: int, part: int) -> Any:
    """The stream of a part of a card: each replica has its own, and so its own order of work.

    It is a blocking one: threads outside replicas are on CUDA's default stream, which waits for it.
    """
    with cupy.cuda.Device(index):
        return cupy.cuda.Stream()


@contextmanager
def communicating(index: int, part: int = 0) -> Iterator[Any]:
    """Within it the calling thread is on the stream for communication, which it is given.

    That stream is behind whatever the one that computes on this part of the card has to do so far;
    which waits for it only where it is told to: `wait_for`.
    """
    cupy = _cupy()
    with use(index, part):
        written = cupy.cuda.get_current_stream().record()
        stream = _communication_stream(cupy, index)
        stream.wait_event(written)
        with stream:
            yield stream


def wait_for(event: Any, index: int, part: int = 0) -> None:
    """What a part of a card has to compute from here on waits for an event."""
    with use(index, part):
        _cupy().cuda.get_current_stream().wait_event(event)


def pinned_zeros(length: int, dtype: np.dtype[Any]) -> np.ndarray:
    """An array in pinned host memory: copies to and from it go on behind the host's back."""
    array = _pinned(length, dtype)
    array.fill(0)
    return array


def pinned(num_bytes: int) -> np.ndarray:
    """Bytes of pinned host memory, with whatever is in them."""
    return _pinned(num_bytes, np.dtype(np.uint8))


def _pinned(length: int, dtype: np.dtype[Any]) -> np.ndarray:
    memory = _cupy().cuda.alloc_pinned_memory(max(length * dtype.itemsize, 1))
    array: np.ndarray = np.frombuffer(memory, dtype, length)
    return array


def start_download(array: Array, out: np.ndarray) -> Any:
    """Begin to copy an array of a card to pinned memory; the event that is returned is its end.

    The copy is behind what the card has computed so far, and beside what it computes next.
    """
    with communicating(*home(array)) as stream:
        array.get(out=out, blocking=False)
        return _end_of(stream)


def end_of_work(index: int, part: int = 0) -> Any:
    """An event behind all that a part of a card was given so far, to compute and to send."""
    with communicating(index, part) as stream:
        return _end_of(stream)


def _end_of(stream: Any) -> Any:
    end = _cupy().cuda.Event(block=True, disable_timing=True)
    stream.record(end)
    return end


def upload(values: np.ndarray, array: Array) -> None:
    """Overwrite an array of a card by one in pinned memory, in the order of what it computes."""
    with use(*home(array)):
        array.set(values)


def recorded(index: int) -> Any:
    """An event behind all that the calling thread's stream of a card has to do so far."""
    cupy = _cupy()
    with cupy.cuda.Device(index):
        event = cupy.cuda.Event(disable_timing=True)
        event.record(cupy.cuda.get_current_stream())
    return event


def start_downloads(
    index: int, parts: Iterable[tuple[Array, slice, np.ndarray]], after: Iterable[Any]
) -> Any:
    """Begin to copy bytes of arrays of a card to pinned memory; what is returned is their end.

    They are on a stream of their own, which nobody waits for but by that event.

    Args:
        index: The card.
        parts: Arrays, which of their bytes, and where to.
        after: Events that are waited for before.
    """
    cupy = _cupy()
    with cupy.cuda.Device(index), _download_stream(cupy, index) as stream:
        for event in after:
            stream.wait_event(event)
        for array, chosen, out in parts:
            flat = cupy.ascontiguousarray(array).reshape(-1).view(np.uint8)
            flat[chosen].get(out=out, blocking=False)
        end = cupy.cuda.Event(block=True, disable_timing=True)
        end.record(stream)
    return end


def copy_at_home(array: Array) -> tuple[Array, Any]:
    """A copy where an array is at home, in the order of what is computed there; and its event."""
    with use(*home(array)):
        copy = array.copy()
        return copy, recorded(array.device.id)


def spare_bytes(index: int) -> int:
    """How much memory of a card is there beyond all that CuPy has taken from it so far.

    Who takes no more leaves to a training what its steps have needed at most.
    """
    cupy = _cupy()
    pool = cupy.get_default_memory_pool()
    with cupy.cuda.Device(index):
        free, _ = cupy.cuda.runtime.memGetInfo()
        limit = pool.get_limit()
        return min(free, limit - pool.total_bytes()) if limit else free


@made_once
def _download_stream(cupy: Any, index: int) -> Any:
    """The stream on which values travel from a card; as `_copy_stream` it does not block."""
    with cupy.cuda.Device(index):
        return cupy.cuda.Stream(non_blocking=True)


@made_once
def _communication_stream(cupy: Any, index: int) -> Any:
    """The stream of a card for what it sends while others compute, whichever part it is of."""
    with cupy.cuda.Device(index):
        return cupy.cuda.Stream()
