"""Arrays in files: datasets of the rows of NumPy's `.npy` and `.npz`, and the arrays of IDX files.

IDX is the format of the MNIST images and labels: two zero bytes, a dtype code, the number of
dimensions, then each dimension as a big-endian 32-bit integer and the values in row-major,
big-endian order (http://yann.lecun.com/exdb/mnist/).
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from . import nest
from .combining import concatenated
from .dataset import Dataset
from .record_files import check_has_content, matching_files, read_up_to

if TYPE_CHECKING:
    import zipfile

_LOCAL_HEADER_BYTES = 30
_STORED, _DEFLATED = 0, 8
_CHUNK_BYTES = 1 << 20

_IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_DIMENSIONS = 32
_GZIP_MAGIC = b"\x1f\x8b"
# Deflate cannot compress better than 1032 to 1.
_MAX_GZIP_RATIO = 1032

IdxFile = BinaryIO | gzip.GzipFile


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
    memory. Either way the wanted arrays are read once, in this call, to verify their checksums:
    what is mapped later is what was verified, unless someone writes to the file in between.

    Args:
        file: its path.
        names: the arrays that are wanted; None takes all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, has no such array, or the arrays differ in length.
    """
    import zipfile  # takes longer to import than this whole package

    (path,) = matching_files(file)
    check_has_content(path)
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
    return Dataset(concatenated([dataset.plan for dataset in datasets]))


def _map(path: str) -> np.ndarray:
    # Mapped pages count as the process's memory, but are the system's cache of the file, which it
    # takes back at will. To give them back after each batch, or to read by `preadv`, was slower:
    # 0.2 and 0.5 million examples a second instead of 1.1 to 1.8.
    check_has_content(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path} is no .npy file, or is damaged or cut off: {reason}.") from error
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise ValueError(f"{path} must be a .npy file of at least one dimension.")
    num_behind = os.path.getsize(path) - array.offset - array.nbytes  # type: ignore[attr-defined]
    if num_behind:
        raise ValueError(
            f"{path} is damaged: its header announces an array of shape {array.shape}, behind "
            f"which {num_behind} bytes are left over. Write it again."
        )
    return array


def _member(path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array of the archive, whose checksum has been verified; mapped where it is stored."""
    is_packed = info.compress_type != _STORED
    try:
        with archive.open(info) as file:
            shape, is_fortran, dtype = _npy_header(file)
            offset = file.tell()
            _check_size(path, info, offset, shape, dtype)
            data = np.empty(info.file_size - offset if is_packed else 0, np.uint8)
            num_read = 0
            # `zipfile` compares the checksum where the member ends.
            while chunk := file.read(_CHUNK_BYTES):
                if is_packed:
                    data[num_read : num_read + len(chunk)] = np.frombuffer(chunk, np.uint8)
                num_read += len(chunk)
            if num_read < info.file_size - offset:
                raise ValueError(f"it ends after {num_read} of {info.file_size - offset} bytes")
    except (ValueError, EOFError, RuntimeError, zlib.error) as error:
        raise ValueError(f"{path}: the array {info.filename!r} is damaged: {error}.") from error
    order: Any = "F" if is_fortran else "C"
    if is_packed:
        return np.ndarray(shape, dtype, data, order=order)
    with open(path, "rb") as raw:
        raw.seek(info.header_offset)
        header = raw.read(_LOCAL_HEADER_BYTES)
    # The lengths of the file's name and of the extra field, which come before its content.
    offset += info.header_offset + _LOCAL_HEADER_BYTES
    offset += int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return np.memmap(path, dtype, "r", offset, shape, order)


def _check_size(
    path: str,
    info: zipfile.ZipInfo,
    header_bytes: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> None:
    """Refuse an array that is not just what its member holds, before memory is taken for it."""
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if info.compress_type not in (_STORED, _DEFLATED):
        raise ValueError(
            f"its compression method must be {_STORED} or {_DEFLATED}, as np.savez and "
            f"np.savez_compressed have it, got {info.compress_type}"
        )
    found, announced = info.file_size - header_bytes, math.prod(shape) * dtype.itemsize
    if found != announced or min(shape, default=0) < 0:
        raise ValueError(
            f"its header announces shape {shape} and dtype {dtype}, which take {announced} bytes, "
            f"but {found} follow"
        )
    if announced > os.path.getsize(path) * _MAX_GZIP_RATIO:
        raise ValueError(f"it announces {announced} bytes, more than a file of this size can hold")


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file, plain or gzipped.

    Returns:
        An array in native byte order with the shape and dtype that the file names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or no IDX file; the message says what was expected.
    """
    name = os.fspath(path)
    check_has_content(name)
    file_bytes = os.path.getsize(name)
    with open(name, "rb") as file:
        is_gzipped = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if not is_gzipped:
            return _read_idx(file, name, file_bytes)
        try:
            with gzip.open(file) as unzipped:
                return _read_idx(unzipped, name, file_bytes * _MAX_GZIP_RATIO)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is a damaged gzip file ({error}). Download it again."
            ) from error


def _read_idx(file: IdxFile, path: str, limit: int) -> np.ndarray:
    dtype, shape = _idx_header(file, path)
    header_bytes = 4 + 4 * len(shape)
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes > limit - header_bytes:
        raise _wrong_size(path, shape, dtype, f"at most {max(limit - header_bytes, 0)}")
    data = read_up_to(file, num_bytes)
    if len(data) < num_bytes:
        raise _wrong_size(path, shape, dtype, str(len(data)))
    if file.read(1):
        raise _wrong_size(path, shape, dtype, "more")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _idx_header(file: IdxFile, path: str | os.PathLike[str]) -> tuple[np.dtype, tuple[int, ...]]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise ValueError(
            f"{path} is no IDX file: it must begin with two zero bytes, a dtype code and the "
            f"number of dimensions, found {magic!r}."
        )
    code, num_dimensions = magic[2], magic[3]
    if code not in _IDX_DTYPES:
        known = ", ".join(f"0x{known:02x}" for known in _IDX_DTYPES)
        raise ValueError(f"{path} has the IDX dtype code 0x{code:02x}, expected one of {known}.")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise ValueError(
            f"{path} has {num_dimensions} dimensions, expected 1 to {_MAX_DIMENSIONS}."
        )
    sizes = file.read(4 * num_dimensions)
    if len(sizes) < 4 * num_dimensions:
        raise ValueError(
            f"{path} ends inside its header: expected {num_dimensions} dimensions of 4 bytes, "
            f"found {len(sizes)} bytes."
        )
    return np.dtype(_IDX_DTYPES[code]), struct.unpack(f">{num_dimensions}I", sizes)


def _wrong_size(path: str, shape: tuple[int, ...], dtype: np.dtype, found: str) -> ValueError:
    expected = math.prod(shape) * dtype.itemsize
    return ValueError(
        f"{path} announces {dtype.name} values of shape {shape}, which take {expected} bytes, "
        f"but {found} follow the header. Download it again."
    )
