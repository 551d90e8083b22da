"""`prefetch`: a background thread that keeps a few elements ready."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, final

from .background import BackgroundThreads, Work
from .elements import DerivedIterator, ElementIterator, Elements, State
from .plan import Keeps, Plan

# Doubling reached 0.85 of the best fixed depth where stalls are rare.
_GROWTH = 4


def prefetched(plan: Plan, depth: int, max_depth: int) -> Plan:
    """Elements that are produced ahead."""
    return plan.then(
        lambda inner, _: produced_ahead(inner, depth, max_depth),
        keeps=Keeps.ALL,
        is_ready=plan.is_ready or depth > 0,
    )


def produced_ahead(elements: Elements, depth: int, max_depth: int = 0) -> Elements:
    """The same elements, up to `depth` of them produced ahead; 0 starts no thread.

    Up to `max_depth` the number grows fourfold each time that the consumer has emptied what was
    once full: then the producer is fast enough on the whole, but not evenly.
    """
    if depth == 0:
        return elements
    most = max(depth, max_depth)
    return elements.through(PrefetchIterator, depth, most)


class Transfer(ABC):
    """Brings what a step takes to where it is computed with, while other steps run."""

    @abstractmethod
    def start(self, batches: tuple[Any, ...]) -> Any:
        """Sets out with a batch for each local replica; a background thread calls this, ahead.

        What it returns may be thrown away in place of being given to `finish`.
        """

    @abstractmethod
    def finish(self, started: Any) -> tuple[Any, ...]:
        """The batches where their replicas compute; who takes the element calls this."""


def transferred_ahead(elements: Elements, depth: int, transfer: Transfer | None) -> Elements:
    """Tuples of batches, up to `depth` of them produced, and on their way, ahead."""
    if transfer is None:
        return produced_ahead(elements, depth)
    started = produced_ahead(elements.through(_Stage, transfer.start), depth)
    return started.through(_Stage, transfer.finish)


@final
class _Stage(DerivedIterator):
    """Passes each element through a function, and leaves no trace of that in the state."""

    def __init__(self, inner: ElementIterator, function: Callable[[Any], Any]) -> None:
        super().__init__(inner)
        self._function = function

    def __next__(self) -> Any:
        return self._function(next(self._inner))


@final
class PrefetchIterator(ElementIterator):
    """The consumer's end. Its state is that of the elements consumed, not of those produced.

    The thread starts with the first element asked for, and ends with the input, with `close`, or
    with this object: nothing that the thread holds refers back to it.
    """

    def __init__(self, inner: ElementIterator, depth: int, max_depth: int) -> None:
        self._inner = inner
        self._depth = depth
        self._max_depth = max_depth
        self._state = inner.get_state()
        self._is_closed = False
        self._producer: _Producer | None = None
        self._thread: BackgroundThreads | None = None

    def __next__(self) -> Any:
        if self._is_closed:
            raise StopIteration
        if self._producer is None:
            producer = _Producer(self._inner, self._depth, self._max_depth)
            self._producer = producer
            self._thread = BackgroundThreads(self, producer, "paceline-prefetch")
        product = self._producer.take()
        # Behind an error the state is that after the element that could not be had: one that is
        # saved now goes on there. It is None only where the source could not even tell that.
        if product.state is not None:
            self._state = product.state
        if product.error is not None:
            raise product.error
        return product.element

    def get_state(self) -> State:
        return self._state

    def set_state(self, state: State) -> None:
        if not self._stop():
            raise RuntimeError(
                "set_state cannot go on while the dataset's source is busy with an element, and it "
                "has been for seconds. Make a new iterator and set the state there."
            )
        self._inner.set_state(state)
        self._state = state
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        # A thread that is still inside the source drops it when it comes back.
        if self._stop():
            self._inner.close()

    def _stop(self) -> bool:
        """Ends the thread; False if the source did not let go of it in time."""
        thread, self._thread, self._producer = self._thread, None, None
        return thread is None or thread.stop()


@final
class _Producer(Work):
    """Hands over elements, each with the state after it, as slots become free.

    The background thread alone touches the source while it is in `run_until_stopped`; all else is
    for the consumer's thread. They meet in the two queues only. These are `SimpleQueue`s since
    `stop` may be called by the garbage collector in the midst of any other call, and a `Queue` or
    `Semaphore` would wait there for a lock that its own thread holds.
    """

    def __init__(self, source: ElementIterator, depth: int, max_depth: int) -> None:
        self._source = source
        self._depth = depth
        self._max_depth = max_depth
        self._was_full = False
        self._ready: SimpleQueue[_Product] = SimpleQueue()
        self._free_slots: SimpleQueue[None] = SimpleQueue()
        self._is_stopped = False
        self._has_ended = False
        for _ in range(depth):
            self._free_slots.put(None)

    def take(self) -> _Product:
        """Waits for the next element, or what was raised in its place."""
        if self._has_ended:
            raise StopIteration
        if self._depth < self._max_depth:
            self._deepen()
        product = self._ready.get()
        if product.is_last:
            self._has_ended = True
        else:
            self._free_slots.put(None)
        return product

    def _deepen(self) -> None:
        """Gives more slots if what was full is empty now."""
        num_ready = self._ready.qsize()
        self._was_full = self._was_full or num_ready == self._depth
        if num_ready == 0 and self._was_full:
            num_more = min((_GROWTH - 1) * self._depth, self._max_depth - self._depth)
            self._depth += num_more
            self._was_full = False
            for _ in range(num_more):
                self._free_slots.put(None)

    def stop(self) -> None:
        # In this order: the thread looks at the flag when it has got the slot.
        self._is_stopped = True
        self._free_slots.put(None)

    def run_until_stopped(self) -> None:
        """Reads the source until its end, or until `stop`."""
        has_ended = False
        while not has_ended:
            self._free_slots.get()
            if self._is_stopped:
                return
            product = self._product()
            has_ended = product.is_last
            self._ready.put(product)

    def _product(self) -> _Product:
        # Whatever is raised here must reach the consumer, who would wait for ever otherwise.
        try:
            element, error = next(self._source), None
        except BaseException as raised:
            element, error = None, raised
        try:
            return _Product(element, self._source.get_state(), error, _is_end(error))
        except BaseException as raised:
            # A source that cannot tell its position cannot be gone on with either.
            return _Product(None, None, raised, True)


@final
class _Product(NamedTuple):
    """An element, or what was raised in its place, and the source's state after it."""

    element: Any
    state: State
    error: BaseException | None
    is_last: bool


def _is_end(error: BaseException | None) -> bool:
    """Whether nothing follows: the data have ended, or the process is about to."""
    return error is not None and (
        isinstance(error, StopIteration) or not isinstance(error, Exception)
    )
