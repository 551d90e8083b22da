"""Loading: nothing is handed out that has not been verified."""

from __future__ import annotations

import difflib
import hashlib
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import numpy as np

from .access import lease
from .errors import CheckpointError
from .manifest import Manifest, SliceEntry, TensorEntry, read_manifest
from .names import MANIFEST, METRICS, checkpoint_name, directory_of, step_of
from .other_files import check_files
from .places import committer_of, exists, no_checkpoint, steps_in, store_of, tidy
from .shard import check_shard_headers, check_shard_size, read_rows

Region = tuple[slice, ...]
Index = slice | Region
_NUM_READERS: Final = min(4, os.cpu_count() or 1)


@final
class CheckpointReader:
    """A checkpoint on disk, opened for reading by `load`.

    Arrays are read when asked for and verified as they are read, so looking at names or at a few
    tensors costs little. The files are not held open: read what is needed before later saves
    delete the directory. Safe to use from several threads.
    """

    def __init__(self, path: str, manifest: Manifest) -> None:
        self._path = path
        self._manifest = manifest

    @property
    def path(self) -> str:
        """The checkpoint's directory."""
        return self._path

    @property
    def step(self) -> int:
        """The global step after which it was saved."""
        return self._manifest.global_step

    @property
    def state(self) -> dict[str, Any]:
        """The JSON that was saved with the arrays."""
        return self._manifest.model_dump(include={"state"})["state"]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors, in the order in which they were saved."""
        return tuple(self._manifest.tensors)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name to shape, without reading any tensor."""
        return {name: entry.shape for name, entry in self._manifest.tensors.items()}

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor.

        Raises:
            CheckpointError: there is no such tensor.
        """
        return self._tensor(name).shape

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Tensor name to dtype, without reading any tensor."""
        return {name: np.dtype(entry.dtype) for name, entry in self._manifest.tensors.items()}

    @property
    def num_writers(self) -> int:
        """How many processes wrote it, each its own shard."""
        return len(self._manifest.shards)

    @property
    def created(self) -> str:
        """When it was written, ISO 8601 in UTC."""
        return self._manifest.created

    @property
    def identity(self) -> str:
        """A text that no other checkpoint has, nor one that is saved in its place later."""
        content = hashlib.sha256(self._manifest.model_dump_json().encode()).hexdigest()
        return f"{self._path} {content}"

    @property
    def versions(self) -> dict[str, str]:
        """Library name to version, of the writer."""
        return dict(self._manifest.versions)

    @property
    def files(self) -> tuple[str, ...]:
        """The other files of an export that are verified, by their relative paths."""
        return tuple(self._manifest.files)

    @property
    def size_bytes(self) -> int:
        """The size of its shards together."""
        return sum(entry.size_bytes for entry in self._manifest.shards.values())

    def read(self, name: str, region: Index = ()) -> np.ndarray:
        """The tensor `name`, or a region of it, as a new, writable array.

        It does not matter in which slices the tensor was written. Of each of them the rows that
        the region needs are read (from 1 MiB boundary to 1 MiB boundary), and nothing else.

        Args:
            name: of the tensor.
            region: basic slices as NumPy's, of step 1: `numpy.s_[10:20]`, `numpy.s_[:, 5:]`.

        Raises:
            CheckpointError: there is no such tensor, or it is damaged.
            ValueError, TypeError: `region` is not one of this tensor.
        """
        tensor = self._tensor(name)
        wanted = _region_of(region, tensor.shape)
        if len(tensor.slices) == 1:
            return self._read_part(name, tensor, tensor.slices[0], wanted)
        whole = np.empty(_shape_of(wanted), tensor.dtype)
        for part in tensor.slices:
            if (common := _common(wanted, part)) is not None:
                whole[common[0]] = self._read_part(name, tensor, part, common[1])
        return whole

    def arrays(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Tensors by name, as new, writable arrays; those of `names`, or all.

        Raises:
            CheckpointError: one of them is damaged, or not there.
        """
        from concurrent.futures import ThreadPoolExecutor  # `import paceline` goes without

        chosen = self.names if names is None else tuple(names)
        for name in chosen:
            self._tensor(name)
        # While one thread waits for the disk, another one verifies.
        with ThreadPoolExecutor(_NUM_READERS) as readers:
            return dict(zip(chosen, readers.map(self.read, chosen), strict=True))

    def verify(self) -> None:
        """Reads everything and compares it with its checksums, a tensor at a time.

        Raises:
            CheckpointError: something is damaged.
        """
        check_shard_headers(self._path, self._manifest)
        self.verify_files()
        for name in self.names:
            self.read(name)

    def verify_files(self) -> None:
        """Reads the other files of an export and compares them with their checksums.

        Raises:
            CheckpointError: one is damaged, or missing.
        """
        check_files(self._path, self._manifest)

    def unverifiable_files(self) -> list[str]:
        """Files and directories beside the tensors that are under no checksum, by their names.

        In an export of an earlier version these are all its other files.
        """
        listed = {name.partition("/")[0] for name in self._manifest.files}
        known = {MANIFEST, METRICS, *self._manifest.shards, *listed}
        there = {name for name in store_of(self._path).names(self._path) if name[:1] != "."}
        return sorted(there - known)

    def _tensor(self, name: str) -> TensorEntry:
        tensor = self._manifest.tensors.get(name)
        if tensor is None:
            raise CheckpointError(_unknown_tensor(name, self._path, self.names))
        return tensor

    def _is_replaced(self) -> bool:
        """Whether there is another checkpoint at the path by now, of the same step."""
        try:
            return read_manifest(self._path) != self._manifest
        except CheckpointError:
            return False

    def _read_part(
        self, name: str, tensor: TensorEntry, part: SliceEntry, region: Region
    ) -> np.ndarray:
        """A region of a slice, in the slice's own indices."""
        path = os.path.join(self._path, part.shard)
        rows = region[0] if region else slice(0, 1)
        try:
            check_shard_size(self._path, part.shard, self._manifest)
            array = read_rows(path, name, tensor, part, rows)
        except CheckpointError as error:
            if self._is_replaced():
                raise CheckpointError(
                    f"checkpoint '{self._path}' was saved anew while it was read: load it again"
                ) from error
            raise CheckpointError(f"{error}{_advice(self._path)}") from error
        whole_rows = _shape_of(region[1:]) == array.shape[1:]
        return array if whole_rows else array[(slice(None), *region[1:])].copy()

    def __repr__(self) -> str:
        return f"CheckpointReader({self._path!r}, step={self.step}, {len(self.names)} tensors)"


def load(path: str | os.PathLike[str]) -> CheckpointReader:
    """Opens the checkpoint at `path`, which `save` or `latest_checkpoint` returned.

    Verifies the manifest, and of each shard the size and the header; the tensors' bytes are
    verified when they are read.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged; names the file, and the newest
            whole checkpoint beside it.
    """
    path = tidy(path)
    if not is_checkpoint(path):
        raise CheckpointError(no_checkpoint(path))
    try:
        manifest = whole_manifest(path)
        check_shard_headers(path, manifest)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{_advice(path)}") from error
    return CheckpointReader(path, manifest)


def is_checkpoint(path: str) -> bool:
    """Whether there is a checkpoint at `path`, damaged or not, rather than a directory of some."""
    try:
        return exists(os.path.join(path, MANIFEST))
    except OSError as error:
        raise CheckpointError(f"cannot read '{path}': {error.strerror or error}") from error


def whole_manifest(path: str) -> Manifest:
    """The manifest of a checkpoint whose files are all there; their contents are not read."""
    manifest = read_manifest(path)
    named = step_of(os.path.basename(path))
    if named is not None and named != manifest.global_step:
        raise CheckpointError(
            f"'{path}' is named after step {named} but holds step {manifest.global_step}: "
            f"rename it to '{checkpoint_name(manifest.global_step)}'"
        )
    for shard in manifest.shards:
        check_shard_size(path, shard, manifest)
    return manifest


def whole_checkpoints(model_dir: str) -> tuple[dict[int, str], dict[int, CheckpointError]]:
    """All checkpoints of a directory by step, ascending: paths of the whole, errors of the rest."""
    whole: dict[int, str] = {}
    damaged: dict[int, CheckpointError] = {}
    for step in steps_in(model_dir):
        path = os.path.join(model_dir, checkpoint_name(step))
        try:
            whole_manifest(path)
            whole[step] = path
        except CheckpointError as error:
            if committer_of(path).is_committed(path):  # else it was deleted while we looked, say
                damaged[step] = error
    return whole, damaged


def _advice(path: str) -> str:
    """The newest other checkpoint beside a damaged one, as the end of a message."""
    try:
        others = whole_checkpoints(directory_of(path))[0]
    except OSError:
        others = {}
    others = {s: other for s, other in others.items() if tidy(other) != path}
    if not others:
        return "; there is no other whole checkpoint beside it"
    return f"; the newest whole checkpoint beside it is '{others[max(others)]}'"


def _unknown_tensor(name: str, path: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, names, n=3) or names[:3]
    listed = ", ".join(f"{other!r}" for other in near) or "nothing"
    return f"checkpoint '{path}' has no tensor {name!r}; among its {len(names)} are {listed}"


def read_slices(
    path: str | os.PathLike[str], rows: Mapping[str, tuple[int, int] | None]
) -> dict[str, np.ndarray]:
    """Reads of each tensor the rows that are asked for, and little else, under a lease.

    For who holds only a part of a model: a parameter server, say. It does not matter how many
    writers saved it, and in which slices.

    Args:
        path: of a checkpoint.
        rows: tensor name to (start, stop) along its first axis; None is the whole tensor.

    Returns:
        Name to a new, writable array.

    Raises:
        CheckpointError: a tensor is not there, or damaged.
        ValueError: rows that a tensor does not have.
    """
    with lease(path) as leased:
        reader = load(leased)
        shapes = {name: reader.shape_of(name) for name in rows}
        regions = {name: _rows(name, given, shapes[name]) for name, given in rows.items()}
        return {name: reader.read(name, region) for name, region in regions.items()}


def _rows(name: str, rows: tuple[int, int] | None, shape: tuple[int, ...]) -> Index:
    if rows is None:
        return ()
    start, stop = map(operator.index, rows)
    if not shape or not 0 <= start <= stop <= shape[0]:
        raise ValueError(
            f"rows {start} to {stop} of tensor {name!r} are asked for, whose shape is {shape}"
        )
    return slice(start, stop)


def _region_of(index: Index, shape: tuple[int, ...]) -> Region:
    """The region that NumPy's basic slices pick from a tensor, one slice an axis, none open."""
    slices = index if isinstance(index, tuple) else (index,)
    for given in slices:
        if not isinstance(given, slice):
            raise TypeError(f"a region is made of slices, such as numpy.s_[10:20]; got {given!r}")
        if given.step not in (None, 1):
            raise ValueError(f"a region's slices have step 1; got {given!r}: pick after reading")
    if len(slices) > len(shape):
        raise ValueError(f"a region of {len(slices)} slices of a tensor of shape {shape}")
    slices += (slice(None),) * (len(shape) - len(slices))
    bounds = [given.indices(length) for given, length in zip(slices, shape, strict=True)]
    return tuple(slice(first, max(first, last)) for first, last, _ in bounds)


def _shape_of(region: Region) -> tuple[int, ...]:
    return tuple(axis.stop - axis.start for axis in region)


def _common(region: Region, part: SliceEntry) -> tuple[Region, Region] | None:
    """What a region shares with a slice, in the region's indices and in the slice's; or None."""
    in_region, in_part = [], []
    for axis, first, length in zip(region, part.start, part.shape, strict=True):
        low, high = max(axis.start, first), min(axis.stop, first + length)
        if low >= high:
            return None
        in_region.append(slice(low - axis.start, high - axis.start))
        in_part.append(slice(low - first, high - first))
    return tuple(in_region), tuple(in_part)
