"""`tf.keras.utils.get_file` and `tf.keras.datasets`: from files that are in Keras's own cache.

Nothing is downloaded: an error names the file that is missing and where it belongs.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np

from ...inputs import read_idx

_HASHES = {32: "md5", 64: "sha256"}
_FASHION = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"


def get_file(
    fname: str | None = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: Any = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
) -> str:
    """The path of a file in Keras's cache, whose hash is checked when one is given.

    Args:
        fname: Its name; by default the last part of `origin`. An absolute path is taken as it is.
        origin: The address that Keras would download, for the error.
        md5_hash, file_hash: The MD5 or SHA-256 of the file, in hexadecimal digits.
        hash_algorithm: "md5", "sha256" or "auto": by the number of digits.
        cache_subdir, cache_dir: The folder: `cache_dir/cache_subdir`, by default
            ~/.keras/datasets.
        archive_format: Has no effect.
        untar, extract: Must be False.

    Raises:
        FileNotFoundError: The file is not there; with the place where it belongs.
        ValueError: Its hash is another, there is no name, or it is to be unpacked.
    """
    if untar or extract:
        raise ValueError(
            "get_file: untar and extract must be False; unpack the archive with "
            "shutil.unpack_archive"
        )
    name = fname or os.path.basename(origin or "")
    if not name:
        raise ValueError("get_file: fname or origin must be given")
    base = os.path.expanduser("~/.keras" if cache_dir is None else os.fspath(cache_dir))
    path = os.path.join(base, cache_subdir, name)
    if not os.path.isfile(path):
        source = f"; its origin is {origin}" if origin else ""
        raise FileNotFoundError(
            f"get_file: {name!r} must be at {path}: nothing is downloaded{source}. Put the file "
            f"there"
        )
    _check(path, file_hash or md5_hash, hash_algorithm)
    return path


def _check(path: str, wanted: str | None, algorithm: str) -> None:
    if wanted is None:
        return
    kind = _HASHES.get(len(wanted)) if algorithm == "auto" else algorithm
    if kind is None or kind not in _HASHES.values():
        raise ValueError(f"get_file: hash_algorithm must be 'md5' or 'sha256', got {algorithm!r}")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    if found.hexdigest() != wanted.lower():
        raise ValueError(
            f"get_file: {path} must have the {kind} {wanted}, it has {found.hexdigest()}; get the "
            f"file anew"
        )


def load_fashion_mnist() -> tuple[Any, Any]:
    """`tf.keras.datasets.fashion_mnist.load_data()`: images and labels to train, and to test.

    From the four packed IDX files in ~/.keras/datasets/fashion-mnist. Images are uint8
    (n, 28, 28), labels uint8 (n,).

    Raises:
        FileNotFoundError: A file is missing; see `get_file`.
    """

    def array(name: str) -> np.ndarray:
        folder = os.path.join("datasets", "fashion-mnist")
        return np.asarray(read_idx(get_file(name, _FASHION + name, cache_subdir=folder)))

    train, test = (
        (array(f"{part}-images-idx3-ubyte.gz"), array(f"{part}-labels-idx1-ubyte.gz"))
        for part in ("train", "t10k")
    )
    return train, test
