"""`tensorflow_datasets`: `import paceline.compat.tfds as tfds`, then `tfds.load("mnist")`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import inputs

__all__ = ["as_numpy", "disable_progress_bar", "load"]


_DIGITS = ("digits", "mnist")
_OF_FOLDERS = ("fashion_mnist", "kmnist")


def load(
    name: str,
    *,
    split: str | Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    shuffle_files: bool = False,
    download: bool = True,
    as_supervised: bool = False,
    decoders: Any = None,
    read_config: Any = None,
    with_info: bool = False,
    builder_kwargs: Any = None,
    download_and_prepare_kwargs: Any = None,
    as_dataset_kwargs: Any = None,
    try_gcs: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Any:
    """`paceline.inputs.load`: images and labels, from IDX files or scikit-learn.

    Args:
        name: "mnist" or "digits"; with `data_dir` also "fashion_mnist" or "kmnist", whose files
            have the names of MNIST's. A version behind a colon has no effect.
        split, as_supervised, with_info: As there.
        data_dir: A folder of IDX files; for "mnist" by default what PACELINE_MNIST names, and else
            none.
        batch_size: Elements are batches of so many; -1: arrays of all, in place of a dataset.
        decoders: Must be None.
        shuffle_files, download, read_config, builder_kwargs, download_and_prepare_kwargs,
            as_dataset_kwargs, try_gcs: Of no effect; nothing is downloaded.
        environ: The environment, by default this process's.

    Raises:
        ValueError: There is no such dataset, or decoders are given.
    """
    title = name.partition(":")[0]
    if decoders is not None:
        raise ValueError("decoders must be None: images are arrays; change them in Dataset.map")
    if title == "mnist" and data_dir is None:
        data_dir = (os.environ if environ is None else environ).get("PACELINE_MNIST")
    there = (*_DIGITS, *_OF_FOLDERS) if data_dir else _DIGITS
    if title not in there:
        raise ValueError(
            f"tfds.load: name must be one of {', '.join(there)}, got {name!r} (with data_dir, a "
            f"folder of IDX files, also {', '.join(_OF_FOLDERS)}); nothing is downloaded. Load "
            f"other data as arrays, and use tf.data.Dataset.from_tensor_slices"
        )
    loaded = inputs.load(
        title, split=split, data_dir=data_dir, as_supervised=as_supervised, with_info=with_info
    )
    if batch_size is None:
        return loaded
    found, *info = loaded if with_info else (loaded,)
    batched = inputs.nest.map_structure(lambda data: _batched(data, batch_size), found)
    return (batched, *info) if with_info else batched


def _batched(data: inputs.Dataset, batch_size: int) -> Any:
    return (
        next(iter(data.batch(data.cardinality()))) if batch_size == -1 else data.batch(batch_size)
    )


def as_numpy(dataset: Any) -> Any:
    """The dataset itself, whose elements are NumPy arrays."""
    return dataset


def disable_progress_bar() -> None:
    """Nothing: there is none."""
