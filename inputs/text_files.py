"""Datasets of the records of text files: lines, JSON lines and the rows of CSV files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, final

import numpy as np

from .dataset import Dataset
from .record_files import (
    Files,
    RecordFormat,
    is_gzip,
    matching_files,
    opened,
    records_plan,
    skip_mark,
    skip_rest,
)
from .values import as_element, as_text

_logger = logging.getLogger("paceline")

_SAMPLE_ROWS = 100
_MISSING = frozenset({"", "NA", "N/A", "NULL", "null"})
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

Convert = Callable[[str], Any]
"""Makes a value of the text of a field."""


def text_lines(files: Files, compression_type: str | None = None) -> Dataset:
    """A dataset of the lines of text files, without their ends.

    Args:
        files: a path, a pattern such as `data/*.txt`, or several; `.gz` is unpacked. The text is
            UTF-8.
        compression_type: "GZIP" unpacks the files whatever their names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: of another compression; on iteration, for a line that is no UTF-8.
    """
    packed = is_gzip(compression_type)
    return Dataset(records_plan(files, RecordFormat("text_lines", _read_lines, packed)))


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
            float32 or text from the first 100 rows of the first file; a warning names columns that
            are text because they are empty there, or hold integers beyond 64 bits.
        defaults: what stands for a missing value of a column that is not text: an empty field, or
            NA, N/A, NULL or null.
        names: the columns, for files that have no header.
        delimiter: what separates the fields.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is unknown; on iteration, for a row with another number of fields or
            a quote that is not closed, a field that is no such number or a missing one without a
            default. The message names the file and the record. Behind a row whose fields cannot be
            told apart reading goes on with its second line.
    """
    paths = matching_files(files)
    columns = _columns(paths[0], delimiter) if names is None else list(names)
    if len(set(columns)) != len(columns):
        raise ValueError(f"{paths[0]}: the columns must have different names, got {columns}.")
    if dtypes is None:
        texts = {index: (name, str) for index, name in enumerate(columns)}
        sample = _CsvReader(columns, names is None, delimiter, texts).sample(paths[0])
        dtypes = {name: _inferred(paths[0], name, sample) for name in columns}
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
    reader = _CsvReader(columns, names is None, delimiter, converters, label)
    return Dataset(records_plan(paths, RecordFormat("csv_rows", reader.read)))


@final
@dataclass(frozen=True)
class _CsvReader:
    """How the rows of files become elements.

    Of the columns that are read `converters` has, by position, the name and what makes a value of
    the text. The column `label` becomes the second part of a pair.
    """

    columns: list[str]
    has_header: bool
    delimiter: str
    converters: Mapping[int, tuple[str, Convert]]
    label: str | None = None

    def read(self, file: BinaryIO) -> Iterator[Any]:
        """The elements of the rows from the file's position on, see `RecordFormat`."""
        import csv  # not needed by those who have no such files

        if self.has_header and file.tell() == 0:
            header = _header(file, self.delimiter)
            if header != self.columns:
                skip_rest(file)
                raise ValueError(
                    f"the header is {header}, but that of the first file is {self.columns}"
                )
        skip_mark(file)
        start, num_good_lines, num_columns = file.tell(), 0, len(self.columns)
        converters = self.converters.items()
        rows = csv.reader(_lines(file), delimiter=self.delimiter, strict=True)
        try:
            for row in rows:
                if row and len(row) != num_columns:
                    raise ValueError(f"the row has {len(row)} fields for {num_columns} columns")
                num_good_lines = rows.line_num
                if row:
                    example = {name: convert(row[i]) for i, (name, convert) in converters}
                    yield example if self.label is None else (example, example.pop(self.label))
        except (ValueError, csv.Error):
            # A quote that is not closed takes all that follows for one field, up to the next quote
            # or the end; these are good rows. The line is found by reading once more, since to ask
            # for the position at each row takes longer.
            if rows.line_num > num_good_lines:
                file.seek(start)
                for _ in range(num_good_lines + 1):
                    file.readline()
            raise

    def sample(self, path: str) -> list[dict[str, str]]:
        """The first good rows of a file; of bad ones one hears when they are read."""
        with opened(path) as file:
            return list(islice(self._good_rows(file), _SAMPLE_ROWS))

    def _good_rows(self, file: BinaryIO) -> Iterator[Any]:
        import csv

        start = -1
        while file.tell() > start:
            start = file.tell()
            try:
                yield from self.read(file)
            except (ValueError, csv.Error):
                continue


def _lines(file: BinaryIO) -> Iterator[str]:
    """Line by line, so that the file's position stays that of the rows that were read."""
    while line := file.readline():
        yield line.decode()


def _header(file: BinaryIO, delimiter: str) -> list[str]:
    import csv

    skip_mark(file)
    try:
        return next(csv.reader(_lines(file), delimiter=delimiter), [])
    except (ValueError, csv.Error) as error:
        skip_rest(file)
        raise ValueError(f"the header cannot be read: {error}") from error


def _columns(path: str, delimiter: str) -> list[str]:
    """The names in a file's header."""
    with opened(path) as file:
        try:
            return _header(file, delimiter)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _inferred(path: str, name: str, sample: list[dict[str, str]]) -> np.dtype[Any]:
    """The narrowest of int64, float32 and text that all the column's sample fits."""
    values = [row[name] for row in sample if row[name] not in _MISSING]
    if not values:
        _warn_of_text(path, name, f"holds nothing in the first {_SAMPLE_ROWS} rows")
        return np.dtype(np.str_)
    for dtype in (np.dtype(np.int64), np.dtype(np.float32)):
        try:
            for value in values:
                dtype.type(value)
        except ValueError:
            continue
        except OverflowError:
            _warn_of_text(path, name, "holds integers beyond 64 bits")
            break
        return dtype
    return np.dtype(np.str_)


def _warn_of_text(path: str, name: str, reason: str) -> None:
    _logger.warning(
        "csv_rows: column %r of %s %s and is taken for text; give dtypes if it is something else.",
        name,
        path,
        reason,
    )


def _converter(name: str, dtype: Any, defaults: Mapping[str, Any]) -> Convert:
    kind = np.dtype(dtype).type
    if kind is np.str_:
        return lambda text: as_text(text) if "\0" in text else np.str_(text)
    parse: Convert = _truth if kind is np.bool_ else kind
    has_default, default = name in defaults, defaults.get(name)

    def convert(text: str) -> Any:
        if text in _MISSING:
            if not has_default:
                found = f"is {text}" if text else "is empty"
                raise ValueError(f"column {name!r} {found} and has no default")
            return kind(default)
        try:
            return parse(text.strip())
        except (ValueError, OverflowError):
            raise ValueError(
                f"column {name!r} must be {np.dtype(dtype).name}, got {text!r}"
            ) from None

    return convert


def _truth(text: str) -> Any:
    value = _TRUTHS.get(text.lower())
    if value is None:
        raise ValueError(text)
    return np.bool_(value)


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
