"""The history of evaluations: what each of them found, by step, in one small file.

It lasts longer than the checkpoints, which are deleted in time, and needs no reader of event files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ..checkpoint import read_json, write_text

_NAME = "metrics.json"


def read_eval_metrics(eval_dir: str | os.PathLike[str]) -> dict[int, dict[str, float]]:
    """What the evaluations found that left their metrics in a directory.

    Args:
        eval_dir: `estimator.eval_dir()`, or `estimator.eval_dir(name)` of evaluations with a name.

    Returns:
        The metrics by name, by global step, in the order of steps; an evaluation that was repeated
        counts with its last result. Empty where there was none.

    Raises:
        ValueError: The file is damaged.
        CheckpointError: It cannot be read.
    """
    try:
        content = read_json(eval_dir, _NAME)
        content = {} if content is None else content
        found = {int(step): dict(metrics) for step, metrics in content.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{_NAME} in {eval_dir} is damaged ({type(error).__name__}: {error}), and with it the "
            f"history of evaluations; delete it to begin a new one"
        ) from error
    return dict(sorted(found.items()))


def record_eval_metrics(eval_dir: str, step: int, metrics: Mapping[str, float]) -> None:
    """Add what an evaluation of the checkpoint of `step` found; readers see all of it or nothing.

    Raises:
        ValueError: What is there already is damaged.
        CheckpointError: It cannot be written.
    """
    before = read_eval_metrics(eval_dir)
    if before.get(step) == metrics:
        return
    history = {**before, step: dict(metrics)}
    lines = [f'"{step}": {json.dumps(history[step])}' for step in sorted(history)]
    write_text(eval_dir, _NAME, "{\n" + ",\n".join(lines) + "\n}\n")
