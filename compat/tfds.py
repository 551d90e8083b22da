"""`tensorflow_datasets`: `import paceline.compat.tfds as tfds`, then `tfds.load("mnist")`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import inputs

__all__ = ["as_numpy", "disable_progress_bar", "load"]


def load(
    name: str,
    *,
    split: str | Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    shuffle_files: bool = False,
    download: bool = True,
    as_supervised: bool = False,
    with_info: bool = False,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """`paceline.inputs.load`: images of digits and labels, from IDX files or scikit-learn.

    Args:
        name: "mnist", or another name for other IDX files.
        split, as_supervised, with_info: As there.
        data_dir: A folder of IDX files; by default what PACELINE_MNIST names, and else none.
        batch_size: Elements are batches of so many.
        shuffle_files, download, options: Of no effect; nothing is downloaded.
        environ: The environment, by default this process's.
    """
    folder = data_dir or (os.environ if environ is None else environ).get("PACELINE_MNIST")
    loaded = inputs.load(
        name, split=split, data_dir=folder, as_supervised=as_supervised, with_info=with_info
    )
    if batch_size is None:
        return loaded
    found, *info = loaded if with_info else (loaded,)
    batched = inputs.nest.map_structure(lambda data: data.batch(batch_size), found)
    return (batched, *info) if with_info else batched


def as_numpy(dataset: Any) -> Any:
    """The dataset itself, whose elements are NumPy arrays."""
    return dataset


def disable_progress_bar() -> None:
    """Nothing: there is none."""
