"""`Strategy`: the public verbs, the same for every strategy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import fields
from functools import partial
from typing import Any, Self

from ..autodiff import watch_for_good
from ..inputs import (
    Dataset,
    DistributedDataset,
    InputContext,
    InputOptions,
    InputReplicationMode,
    nest,
    per_replica_batches,
    per_replica_pipelines,
    split_global_batches,
)
from ..observe import short_tracebacks
from .context import ReplicaContext, ValueContext
from .devices.arrays import Summand, as_array
from .devices.cross_device_ops import ReduceOp, mean_of
from .devices.device import HOST, to_host
from .devices.transfer import transfer_to
from .extended import StrategyExtended
from .old_names import OldNames
from .options import RunOptions, warn_of_no_effect
from .replicas.frame import (
    Frame,
    current_frame,
    enter_for_good,
    entered,
    has_strategy,
    require_no_other,
    require_no_replica,
)
from .replicas.rendezvous import Rendezvous
from .replicas.threads import run_replicas
from .replicas.values import (
    PerReplica,
    brought,
    for_caller,
    grouping_on,
    local_values,
    regroup,
    select_replica,
)
from .variables.names import count_names_apart
from .variables.variable import Variable

_logger = logging.getLogger("paceline")
_ALONE = Rendezvous(1)
_INPUT_OPTIONS_WITHOUT_EFFECT = (
    "experimental_fetch_to_device",
    "experimental_place_dataset_on_device",
)


def get_strategy() -> Strategy:
    """The strategy whose scope (or `run`) the caller is in; outside any, the default strategy."""
    strategy: Strategy = current_frame().strategy
    return strategy


def _construct(cls: type[Strategy], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Strategy:
    return cls(*args, **kwargs)


class Strategy(OldNames):
    """A policy that distributes state and computation over devices.

    The step functions and models stay the same under every strategy; what differs is how a strategy
    is composed (see `StrategyExtended`). `run` and `reduce` may be called inside or outside the
    scope; what creates variables belongs inside it.

    Args:
        extended: The policies, and the rarely used verbs.
    """

    _remake: tuple[Callable[..., Any], tuple[Any, ...]]
    _passes_through = False
    """Whether it keeps nothing, so that it may run in the scope of another one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        strategy = super().__new__(cls)
        strategy._remake = (_construct, (cls, args, kwargs))
        return strategy

    def __init__(self, extended: StrategyExtended) -> None:
        self._extended = extended

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same one: it stands for the place of this process among its devices and workers."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """It is made anew, from the same arguments: its connections and locks cannot travel."""
        return self._remake

    @property
    def extended(self) -> StrategyExtended:
        """The policies, and the rarely used verbs."""
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas whose gradients are aggregated in each step."""
        return self._extended.num_local_replicas * self._extended.shard[0]

    @property
    def cluster_resolver(self) -> Any:
        """How this strategy learned of its cluster; None for strategies of one worker."""
        return None

    def __repr__(self) -> str:
        devices = ", ".join(d.short_name for d in self._extended.replica_devices)
        return f"{type(self).__name__}({devices})"

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Make this strategy current in the block and enter the cross-replica context.

        Variables that are created in it (by models, optimizers, metrics) are placed by the strategy
        and remember it.

        Raises:
            RuntimeError: Another strategy's scope is active, or the caller runs as a replica.
        """
        require_no_other(self, "scope")
        require_no_replica("scope")
        with entered(Frame(self, None)):
            yield self

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Call `fn` once for each local replica, at the same time.

        Args:
            fn: Called in replica context.
            args, kwargs: Its arguments; every `DistributedValues` in them, at any depth, is
                replaced by the replica's part of it. Tensors, and arrays of a GPU, are on the
                replica's device then.
            options: Accepted for TensorFlow's signature, with a warning.

        Returns:
            What `fn` returns, each leaf a `PerReplica` of the replicas' values; with one replica
            just what it returns.

        Raises:
            RuntimeError: The caller is itself a replica, or in the scope of another strategy.
            ValueError: The replicas return different structures.
            BaseException: What the first failing replica raised, noted with its number. The other
                replicas are released.
        """
        if has_strategy():  # nearly never
            self._require_outside("run")
        if options is not None:
            warn_of_no_effect(options, [field.name for field in fields(RunOptions)])
        calls: Sequence[Callable[[], Any]] = [fn] * (n := self._extended.num_local_replicas)
        if args or kwargs:
            given = (args, kwargs or {})
            devices = enumerate(self._extended.replica_devices)
            parts = [brought(select_replica(given, i, n), device) for i, device in devices]
            calls = [partial(fn, *own_args, **own_kwargs) for own_args, own_kwargs in parts]
        with short_tracebacks:
            return regroup(self._call_for_each_replica(calls))

    def _call_for_each_replica(self, fns: Sequence[Callable[[], Any]]) -> list[Any]:
        """Each of `fns` in the context of its local replica, at the same time."""
        extended = self._extended
        if extended.remote_storage is not None:
            extended.remote_storage.begin_run()
        devices = extended.replica_devices
        rendezvous = Rendezvous(len(devices)) if len(devices) > 1 else _ALONE

        # A replica is a thread, and no process: NumPy's and CuPy's kernels let go of the
        # interpreter, and the program's state is there once. Each in a context of its own, which
        # is dropped behind it with all that was set in it: an interrupt may keep a block from
        # putting back what it has set.
        contexts = [copy_context() for _ in devices]
        if len(devices) == 1:
            return [contexts[0].run(self._as_replica, fns[0], 0, rendezvous)]
        for context in contexts[1:]:
            # Each builds the same model, and must give its layers the same names as the others.
            context.run(count_names_apart)
        calls = [
            partial(context.run, self._as_replica, fn, index, rendezvous)
            for index, (context, fn) in enumerate(zip(contexts, fns, strict=True))
        ]
        names = [f"replica {index} on {device}" for index, device in enumerate(devices)]
        return run_replicas(calls, rendezvous, names)

    def _as_replica(self, fn: Callable[[], Any], index: int, rendezvous: Rendezvous) -> Any:
        replica = ReplicaContext(self, index, rendezvous)
        enter_for_good(Frame(self, replica))
        watch_for_good()
        with replica.device.use():
            return fn()

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: int | None = None) -> Any:
        """Combine the replicas' values into one, on the host.

        Args:
            reduce_op: SUM or MEAN (as `ReduceOp` or string).
            value: A `PerReplica` as `run` returns it, or a nested structure of them; with a single
                replica also a plain value.
            axis: None combines over replicas only and needs equal shapes. A number, typically 0 for
                the batch dimension, combines over that dimension of each value too; MEAN then
                divides by the true number of elements.

        Returns:
            In the structure of `value`, NumPy arrays (or scalars), or tensors of the same dtype
            where the replicas gave tensors. Whole numbers and truth values in arrays are added in
            64 bits, floats keep their width. `IndexedSlices` stay such.

        Raises:
            RuntimeError: Called in a replica, or in the scope of another strategy.
            ValueError: There is not one value for each replica, shapes differ, or `axis` is out of
                range.
            OverflowError: The sum of tensors of whole numbers is beyond their dtype.
        """
        self._require_outside("reduce")
        op = ReduceOp.parse(reduce_op)
        leaves = nest.flatten(value)
        if axis is None:
            totals = self._extended.batch_reduce_to(op, [(leaf, HOST) for leaf in leaves])
        else:
            totals = [self._reduce_one(op, leaf, axis) for leaf in leaves]
        pairs = zip(leaves, totals, strict=True)
        combined = [for_caller(local_values(leaf), total) for leaf, total in pairs]
        return nest.repacked(value, combined)

    def _reduce_one(self, op: ReduceOp, value: Any, axis: int) -> Summand:
        arrays = [to_host(as_array(part)) for part in self._extended.parts_of("reduce", value)]
        for array in arrays:
            _check_axis(axis, array.ndim)
        sums = regroup([array.sum(axis=axis) for array in arrays])
        total = self._extended.reduce_to(ReduceOp.SUM, sums)
        if op is ReduceOp.MEAN:
            counted = zip(arrays, self._extended.has_examples(), strict=True)
            here = sum(array.shape[axis] for array, has in counted if has)
            total = mean_of(total, sum(self._extended.workers.gather_numbers(here, "examples")))
        return total

    def gather(self, value: Any, axis: int) -> Any:
        """Concatenate the replicas' arrays along `axis`, in replica order, on the host.

        Args:
            value: A `PerReplica` of dense arrays of rank ≥ 1, or a nested structure of them; with
                one replica also plain arrays.
            axis: In [0, rank).

        Returns:
            In the structure of `value`, arrays, or tensors where the replicas gave tensors.

        Raises:
            RuntimeError: Called in a replica, or in the scope of another strategy.
            ValueError: Scalars, sparse slices, an axis out of range, shapes that do not fit, or not
                one value for each replica.
        """
        self._require_outside("gather")
        return nest.map_structure(lambda leaf: self._gather_one(leaf, axis), value)

    def _gather_one(self, value: Any, axis: int) -> Any:
        parts = [as_array(part) for part in self._extended.parts_of("gather", value)]
        counted = self._extended.has_examples()
        gathered = self._extended.gather_to(parts, axis, HOST, counted)
        return for_caller(local_values(value), gathered)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """This worker's values as a tuple in replica order.

        A nested structure gives one structure for each replica; a plain value, which is no
        structure, gives a 1-tuple. A variable counts as its copies, which are only to be read.

        Raises:
            ValueError: The values in a structure are made for different numbers of replicas.
        """
        if isinstance(value, Variable):
            return tuple(value.local_values())
        copies = nest.map_structure(_copies_of_variable, value)
        return local_values(copies, self._extended.num_local_replicas)

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], Any]
    ) -> Any:
        """`value_fn(context)` for each local replica, as one `PerReplica`."""
        n, first = self._extended.num_local_replicas, self._extended.shard[1]
        return regroup(
            [value_fn(ValueContext(first * n + i, self.num_replicas_in_sync)) for i in range(n)]
        )

    def experimental_distribute_dataset(
        self, dataset: Dataset, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Distribute a dataset whose elements are *global* batches.

        Each batch is split over the replicas (a batch that does not divide, raggedly). Several
        workers share the data by the `AutoShardPolicy` of the dataset's options. Iterating yields
        `PerReplica` values. One line of the log tells the policy, this worker's shard and how far
        ahead batches are prepared.

        Workers begin each pass together where a shuffle gives it an order of its own. Those that
        read files of their own may have different numbers of steps. They iterate together: one
        whose data have ended gets empty batches until those of all have.

        Args:
            dataset: Its elements are global batches.
            options: Its `experimental_per_replica_buffer_size` (1 by default) is for how many steps
                a background thread prepares batches ahead, and copies them to GPUs. For replicas on
                the host there is none if a dataset is gathered from memory or ends with `prefetch`.

        Raises:
            ValueError: `options` ask for a dataset per replica; or, on all workers, these have
                different datasets, policies or seeds where they divide one order.
        """
        chosen = options or InputOptions()
        warn_of_no_effect(chosen, _INPUT_OPTIONS_WITHOUT_EFFECT)
        if chosen.experimental_replication_mode is not InputReplicationMode.PER_WORKER:
            raise ValueError(
                "experimental_replication_mode=PER_REPLICA needs a function that makes the dataset "
                "of each replica: use distribute_datasets_from_function. Global batches are split "
                "with PER_WORKER."
            )
        extended = self._extended
        distributed = split_global_batches(
            dataset,
            extended.num_local_replicas,
            self.num_replicas_in_sync,
            shard=extended.shard,
            prefetch=chosen.experimental_per_replica_buffer_size,
            wrap=grouping_on(extended.replica_devices),
            any_has_data=self._agreement_on_end(),
            transfer=transfer_to(extended.replica_devices),
        )
        self._require_alike(distributed)
        _logger.info("Input: %s.", distributed.describe())
        return distributed

    def distribute_datasets_from_function(
        self,
        dataset_fn: Callable[[InputContext], Dataset],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """Distribute the dataset that `dataset_fn` makes, batched per replica and sharded.

        Several workers iterate together: one whose data have ended gets empty batches until those
        of all have.

        Args:
            dataset_fn: Called once per worker with an `InputContext`. Each replica takes one
                element of its dataset per step; nothing is rebatched.
            options: With `experimental_replication_mode=PER_REPLICA`, `dataset_fn` is called for
                each replica, as the pipeline of that number, and the replica takes the elements of
                its own dataset. Their `experimental_per_replica_buffer_size` is as in
                `experimental_distribute_dataset`; without options nothing is prepared ahead but
                what the dataset itself prefetches, and a step for replicas on GPUs.

        Raises:
            ValueError: On all workers: their shards are not those of one order.
        """
        extended = self._extended
        if options is not None:
            warn_of_no_effect(options, _INPUT_OPTIONS_WITHOUT_EFFECT)
        mode = options.experimental_replication_mode if options else InputReplicationMode.PER_WORKER
        transfer = transfer_to(extended.replica_devices)
        ahead = 0 if transfer is None else 1
        how: dict[str, Any] = {
            "prefetch": options.experimental_per_replica_buffer_size if options else ahead,
            "wrap": grouping_on(extended.replica_devices),
            "transfer": transfer,
            "worker": (extended.job.num_trainers, extended.job.trainer_index),
            "any_has_data": self._agreement_on_end(),
        }
        n = extended.num_local_replicas
        if mode is InputReplicationMode.PER_REPLICA:
            datasets = [dataset_fn(context) for context in self._input_contexts(n)]
            distributed = per_replica_pipelines(datasets, **how)
        else:
            distributed = per_replica_batches(dataset_fn(self.input_context()), n, **how)
        self._require_alike(distributed)
        return distributed

    def make_experimental_numpy_dataset(self, numpy_input: Any) -> Dataset:
        """A dataset of the slices of arrays, as `Dataset.from_tensor_slices`."""
        return Dataset.from_tensor_slices(numpy_input)

    def input_context(self) -> InputContext:
        """What an input function of this worker may ask."""
        return self._input_contexts(1)[0]

    def _input_contexts(self, num_pipelines: int) -> list[InputContext]:
        """For each pipeline of this worker, what its input function may ask."""
        job = self._extended.job
        first = job.trainer_index * num_pipelines
        return [
            InputContext(
                num_input_pipelines=job.num_trainers * num_pipelines,
                input_pipeline_id=first + index,
                num_replicas_in_sync=self.num_replicas_in_sync,
            )
            for index in range(num_pipelines)
        ]

    def _require_alike(self, distributed: DistributedDataset) -> None:
        """Compare with the other workers what must be alike where they divide one dataset."""
        texts = self._extended.workers.texts
        distributed.require_alike(lambda text: texts(text, "what the input is made of"))

    def _agreement_on_end(self) -> Callable[[bool], bool] | None:
        """How the workers learn whether one of them still has data; None for a single one."""
        workers = self._extended.workers
        if workers.size == 1:
            return None
        return lambda has_data: any(workers.gather_numbers(int(has_data), "who has input left"))

    def _require_outside(self, verb: str) -> None:
        """Refuse `verb` in a replica and, if it does more than pass on, in another one's scope."""
        require_no_replica(verb)
        if not self._passes_through:
            require_no_other(self, verb)


def _copies_of_variable(leaf: Any) -> Any:
    """A leaf of a structure, where a variable counts as its copies."""
    if not isinstance(leaf, Variable):
        return leaf
    copies = leaf.local_values()
    return copies[0] if len(copies) == 1 else PerReplica(copies)


def _check_axis(axis: int, ndim: int) -> None:
    if not -ndim <= axis < ndim:
        raise ValueError(
            f"axis={axis} is not an axis of the replicas' values, which have rank {ndim}; "
            f"pass axis=None to combine over replicas only"
        )
