"""Datasets of the rows of NumPy's own files, `.npy` and `.npz`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import nest
from ._files import matching_files
from ._sources import concatenated_plan
from .dataset import Dataset

if TYPE_CHECKING:
    import zipfile

_LOCAL_HEADER_BYTES = 30
_STORED = 0


def npy_rows(files: Any) -> Dataset:
    """A dataset of the rows of `.npy` files, which are mapped and not read into memory.

    Shuffling, sharding and batching are arithmetic on positions, over all files together.

    Args:
        files: a path, a pattern such as `data/*.npy`, or a list of them, one after another; or a
            tuple or dict of such, whose rows the elements then have side by side.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file is empty, cut off or no array; its rows have another shape or dtype than
            the first one's; or the parts differ in length. The message names the file.
    """
    if isinstance(files, tuple):
        return _side_by_side(tuple(npy_rows(part) for part in files))
    if isinstance(files, dict):
        return _side_by_side({name: npy_rows(part) for name, part in files.items()})
    return _one_after_another(matching_files(files))


def npz_rows(file: Any, names: Sequence[str] | None = None) -> Dataset:
    """A dataset of the rows of the arrays in an `.npz` file, each element a dict by their names.

    Arrays that `np.savez` stored are mapped; those that `np.savez_compressed` packed are read into
    memory.

    Args:
        file: its path.
        names: the arrays that are wanted; None takes all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, has no such array, or the arrays differ in length.
    """
    import zipfile  # takes longer to import than this whole package

    (path,) = matching_files(file)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            wanted = list(members) if names is None else list(names)
            for name in wanted:
                if name not in members:
                    raise ValueError(f"{path} has no array {name!r}, only {sorted(members)}.")
            arrays = {name: _member(path, archive, members[name]) for name in wanted}
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is no .npz file, or damaged: {error}.") from error
    return Dataset.from_tensor_slices(arrays)


def _side_by_side(parts: Any) -> Dataset:
    lengths = [part.cardinality() for part in nest.flatten(parts)]
    if len(set(lengths)) > 1:
        sizes = ", ".join(map(str, lengths))
        raise ValueError(f"files must have equally many rows, got {sizes}. Look for a missing one.")
    return Dataset.zip(parts)


def _one_after_another(paths: list[str]) -> Dataset:
    arrays = [_map(path) for path in paths]
    for path, array in zip(paths, arrays, strict=True):
        if (array.shape[1:], array.dtype) != (arrays[0].shape[1:], arrays[0].dtype):
            raise ValueError(
                f"{path} has rows of shape {array.shape[1:]} and dtype {array.dtype}, but "
                f"{paths[0]} has {arrays[0].shape[1:]} and {arrays[0].dtype}."
            )
    datasets = [Dataset.from_tensor_slices(array) for array in arrays]
    if len(datasets) == 1:
        return datasets[0]
    return Dataset(concatenated_plan([dataset.plan for dataset in datasets]))


def _map(path: str) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path} is no .npy file, or is damaged or cut off: {reason}.") from error
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise ValueError(f"{path} must be a .npy file of at least one dimension.")
    return array


def _member(path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    is_packed = info.compress_type != _STORED
    try:
        with archive.open(info) as file:
            if is_packed:
                return np.lib.format.read_array(file, allow_pickle=False)
            shape, is_fortran, dtype = _read_header(file)
            offset = file.tell()
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: the array {info.filename!r} is damaged: {error}.") from error
    if dtype.hasobject:
        raise ValueError(f"{path}: the array {info.filename!r} holds Python objects.")
    with open(path, "rb") as raw:
        raw.seek(info.header_offset)
        header = raw.read(_LOCAL_HEADER_BYTES)
        # The lengths of the file's name and of the extra field, which come before its content.
        offset += info.header_offset + _LOCAL_HEADER_BYTES
        offset += int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)
