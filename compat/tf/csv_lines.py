"""The fields of CSV lines, column by column.

The csv module splits lines in C, and Python's int and float, mapped over a column, are its numbers:
rounded correctly, and for 40 lines faster than a NumPy pass over their bytes.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, final

import numpy as np

from .conversion import plain
from .text import one_text, texts

_NUMBERS: dict[str, Callable[[str], Any]] = {"i": int, "u": int, "f": float}
"""What makes a number of a text, by the kind of the dtype."""


@final
class CsvFormat(NamedTuple):
    """How lines are divided into fields, and which fields are wanted."""

    delimiter: str
    uses_quotes: bool
    na_value: str
    select_cols: tuple[int, ...] | None


@final
class CsvLines:
    """A parser of CSV lines into one array for each column.

    Args:
        defaults: The `record_defaults` of `decode_csv`.
        form: How lines become fields.
    """

    def __init__(self, defaults: Sequence[Any], form: CsvFormat) -> None:
        self.num_columns = len(defaults)
        self._columns = [_default(value) for value in defaults]
        self._form = form

    def parse(self, elements: Sequence[Any]) -> list[np.ndarray]:
        """The columns of lines, which are texts or byte strings.

        Raises:
            ValueError: A line has another number of fields, or one that is not of its dtype.
        """
        lines = [e if isinstance(e, str) else one_text("records", e) for e in elements]
        rows = self._rows(lines)
        if self._form.select_cols is not None:
            rows = [_selected(row, self._form.select_cols) for row in rows]
        for row in rows:
            if len(row) != self.num_columns:
                raise ValueError(
                    f"decode_csv: the line has {len(row)} fields and there are "
                    f"{self.num_columns} record_defaults: {self._form.delimiter.join(row)!r}"
                )
        columns = zip(*rows, strict=True) if rows else [()] * self.num_columns
        has_odd_digits = _has_odd_digits("".join(lines))
        return [
            self._column(i, fields, *default, has_odd_digits)
            for i, (fields, default) in enumerate(zip(columns, self._columns, strict=True))
        ]

    def _rows(self, lines: list[str]) -> list[list[str]]:
        reader = csv.reader
        delimiter = self._form.delimiter
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self._form.uses_quotes else csv.QUOTE_NONE
        if len(lines) > 1:
            try:
                rows = list(reader(lines, delimiter=delimiter, quoting=quoting))
            except csv.Error:
                rows = []
            if len(rows) == len(lines):
                return rows
        # An open quote must not go on in the next record, and makes one row of two lines.
        return [next(reader([line], delimiter=delimiter, quoting=quoting)) for line in lines]

    def _column(
        self,
        index: int,
        fields: Sequence[str],
        dtype: np.dtype,
        default: str | None,
        has_odd_digits: bool,
    ) -> np.ndarray:
        """The values of one column, in the dtype of its default."""
        na_value = self._form.na_value
        if "" in fields or na_value in fields:
            if default is None:
                raise ValueError(
                    "decode_csv: a field without default is empty; give record_defaults one"
                )
            fields = [default if field in ("", na_value) else field for field in fields]
        number = _NUMBERS.get(dtype.kind)
        if number is None:
            found = np.array(fields, str)
            return found if dtype.kind == "U" else found.astype(dtype)
        if has_odd_digits and any(map(_has_odd_digits, fields)):
            raise _not_a_number(index, fields, dtype)
        try:
            return np.array(list(map(number, fields)), dtype)
        except (ValueError, OverflowError):
            raise _not_a_number(index, fields, dtype) from None


def _default(default: Any) -> tuple[np.dtype, str | None]:
    """The dtype of a column, and the text that stands for an empty field."""
    is_dtype = isinstance(default, np.dtype | type)
    values = np.zeros(0, default) if is_dtype else plain(default).reshape(-1)
    if values.dtype.kind in "USO":
        values = texts("record_defaults", values)
        return np.dtype(str), str(values[0]) if values.size else None
    return values.dtype, str(values[0]) if values.size else None


def _has_odd_digits(text: str) -> bool:
    """Whether it holds what Python reads in a number, and TensorFlow refuses there."""
    return "_" in text or not text.isascii()


def _not_a_number(index: int, fields: Sequence[str], dtype: np.dtype) -> ValueError:
    """The error that names the first field that is not of its column's dtype."""
    record, field = next((i, f) for i, f in enumerate(fields) if not _is_number(f, dtype))
    return ValueError(
        f"decode_csv: field {index} of record {record} must be {dtype.name}, got {field!r}"
    )


def _is_number(field: str, dtype: np.dtype) -> bool:
    try:
        np.array(_NUMBERS[dtype.kind](field), dtype)
    except (ValueError, OverflowError):
        return False
    return not _has_odd_digits(field)


def _selected(row: Sequence[str], positions: Sequence[int]) -> list[str]:
    """The fields at these positions.

    Raises:
        ValueError: The positions do not ascend, or there is no such field.
    """
    if list(positions) != sorted({*positions}) or (positions and positions[0] < 0):
        raise ValueError(f"select_cols must be positions in ascending order, got {positions}")
    if positions and positions[-1] >= len(row):
        raise ValueError(f"select_cols asks for field {positions[-1]} of {len(row)}: {row}")
    return [row[i] for i in positions]
