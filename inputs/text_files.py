"""Datasets of the lines of text files, and of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ._files import Files, RecordFormat, records_plan, skip_mark
from ._values import as_element, as_text
from .dataset import Dataset


def text_lines(files: Files) -> Dataset:
    """A dataset of the lines of text files, without their ends.

    Args:
        files: a path, a pattern such as `data/*.txt`, or several; `.gz` is unpacked. The text is
            UTF-8.
    """
    return Dataset(records_plan(files, RecordFormat("text_lines", _read_lines)))


def json_lines(files: Files) -> Dataset:
    """A dataset of the JSON values in files that have one on each line.

    Objects become dicts, arrays become NumPy arrays (floats float32, integers int64) and null
    None. Empty lines are passed over.

    Args:
        files: a path, a pattern such as `data/*.jsonl`, or several; `.gz` is unpacked.

    Raises:
        ValueError: on iteration, for a line that is no JSON or an object whose keys are not those
            of the file's first; the message names file and record.
    """
    return Dataset(records_plan(files, RecordFormat("json_lines", _read_json)))


def _read_lines(file: BinaryIO) -> Iterator[Any]:
    skip_mark(file)
    while line := file.readline():
        text = line.decode().rstrip("\r\n")
        yield as_text(text) if "\0" in text else np.str_(text)


def _read_json(file: BinaryIO) -> Iterator[Any]:
    keys = None
    skip_mark(file)
    while line := file.readline():
        text = line.decode()
        if not text.strip():
            continue
        value = json.loads(text)
        if isinstance(value, dict):
            keys = value.keys() if keys is None else keys
            if value.keys() != keys:
                raise ValueError(
                    f"the keys are {sorted(value)}, but those of the first are {sorted(keys)}"
                )
        yield as_element(value)
