"""Datasets of the rows of CSV files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from ._files import Files, RecordFormat, matching_files, opened, records_plan, skip_rest
from .dataset import Dataset

_NUM_ROWS_FOR_INFERENCE = 100
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

Convert = Callable[[str], Any]


def csv_rows(
    files: Files,
    *,
    label: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Dataset:
    """A dataset of the rows of CSV files, each a dict from column names to values.

    Args:
        files: a path, a pattern such as `data/*.csv`, or several; `.gz` is unpacked.
        label: the column that becomes the second part of a pair (features, label).
        dtypes: the columns to be read and the dtype of each. None reads all, and takes int64,
            float32 or text from the first 100 rows of the first file.
        defaults: what stands for an empty field of a column.
        names: the columns, for files that have no header.
        delimiter: what separates the fields.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is unknown; on iteration, for a row with another number of fields, a
            field that is no such number or an empty one without a default. The message names the
            file and the record.
    """
    paths = matching_files(files)
    columns, sample = _columns_and_sample(paths[0], names, delimiter)
    if dtypes is None:
        dtypes = {name: _inferred(sample, i) for i, name in enumerate(columns)}
    for name in [*dtypes, *(defaults or {}), *([] if label is None else [label])]:
        if name not in columns or name not in dtypes:
            raise ValueError(
                f"{paths[0]} has no column {name!r} that is read. Its columns are {columns}, of "
                f"which {list(dtypes)} are read."
            )
    converters = {
        columns.index(name): (name, _converter(name, dtype, defaults or {}))
        for name, dtype in dtypes.items()
    }
    read = partial(
        _read_rows,
        columns=columns,
        has_header=names is None,
        delimiter=delimiter,
        converters=converters,
        label=label,
    )
    return Dataset(records_plan(paths, RecordFormat("csv_rows", read)))


def _read_rows(
    file: BinaryIO,
    *,
    columns: list[str],
    has_header: bool,
    delimiter: str,
    converters: Mapping[int, tuple[str, Convert]],
    label: str | None,
) -> Iterator[Any]:
    import csv  # not needed by those who have no such files

    starts_file = file.tell() == 0
    rows = csv.reader(_text_lines(file), delimiter=delimiter, strict=True)
    if has_header and starts_file:
        header = next(rows, [])
        if header != columns:
            skip_rest(file)
            raise ValueError(f"the header is {header}, but that of the first file is {columns}")
    for row in rows:
        if not row:
            continue
        if len(row) != len(columns):
            raise ValueError(f"the row has {len(row)} fields for {len(columns)} columns")
        example = {name: convert(row[index]) for index, (name, convert) in converters.items()}
        yield example if label is None else (example, example.pop(label))


def _text_lines(file: BinaryIO) -> Iterator[str]:
    """Line by line, so that the file's position stays that of the rows that were read."""
    is_first = file.tell() == 0
    while line := file.readline():
        # Excel marks UTF-8 files with three bytes.
        yield line.decode("utf-8-sig" if is_first else "utf-8")
        is_first = False


def _columns_and_sample(
    path: str, names: Sequence[str] | None, delimiter: str
) -> tuple[list[str], list[list[str]]]:
    import csv

    with opened(path) as file:
        rows = csv.reader(_text_lines(file), delimiter=delimiter)
        columns = next(rows, []) if names is None else list(names)
        if len(set(columns)) != len(columns):
            raise ValueError(f"{path}: the columns must have different names, got {columns}.")
        return columns, list(islice(rows, _NUM_ROWS_FOR_INFERENCE))


def _inferred(sample: list[list[str]], index: int) -> np.dtype[Any]:
    """The narrowest of int64, float32 and text that all the column's sample fits."""
    values = [row[index] for row in sample if index < len(row) and row[index] != ""]
    for dtype in (np.dtype(np.int64), np.dtype(np.float32)):
        try:
            for value in values:
                dtype.type(value)
        except ValueError:
            continue
        if values:
            return dtype
    return np.dtype(np.str_)


def _converter(name: str, dtype: Any, defaults: Mapping[str, Any]) -> Convert:
    kind = np.dtype(dtype).type
    parse: Convert = _truth if kind is np.bool_ else kind
    has_default, default = name in defaults, defaults.get(name)

    def convert(text: str) -> Any:
        if text == "" and kind is not np.str_:
            if not has_default:
                raise ValueError(f"column {name!r} is empty and has no default")
            return kind(default)
        try:
            return parse(text.strip() if kind is not np.str_ else text)
        except ValueError:
            raise ValueError(
                f"column {name!r} must be {np.dtype(dtype).name}, got {text!r}"
            ) from None

    return convert


def _truth(text: str) -> Any:
    value = _TRUTHS.get(text.lower())
    if value is None:
        raise ValueError(text)
    return np.bool_(value)
