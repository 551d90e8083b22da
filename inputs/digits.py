"""Handwritten digits without a download, as tensorflow_datasets' `load` gives them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np

from .array_files import read_idx
from .dataset import Dataset
from .values import TensorSpec

_logger = logging.getLogger("paceline")

_NUM_CLASSES = 10
_NUM_DIGITS_FOR_TRAINING = 1500
_DARKEST = 16
_IDX_PREFIXES = {"train": "train", "test": "t10k"}

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]
"""For each split, images (n, height, width, 1) uint8 and labels (n,) int64."""


@final
@dataclass(frozen=True)
class SplitInfo:
    """The size of a split."""

    num_examples: int


@final
@dataclass(frozen=True)
class ClassLabel:
    """A label, from 0 to below `num_classes`."""

    num_classes: int


@final
@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset without reading it.

    Args:
        name: what was asked for.
        description: where the data come from.
        splits: the sizes, by the splits' names.
        features: "image", a `TensorSpec`, and "label", a `ClassLabel`.
        supervised_keys: the features that `as_supervised` pairs.
    """

    name: str
    description: str
    splits: dict[str, SplitInfo]
    features: dict[str, Any]
    supervised_keys: tuple[str, str] = ("image", "label")


def load(
    name: str,
    *,
    split: str | Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    as_supervised: bool = False,
    with_info: bool = False,
) -> Any:
    """Images of digits (uint8, height × width × 1) and their labels (int64), in memory.

    Args:
        name: "digits" are scikit-learn's 1797 images of 8×8 with values up to 16. "mnist" are, from
            `data_dir`, MNIST itself; without one the same digits, enlarged to MNIST's 28×28 and
            255. Another name reads `data_dir` too, as for Fashion-MNIST.
        split: "train" or "test" for one dataset, a list of them for a list; None for a dict of all.
        data_dir: a folder of IDX files, plain or gzipped: `train-images-idx3-ubyte` and
            `train-labels-idx1-ubyte` are the split "train", `t10k-…` are "test". One may be absent.
        as_supervised: elements are pairs (image, label) and not dicts of "image" and "label".
        with_info: also return a `DatasetInfo`, as the second of a pair.

    Raises:
        ImportError: the digits are wanted and scikit-learn is not installed.
        FileNotFoundError: the folder has no such files.
        ValueError: there is no such name or split, or a file is damaged.
    """
    arrays, description = _read(name, data_dir)
    datasets = {part: _dataset(*pair, as_supervised) for part, pair in arrays.items()}
    chosen: Any = datasets
    if split is not None:
        chosen = _chosen(datasets, split)
    return (chosen, _info(name, description, arrays)) if with_info else chosen


def _read(name: str, data_dir: str | os.PathLike[str] | None) -> tuple[Arrays, str]:
    if data_dir is not None:
        return _idx_splits(Path(data_dir)), f"IDX files in {os.fspath(data_dir)}"
    if name not in ("digits", "mnist"):
        raise ValueError(
            f"name must be 'digits' or 'mnist' where no data_dir is given, got {name!r}. Nothing "
            "is downloaded; data_dir may be a folder of IDX files."
        )
    images, labels = _scikit_learn_digits()
    description = f"{len(labels)} digits that come with scikit-learn"
    if name == "mnist":
        images = _enlarged(images)
        description += ", enlarged to 28×28"
        _logger.warning(
            "load('mnist') has no data_dir: instead of MNIST it gives the %s.", description
        )
    n = _NUM_DIGITS_FOR_TRAINING
    return {"train": (images[:n], labels[:n]), "test": (images[n:], labels[n:])}, description


def _scikit_learn_digits() -> tuple[np.ndarray, np.ndarray]:
    """Images (1797, 8, 8, 1) and labels, from scikit-learn's folder; importing it takes seconds."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise ImportError(
            "load() reads the digits that come with scikit-learn, which is not installed. "
            "Install it with pip install 'paceline[examples]', or give data_dir."
        )
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, np.int64, delimiter=",")
    return table[:, :-1].astype(np.uint8).reshape(-1, 8, 8, 1), table[:, -1].copy()


def _enlarged(images: np.ndarray) -> np.ndarray:
    """Images of 8×8 with values up to 16 as ones of 28×28, with values up to 255 and a border."""
    scaled = (images.astype(np.uint16) * 255 // _DARKEST).astype(np.uint8)
    larger = scaled.repeat(3, axis=1).repeat(3, axis=2)
    return np.pad(larger, ((0, 0), (2, 2), (2, 2), (0, 0)))


def _idx_splits(folder: Path) -> Arrays:
    splits = {}
    for split, prefix in _IDX_PREFIXES.items():
        found = sorted(folder.glob(f"{prefix}-images*idx3-ubyte*"))
        if found:
            splits[split] = _idx_pair(found[0])
    if not splits:
        raise FileNotFoundError(
            f"data_dir {os.fspath(folder)} has neither train-images-idx3-ubyte nor "
            "t10k-images-idx3-ubyte, plain or as .gz."
        )
    return splits


def _idx_pair(images_path: Path) -> tuple[np.ndarray, np.ndarray]:
    labels_path = images_path.with_name(
        images_path.name.replace("images", "labels").replace("idx3", "idx1")
    )
    images, labels = read_idx(images_path), read_idx(labels_path)
    if len(images) != len(labels):
        raise ValueError(
            f"{images_path} has {len(images)} images but {labels_path} {len(labels)} labels."
        )
    return images[..., None], labels.astype(np.int64)


def _dataset(images: np.ndarray, labels: np.ndarray, as_supervised: bool) -> Dataset:
    pair = (images, labels) if as_supervised else {"image": images, "label": labels}
    return Dataset.from_tensor_slices(pair)


def _chosen(datasets: dict[str, Dataset], split: str | Sequence[str]) -> Any:
    if not isinstance(split, str):
        return [_chosen(datasets, part) for part in split]
    if split not in datasets:
        raise ValueError(
            f"split must be one of {list(datasets)}, got {split!r}. Use take and skip for parts."
        )
    return datasets[split]


def _info(name: str, description: str, arrays: Arrays) -> DatasetInfo:
    images = next(iter(arrays.values()))[0]
    features = {
        "image": TensorSpec(images.shape[1:], images.dtype),
        "label": ClassLabel(_NUM_CLASSES),
    }
    splits = {split: SplitInfo(len(labels)) for split, (_, labels) in arrays.items()}
    return DatasetInfo(name, description, splits, features)
