"""`Dataset`: a chain of transformations over a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, final

from . import nest
from ._cached import CacheMemory, cached
from ._checks import checked_count, checked_shard
from ._elements import Elements
from ._iterator import DatasetIterator, IteratorFactory
from ._plan import Plan, batched_cardinality, repeated_cardinality, strided_cardinality
from ._prefetch import prefetched
from ._random_access import Batched, Mapped, Repeated, Strided
from ._seeds import checked_seed, entropy_seed
from ._shuffled import shuffled
from ._sources import (
    iterable_plan,
    range_plan,
    slices_plan,
    tensors_plan,
    with_spec_of_first_element,
    zipped_plan,
)
from ._streams import BatchedStream, MappedStream, RepeatedStream, StridedStream
from ._values import ArraySpec, as_element, map_arrays

_AUTO = -1
_AUTO_PREFETCH_DEPTH = 2


@final
class Dataset:
    """An immutable description of a sequence of elements, with the meaning of tf.data.

    An element is a nested structure (tuples, dicts, namedtuples) of NumPy arrays. Each
    transformation returns a new dataset and reads nothing; iterating does the work. Over arrays,
    `shuffle`, `shard`, `take`, `skip`, `repeat` and `batch` are arithmetic on positions and a batch
    is one gather per array; arrays that an unshuffled dataset hands out are read-only views.

    `iter(dataset)` gives an iterator with `get_state()`, `set_state(state)` and `close()`.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._make_iterator = IteratorFactory(plan)

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """A dataset of one element, `tensors`.

        Python lists and numbers become arrays: floats float32, ints int64.
        """
        return Dataset(tensors_plan(tensors))

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """A dataset of the rows of `tensors`, arrays with a common leading dimension.

        The arrays are not copied.

        Raises:
            ValueError: the leading dimensions differ, or an array has none.
        """
        return Dataset(slices_plan(tensors))

    @staticmethod
    def range(*args: int) -> Dataset:
        """The int64 numbers of Python's `range(*args)`."""
        return Dataset(range_plan(range(*args)))

    @staticmethod
    def from_generator(generator: Callable[[], Iterable[Any]] | Iterable[Any]) -> Dataset:
        """A stream of the items of an iterable, or of what a function returns.

        Args:
            generator: called (or iterated) once for each pass. Each item must be a new object:
                a buffer that is filled again would change elements that wait in a shuffle.

        Raises:
            ValueError: an iterator was given, which could be read only once.
        """
        return Dataset(iterable_plan(generator))

    @staticmethod
    def zip(*datasets: Any) -> Dataset:
        """Elements of several datasets side by side, as long as the shortest.

        Args:
            datasets: datasets, or one nested structure of them, which the elements then have.
        """
        structure = datasets[0] if len(datasets) == 1 else datasets
        if not nest.flatten(structure):
            raise ValueError("datasets must hold at least one Dataset, got an empty structure.")
        paths = nest.paths(structure, "datasets")
        for path, part in zip(paths, nest.flatten(structure), strict=True):
            if not isinstance(part, Dataset):
                raise TypeError(
                    f"{path} must be a Dataset, got {type(part).__name__}. "
                    "Wrap arrays in Dataset.from_tensor_slices first."
                )
        return Dataset(zipped_plan(nest.map_structure(lambda d: d._plan, structure)))

    def map(self, map_func: Callable[..., Any]) -> Dataset:
        """Passes each element through `map_func`.

        Args:
            map_func: called with the items of a tuple as arguments, or with the element if it is
                no tuple. What it returns is an element: lists become arrays. Over arrays it is
                called for the elements that are asked for, in the order in which they are.
        """
        if not callable(map_func):
            raise TypeError(
                f"map_func must be a function of an element, got {type(map_func).__name__}."
            )
        function = partial(_call_with_element, map_func)
        plan = self._plan.then(partial(_mapped, function=function), text=f"{self._plan.text}.map()")
        return Dataset(with_spec_of_first_element(plan))

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stacks `batch_size` consecutive elements along a new leading axis.

        Args:
            batch_size: at least 1.
            drop_remainder: leaves out the last batch if it is smaller.
        """
        size = checked_count("batch_size", batch_size, 1)
        drop = bool(drop_remainder)
        spec = self._plan.spec
        plan = self._plan.then(
            partial(_batched, size=size, drop_remainder=drop),
            text=f"{self._plan.text}.batch({size}{', drop_remainder=True' if drop else ''})",
            cardinality=batched_cardinality(self._plan.cardinality, size, drop),
            spec=lambda: _batched_spec(spec(), size if drop else None),
            batch_size=size,
        )
        return Dataset(plan)

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
    ) -> Dataset:
        """Hands out elements in random order, each picked from the next `buffer_size` ones.

        Args:
            buffer_size: at least 1; from the dataset's size on, every order is equally likely.
            seed: fixes the order; None takes `default_seed`'s or draws one for each iterator.
            reshuffle_each_iteration: whether each repetition, and each further pass over this
                dataset object, has another order.
        """
        size = checked_count("buffer_size", buffer_size, 1)
        own_seed = None if seed is None else checked_seed(seed)
        reshuffle = bool(reshuffle_each_iteration)
        plan = self._plan.then(
            partial(shuffled, buffer_size=size, seed=own_seed, reshuffle=reshuffle),
            text=f"{self._plan.text}.shuffle({size}, seed={own_seed}, reshuffle={reshuffle})",
            draws_seed=self._plan.draws_seed or own_seed is None,
            fixed_seed=_fixed_seed(self._plan, own_seed, reshuffle),
        )
        return Dataset(plan)

    def repeat(self, count: int | None = None) -> Dataset:
        """The dataset `count` times in a row; None (or -1, as in tf.data) without end."""
        number = None if count is None else checked_count("count", count, -1)
        number = None if number == -1 else number
        plan = self._plan.then(
            partial(_repeated, count=number),
            text=f"{self._plan.text}.repeat({'' if number is None else number})",
            cardinality=repeated_cardinality(self._plan.cardinality, number),
        )
        return Dataset(plan)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        The shards 0 to num_shards - 1 together are the dataset, without overlap, provided that
        what comes before has the same order on every worker: shard first, or shuffle with a seed.
        """
        count, position = checked_shard(num_shards, index, "num_shards", "index")
        return self._strided(f"shard({count}, {position})", position, None, count)

    def take(self, count: int) -> Dataset:
        """The first `count` elements; -1, as in tf.data, takes all."""
        number = checked_count("count", count, -1)
        return self._strided(f"take({number})", 0, None if number == -1 else number, 1)

    def skip(self, count: int) -> Dataset:
        """All but the first `count` elements."""
        number = checked_count("count", count, 0)
        return self._strided(f"skip({number})", number, None, 1)

    def cache(self) -> Dataset:
        """Keeps each element in memory once it was computed; the kept arrays are read-only."""
        memory = CacheMemory()
        plan = self._plan.then(partial(cached, memory=memory), text=f"{self._plan.text}.cache()")
        return Dataset(plan)

    def prefetch(self, buffer_size: int | None = None) -> Dataset:
        """Produces up to `buffer_size` elements ahead in a background thread.

        An error in the thread is raised where the element is asked for. The thread ends with the
        data, with the iterator's `close()`, or with the iterator.

        Args:
            buffer_size: 0 starts no thread; None (or -1, as in tf.data) chooses.
        """
        depth = _AUTO if buffer_size is None else checked_count("buffer_size", buffer_size, -1)
        depth = _AUTO_PREFETCH_DEPTH if depth == _AUTO else depth
        return Dataset(self._plan.then(partial(_prefetched, depth=depth)))

    def cardinality(self) -> int:
        """The number of elements, or `INFINITE` (-1) or `UNKNOWN` (-2)."""
        return self._plan.cardinality

    @property
    def element_spec(self) -> Any:
        """The `ArraySpec` of each component; a dimension that may vary is None.

        For a mapped dataset or a generator this reads an element and describes that.
        """
        return self._plan.spec()

    @property
    def plan(self) -> Plan:
        """The description that `paceline.inputs` builds on; not for users."""
        return self._plan

    def __iter__(self) -> DatasetIterator:
        return self._make_iterator()

    def __repr__(self) -> str:
        return f"<Dataset {self._plan.text}>"

    def _strided(self, text: str, start: int, stop: int | None, step: int) -> Dataset:
        plan = self._plan.then(
            partial(_strided, start=start, stop=stop, step=step),
            text=f"{self._plan.text}.{text}",
            cardinality=strided_cardinality(self._plan.cardinality, start, stop, step),
        )
        return Dataset(plan)


def _fixed_seed(plan: Plan, seed: int | None, reshuffle: bool) -> int | None:
    """A shuffle that keeps its order over all iterators, but has no seed, gets one here."""
    if seed is None and not reshuffle and plan.fixed_seed is None:
        return entropy_seed()
    return plan.fixed_seed


def _call_with_element(function: Callable[..., Any], element: Any) -> Any:
    try:
        # As in tf.data only a plain tuple is unpacked, a namedtuple is one argument.
        result = function(*element) if type(element) is tuple else function(element)
    except StopIteration as error:
        raise RuntimeError("map_func raised StopIteration, which would end the data") from error
    return as_element(result)


def _mapped(inner: Elements, _: Any, *, function: Callable[[Any], Any]) -> Elements:
    access = inner.random_access()
    return MappedStream(inner, function) if access is None else Mapped(access, function)


def _batched(inner: Elements, _: Any, *, size: int, drop_remainder: bool) -> Elements:
    access = inner.random_access()
    if access is None:
        return BatchedStream(inner, size, drop_remainder)
    return Batched(access, size, drop_remainder)


def _repeated(inner: Elements, _: Any, *, count: int | None) -> Elements:
    access = inner.random_access()
    return RepeatedStream(inner, count) if access is None else Repeated(access, count)


def _strided(inner: Elements, _: Any, *, start: int, stop: int | None, step: int) -> Elements:
    access = inner.random_access()
    if access is None:
        return StridedStream(inner, start, stop, step)
    return Strided(access, start, stop, step)


def _prefetched(inner: Elements, _: Any, *, depth: int) -> Elements:
    return prefetched(inner, depth)


def _batched_spec(spec: Any, size: int | None) -> Any:
    return map_arrays(lambda s: ArraySpec((size, *s.shape), s.dtype), spec)
