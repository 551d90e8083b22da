"""Values that differ between replicas, and how they go into and come out of `Strategy.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from ...autodiff import Array, IndexedSlices, Tensor, is_array
from ...inputs import nest
from ..devices.arrays import Summand
from ..devices.device import Device, to_host
from ..devices.transfer import has_numbers
from ..variables.places import seen_from


class DistributedValues:
    """One value for each local replica, in replica order."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Any]) -> None:
        self.values: Final = tuple(values)

    def __getitem__(self, replica: int) -> Any:
        return self.values[replica]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __repr__(self) -> str:
        lines = ",\n".join(f"  {i}: {value!r}" for i, value in enumerate(self.values))
        return f"{type(self).__name__}:{{\n{lines}\n}}"


class PerReplica(DistributedValues):
    """What `Strategy.run` returns and a distributed dataset yields: one value per local replica."""

    __slots__ = ()


def select_replica(structure: Any, replica: int, num_replicas: int) -> Any:
    """The structure that one replica sees: each `DistributedValues` in it gives its part.

    Raises:
        ValueError: One of them is made for another number of replicas.
    """

    def select(leaf: Any) -> Any:
        if not isinstance(leaf, DistributedValues):
            return leaf
        if len(leaf.values) != num_replicas:
            raise ValueError(
                f"values of {len(leaf.values)} replicas were given to {num_replicas}; distribute "
                f"them with the strategy that uses them"
            )
        return leaf.values[replica]

    return nest.map_structure(select, structure)


def regroup(results: Sequence[Any]) -> Any:
    """One structure of `PerReplica` leaves from the equal structures of all replicas.

    A single replica's result is returned as it is; where every replica gave None, so is None.
    """
    if len(results) == 1:
        return results[0]
    return nest.map_structure(
        lambda *leaves: None if all(leaf is None for leaf in leaves) else PerReplica(leaves),
        *results,
    )


def local_values(structure: Any, num_replicas: int = 1) -> tuple[Any, ...]:
    """The structure that each local replica sees, in replica order.

    Args:
        structure: Nested structure whose leaves may be `DistributedValues`.
        num_replicas: The number of replicas of a nested structure without `DistributedValues`,
            which is the same on all of them. A single plain value counts as that of one replica.

    Raises:
        ValueError: Its `DistributedValues` are made for different numbers of replicas.
    """
    if isinstance(structure, DistributedValues):
        return structure.values
    if nest.steps_into(structure) is None:
        return (structure,)
    leaves = nest.flatten(structure)
    counts = [len(leaf.values) for leaf in leaves if isinstance(leaf, DistributedValues)]
    n = counts[0] if counts else num_replicas
    return tuple(select_replica(structure, i, n) for i in range(n))


def for_caller(parts: Sequence[Any], combined: Summand) -> Any:
    """What the replicas' parts were combined to, on the host: an array, or a scalar without axes.

    Where the replicas gave tensors it is a tensor of their dtype, where they gave Python's numbers
    it is such a number.

    Raises:
        OverflowError: It is beyond this dtype, of whole numbers.
    """
    if isinstance(combined, IndexedSlices):
        return combined
    array = to_host(combined)
    if all(isinstance(part, Tensor) for part in parts):
        dtype = np.result_type(*[part.dtype for part in parts])
        return Tensor(narrowed(array, dtype))
    if array.ndim:
        return array
    return array.item() if all(type(part) in (int, float) for part in parts) else array[()]


def narrowed(total: Array, dtype: np.dtype) -> Array:
    """What tensors of `dtype` were combined to, in that dtype; a mean of whole numbers as it is.

    Raises:
        OverflowError: It is beyond this dtype, of whole numbers.
    """
    if total.dtype.kind != dtype.kind:
        return total
    narrow = total.astype(dtype, copy=False)
    # Whole numbers were added up in 64 bits.
    if dtype.kind in "iu" and narrow is not total and (narrow != total).any():
        raise OverflowError(
            f"the sum of the replicas' tensors of {dtype} is beyond it; give them a wider dtype "
            f"before they are reduced, with .astype(np.int64)"
        )
    return narrow


def placed(batch: Any, device: Device) -> Any:
    """A batch in the memory of a device; text and what is no array (None for labels) stays."""
    if device.kind == "CPU":
        return batch
    return nest.map_structure(lambda leaf: device.bring(leaf) if has_numbers(leaf) else leaf, batch)


def brought(structure: Any, device: Device) -> Any:
    """What code outside of a replica hands to it, which computes on `device`.

    Tensors, and arrays of cards, that lie elsewhere are copied to its card. NumPy's arrays stay:
    they are brought there when a tensor meets them.
    """
    if device.kind == "CPU":
        return structure

    def bring(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return seen_from(device, leaf, Device.of(leaf.data))
        is_on_card = is_array(leaf) and Device.of(leaf).kind == "GPU"
        return device.bring(leaf) if is_on_card else leaf

    return nest.map_structure(bring, structure)


def grouping_on(devices: Sequence[Device]) -> Callable[[Sequence[Any]], Any]:
    """The function that makes one value of the replicas' batches, each on its replica's device."""
    if all(device.kind == "CPU" for device in devices):  # where batches are made
        return regroup
    return lambda parts: regroup([placed(b, d) for b, d in zip(parts, devices, strict=True)])
