"""`Dataset`: a chain of transformations over a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, final

from . import batching, combining, mapping, nest, selecting, sources
from .caching import cached
from .checks import check_hints, checked_bool, checked_count, checked_function, checked_shard
from .elements import ENDLESS
from .generators import generated, one_signature
from .interleaving import interleaved
from .iterator import DatasetIterator, IteratorFactory
from .options import Options
from .parallel_map import mapped_in_parallel, num_processors
from .plan import Plan
from .prefetching import prefetched
from .record_files import file_names_plan
from .seeds import checked_seed
from .shuffling import shuffled
from .windows import Windows, windowed

_AUTO = -1
_AUTO_PREFETCH_DEPTH, _MAX_PREFETCH_DEPTH = 2, 16
_CYCLE_LENGTH = 4


@final
class Dataset:
    """An immutable description of a sequence of elements, with the meaning of tf.data.

    An element is a nested structure (tuples, dicts, namedtuples) of NumPy arrays. Each
    transformation returns a new dataset and reads nothing; iterating does the work. Over arrays,
    `shuffle`, `shard`, `take`, `skip`, `repeat` and `batch` are arithmetic on positions and a batch
    is one gather per array; arrays that an unshuffled dataset hands out are read-only views.

    `iter(dataset)` gives an iterator with `get_state()`, `set_state(state)` and `close()`. `plan`
    is what `paceline.inputs` builds on, and not for users.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._make_iterator = IteratorFactory(plan)

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """A dataset of one element, `tensors`.

        Python lists and numbers become arrays: floats float32, ints int64.
        """
        return Dataset(sources.tensors_plan(tensors))

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """A dataset of the rows of `tensors`, arrays with a common leading dimension.

        The arrays are not copied.

        Raises:
            ValueError: the leading dimensions differ, or an array has none.
        """
        return Dataset(sources.slices_plan(tensors))

    @staticmethod
    def range(*args: int) -> Dataset:
        """The int64 numbers of Python's `range(*args)`."""
        return Dataset(sources.range_plan(range(*args)))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]] | Iterable[Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] = (),
        output_signature: Any = None,
    ) -> Dataset:
        """A stream of the items of an iterable, or of what a function returns.

        Args:
            generator: called (or iterated) once for each pass. Each item must be a new object:
                a buffer that is filled again would change elements that wait in a shuffle.
            output_types: the dtype of each component of an element, or its `TensorSpec`. Items are
                converted to these and must have the shapes; None takes them as they come.
            output_shapes: beside dtypes, the shape of each component; None is any shape.
            args: what the function is called with.
            output_signature: in place of `output_types`, a `TensorSpec` for each component.

        Raises:
            ValueError: `generator` is an iterator, or a signature stands beside types or shapes.
        """
        signature = one_signature(output_types, output_shapes, output_signature)
        return Dataset(generated(generator, args, signature))

    @staticmethod
    def from_source(source: Any) -> Dataset:
        """A dataset of what any other library's dataset, loader or container gives.

        What has a length and takes positions in brackets is read by position: a PyTorch or Hugging
        Face dataset, a Grain `MapDataset`, a list. Anything else is iterated over, once for each
        pass: a PyTorch `DataLoader`, a Grain `IterDataset`. Nothing is imported for this.

        Lists of arrays (as a DataLoader gives) become tuples; whatever NumPy can convert to an
        array becomes one.

        Raises:
            TypeError: it is a mapping, or can neither be indexed nor iterated over.
        """
        return Dataset(sources.foreign_plan(source))

    @staticmethod
    def list_files(
        file_pattern: Any, shuffle: bool | None = None, seed: int | None = None
    ) -> Dataset:
        """The names of the files that match a pattern or several, such as `data/*.csv`.

        Args:
            file_pattern: a pattern or path, or several.
            shuffle: whether they come in random order; None, as in tf.data, means yes.
            seed: as in `shuffle()`.

        Raises:
            FileNotFoundError: nothing matches.
        """
        names = Dataset(file_names_plan(file_pattern))
        return names if shuffle is False else names.shuffle(max(1, names.cardinality()), seed)

    @staticmethod
    def zip(*datasets: Any) -> Dataset:
        """Elements of several datasets side by side, as long as the shortest.

        Args:
            datasets: datasets, or one nested structure of them, which the elements then have.

        Raises:
            ValueError: there is none, or their options contradict each other.
        """
        structure = datasets[0] if len(datasets) == 1 else datasets
        return Dataset(combining.zipped(nest.map_with_path(plan_of, structure, root="datasets")))

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        in_processes: bool = False,
    ) -> Dataset:
        """Passes each element through `map_func`.

        Args:
            map_func: called with the items of a tuple as arguments, or with the element if it is
                no tuple. What it returns is an element: lists become arrays. Over arrays it is
                called for the elements that are asked for, in the order in which they are.
            num_parallel_calls: None calls in the consumer's thread; otherwise so many threads
                work ahead, -1 (as in tf.data) takes one for each processor that this process may
                use. This helps functions that wait or let go of the interpreter, such as reading
                and NumPy's arithmetic. The result is a stream: shuffle large datasets before.
            deterministic: whether threads keep the order; None leaves it to `Options`. False hands
                out what is ready first, unless a later step or other workers count on the order.
            in_processes: has each thread call the function in a process of its own, for functions
                that compute in Python. They must be importable, elements and results are copied,
                and a script must start its work under `if __name__ == "__main__":`. Processes end
                with each pass: `repeat` before.
        """
        checked_function("map_func", map_func)
        check_hints(num_parallel_calls, deterministic)
        if num_parallel_calls is None and not checked_bool("in_processes", in_processes):
            return Dataset(mapping.mapped(self.plan, map_func))
        asked = _AUTO if num_parallel_calls is None else int(num_parallel_calls)
        count = num_processors() if asked == _AUTO else max(1, asked)
        return Dataset(mapped_in_parallel(self.plan, map_func, count, deterministic, in_processes))

    def map_batched(self, map_func: Callable[..., Any], batch_size: int = 64) -> Dataset:
        """`map` with a function of many elements at a time; the elements stay single.

        Over arrays the function is called once for each batch that a later `batch` makes, whatever
        shuffles, shards and repetitions lie between, with what one gather gave.

        Args:
            map_func: gets elements that are stacked along a new leading axis, as `map`'s function
                gets one, and returns as many rows. Each row may depend on its own element only.
            batch_size: how many elements of a stream it gets at a time; at least 1.
        """
        size = checked_count("batch_size", batch_size, 1)
        checked_function("map_func", map_func, "a batch")
        return Dataset(mapping.mapped_in_batches(self.plan, map_func, size))

    def map_and_batch(
        self,
        map_func: Callable[..., Any],
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
    ) -> Dataset:
        """`map(map_func, num_parallel_calls).batch(batch_size, drop_remainder)`."""
        return self.map(map_func, num_parallel_calls).batch(batch_size, drop_remainder)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keeps the elements for which `predicate`, called as `map`'s function is, says True.

        The result is a stream, which a later `shuffle` passes through a buffer of elements.
        """
        return Dataset(mapping.filtered(self.plan, checked_function("predicate", predicate)))

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int = _CYCLE_LENGTH,
        block_length: int = 1,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Takes elements in turn from the datasets that `map_func` makes of the elements.

        Args:
            map_func: called as `map`'s function is; it returns a `Dataset`.
            cycle_length: how many of these are read at a time; when one ends, the next takes its
                place.
            block_length: how many elements one gives before it is the next one's turn.
            num_parallel_calls: None reads in the consumer's thread, any number reads ahead in a
                thread for each open dataset.
            deterministic: for tf.data's signature; the order is always the same.
        """
        checked_function("map_func", map_func)
        check_hints(num_parallel_calls, deterministic)
        length = checked_count("cycle_length", cycle_length, -1)
        length = _CYCLE_LENGTH if length == _AUTO else max(1, length)
        block = checked_count("block_length", block_length, 1)
        depth = 0 if num_parallel_calls is None else max(block, _AUTO_PREFETCH_DEPTH)
        plan_of_element = partial(_plan_of_result, map_func)
        return Dataset(interleaved(self.plan, plan_of_element, length, block, depth))

    def flat_map(self, map_func: Callable[..., Dataset]) -> Dataset:
        """The elements of the datasets that `map_func` makes of the elements, one by one."""
        return self.interleave(map_func, cycle_length=1)

    def concatenate(self, dataset: Dataset) -> Dataset:
        """The elements of this dataset, and then those of another."""
        return Dataset(combining.concatenated([self.plan, plan_of("dataset", dataset)]))

    def enumerate(self, start: int = 0) -> Dataset:
        """Pairs (number, element), numbered from `start` on."""
        return Dataset(combining.enumerated(self.plan, checked_count("start", start, -ENDLESS)))

    def window(
        self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> Dataset:
        """Small datasets of `size` elements each, which may overlap.

        Each component of an element becomes a dataset of its values in the window. To make arrays
        of them: `window(5, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(5))`.

        Args:
            size: the number of elements in a window; at least 1.
            shift: how many elements further each window begins; None takes `size`.
            stride: how many elements apart those of one window are.
            drop_remainder: leaves out the last windows if they are smaller.
        """
        length = checked_count("size", size, 1)
        step = length if shift is None else checked_count("shift", shift, 1)
        apart = checked_count("stride", stride, 1)
        windows = Windows(length, step, apart, checked_bool("drop_remainder", drop_remainder))
        return Dataset(windowed(self.plan, windows, Dataset))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """`transformation_func(self)`, to keep functions of datasets in a chain."""
        checked_function("transformation_func", transformation_func, "a Dataset")
        return _checked_result(transformation_func(self), "transformation_func")

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Stacks `batch_size` consecutive elements along a new leading axis.

        Args:
            batch_size: at least 1.
            drop_remainder: leaves out the last batch if it is smaller.
            num_parallel_calls, deterministic: for tf.data's signature; `prefetch` works ahead.
        """
        size = checked_count("batch_size", batch_size, 1)
        drop = checked_bool("drop_remainder", drop_remainder)
        check_hints(num_parallel_calls, deterministic)
        return Dataset(batching.batched(self.plan, size, drop))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Dataset:
        """`batch` for elements of unequal shapes, which are padded at the end of each axis.

        Args:
            batch_size: at least 1.
            padded_shapes: in the structure of an element, the shape of each component; None or -1
                for a size, for a component or for all means the largest of each batch.
            padding_values: in the structure of an element, or one value for all components; None
                pads with zeros and empty text.
            drop_remainder: leaves out the last batch if it is smaller.
        """
        size = checked_count("batch_size", batch_size, 1)
        drop = checked_bool("drop_remainder", drop_remainder)
        plan = batching.padded_batched(self.plan, size, drop, padded_shapes, padding_values)
        return Dataset(plan)

    def unbatch(self) -> Dataset:
        """The rows of elements that are batches, one by one."""
        return Dataset(batching.unbatched(self.plan))

    def shuffle(
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True
    ) -> Dataset:
        """Hands out elements in random order, each picked from the next `buffer_size` ones.

        Args:
            buffer_size: at least 1; from the dataset's size on, every order is equally likely.
            seed: fixes the order; None takes `default_seed`'s or draws one for each iterator.
            reshuffle_each_iteration: whether each repetition and further pass has another order.
        """
        size = checked_count("buffer_size", buffer_size, 1)
        own_seed = None if seed is None else checked_seed(seed)
        reshuffle = checked_bool("reshuffle_each_iteration", reshuffle_each_iteration)
        return Dataset(shuffled(self.plan, size, own_seed, reshuffle))

    def repeat(self, count: int | None = None) -> Dataset:
        """The dataset `count` times in a row; None (or -1, as in tf.data) without end."""
        number = None if count is None else checked_count("count", count, -1)
        return Dataset(selecting.repeated(self.plan, None if number == -1 else number))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        The shards 0 to num_shards - 1 together are the dataset, without overlap, provided that
        what comes before has the same order on every worker: shard first, or shuffle with a seed.

        `shuffle(n, seed).repeat().shard(workers, worker).batch(b)` can also be resumed on another
        number of workers, see `DatasetIterator.set_states`.
        """
        count, position = checked_shard(num_shards, index, "num_shards", "index")
        return Dataset(selecting.sharded(self.plan, count, position))

    def take(self, count: int) -> Dataset:
        """The first `count` elements; -1, as in tf.data, takes all."""
        return Dataset(selecting.first(self.plan, checked_count("count", count, -1)))

    def skip(self, count: int) -> Dataset:
        """All but the first `count` elements; -1, as in tf.data, leaves out all."""
        return Dataset(selecting.all_but_first(self.plan, checked_count("count", count, -1)))

    def cache(self, filename: str = "") -> Dataset:
        """Keeps each element in memory once it was computed; the kept arrays are read-only.

        Args:
            filename: must stay empty; tf.data keeps elements in files of this name.
        """
        return Dataset(cached(self.plan, filename))

    def prefetch(self, buffer_size: int | None = None) -> Dataset:
        """Produces up to `buffer_size` elements ahead in a background thread.

        An error in the thread is raised where the element is asked for. The thread ends with the
        data, with the iterator's `close()`, or with the iterator.

        Args:
            buffer_size: 0 starts no thread; None (or -1, as in tf.data) begins with 2 and goes up
                to 16 while the consumer finds the buffer empty that had been full.
        """
        depth = _AUTO if buffer_size is None else checked_count("buffer_size", buffer_size, -1)
        depths = (depth, depth) if depth != _AUTO else (_AUTO_PREFETCH_DEPTH, _MAX_PREFETCH_DEPTH)
        return Dataset(prefetched(self.plan, *depths))

    def ignore_errors(
        self, report: mapping.Report | None = None, log_warning: bool = False
    ) -> Dataset:
        """Leaves out the elements that raise an exception when they are read or computed.

        Put it before `batch`: of an element that fails later, the whole batch is left out.

        Args:
            report: called with the number of each such element (among all that were asked for) and
                its error. None logs the first, and at the end how many there were.
            log_warning: for tf.data's signature; without a `report` the log says it anyway.
        """
        checked_bool("log_warning", log_warning)
        if report is not None:
            checked_function("report", report, "a number and an error")
        return Dataset(mapping.ignoring_errors(self.plan, report))

    def require_finite(self) -> Dataset:
        """Checks all floating-point components; an infinity or NaN in them is a ValueError."""
        return Dataset(mapping.required_finite(self.plan))

    def with_options(self, options: Options) -> Dataset:
        """The same elements; `options` hold for the whole chain, before and after.

        What they leave open stays as it was asked for before.
        """
        return Dataset(self.plan.demanding(options=self.plan.demands.options.updated(options)))

    def options(self) -> Options:
        """What was asked for with `with_options`."""
        return self.plan.demands.options

    def cardinality(self) -> int:
        """The number of elements, or `INFINITE` (-1) or `UNKNOWN` (-2)."""
        return self.plan.cardinality

    @property
    def element_spec(self) -> Any:
        """The `TensorSpec` of each component; a dimension that may vary is None.

        For a mapped dataset or a generator this reads an element and describes that.
        """
        return self.plan.spec()

    def __iter__(self) -> DatasetIterator:
        return self._make_iterator()

    as_numpy_iterator = make_one_shot_iterator = make_initializable_iterator = __iter__

    def __repr__(self) -> str:
        return f"<Dataset {self.plan.text}>"


def plan_of(name: str, value: Any) -> Plan:
    """The plan of the dataset that argument `name` must be."""
    if not isinstance(value, Dataset):
        raise TypeError(
            f"{name} must be a Dataset, got {type(value).__name__}. "
            "Wrap arrays in Dataset.from_tensor_slices first."
        )
    return value.plan


def _checked_result(result: Any, name: str) -> Dataset:
    if not isinstance(result, Dataset):
        raise TypeError(f"{name} must return a Dataset, it returned {type(result).__name__}.")
    return result


def _plan_of_result(map_func: Callable[..., Any], element: Any) -> Plan:
    result = map_func(*element) if type(element) is tuple else map_func(element)
    return _checked_result(result, "map_func").plan
