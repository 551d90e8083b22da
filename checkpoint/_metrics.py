"""Metrics beside a checkpoint, so that the best can be kept (see `keep_best`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ._errors import CheckpointError
from ._lease import lease
from ._names import METRICS
from ._storage import storage_of


def record_metrics(path: str | os.PathLike[str], metrics: Mapping[str, float]) -> None:
    """Notes what an evaluation found, in the directory of the checkpoint at `path`.

    Replaces what was noted before. The checkpoint itself stays as it is.

    Raises:
        CheckpointError: the checkpoint is not there, or cannot be written to.
    """
    plain = {str(name): float(value) for name, value in metrics.items()}
    with lease(path) as directory:
        try:
            text = json.dumps(plain, indent=1) + "\n"
            storage_of(directory).replace(os.path.join(directory, METRICS), text)
        except OSError as error:
            raise CheckpointError(f"cannot write metrics to '{directory}': {error}") from error


def read_metrics(path: str | os.PathLike[str]) -> dict[str, float]:
    """What was noted beside the checkpoint at `path`; empty if nothing was, or it is damaged.

    Raises:
        CheckpointError: it cannot be read. (Empty would be wrong: the best would be deleted.)
    """
    path = os.fspath(path)
    try:
        found = json.loads(storage_of(path).read(os.path.join(path, METRICS)))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except OSError as error:
        raise CheckpointError(f"cannot read the metrics in '{path}': {error}") from error
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
