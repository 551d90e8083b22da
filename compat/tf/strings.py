"""`tf.strings`: text in arrays, for functions that a dataset maps."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ...autodiff import Tensor
from ...estimator.feature_column.fingerprint import fingerprints
from ..names import NameTable, serve
from .advice import advice
from .conversion import plain
from .text import each, one_text, texts

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))


def split(
    input: Any, sep: str | None = None, maxsplit: int = -1, name: str | None = None
) -> Tensor:
    """The parts of one text.

    Raises:
        ValueError: There are several texts, whose parts would make no array.
    """
    return Tensor(np.array(one_text("input", input).split(sep or None, maxsplit), str))


def join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """Texts one behind another, element by element."""
    return each(lambda *parts: separator.join(parts), *[texts("inputs", part) for part in inputs])


def to_number(input: Any, out_type: Any = np.float32, name: str | None = None) -> Tensor:
    """Texts as numbers."""
    return Tensor(np.asarray(texts("input", input).astype(out_type)))


def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Tensor:
    """For each text the number of a bucket: FarmHash's Fingerprint64 modulo `num_buckets`."""
    words = texts("input", input)
    encoded = np.char.encode(words, "utf-8") if words.size else words.astype("S1")
    buckets = fingerprints(encoded) % np.uint64(num_buckets)
    return Tensor(np.asarray(buckets, np.int64).reshape(words.shape))


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Tensor:
    """Numbers as texts: floats with six digits behind the point, truth values in lower case.

    Args:
        input: Numbers, truth values or text.
        precision: The number of digits behind the point; -1 stands for six.
        scientific: Whether floats have an exponent, as in 1.500000e+00.
        shortest: Whether floats have an exponent only where it is shorter, and no zeros at the end.
        width: The least number of characters.
        fill: What stands in front of shorter ones: "0", " ", "-" (behind them) or nothing.
    """
    values = plain(input)
    if values.dtype.kind in "USO":
        return Tensor(texts("input", values))
    if values.dtype.kind == "b":
        return each(lambda value: str(value).lower(), values)
    if scientific and shortest:
        raise ValueError("as_string: only one of scientific and shortest may be True")
    digits = "" if precision < 0 or values.dtype.kind in "iu" else f".{precision}"
    letter = "e" if scientific else "g" if shortest else "f"
    letter = "d" if values.dtype.kind in "iu" else letter
    form = f"%{fill}{'' if width < 0 else width}{digits}{letter}"
    return each(lambda value: form % value, values)


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Tensor:
    """The numbers of bytes in UTF-8, or with `unit="UTF8_CHAR"` those of characters."""
    count = _of_unit(unit, lambda text: len(text.encode()), len)
    return each(count, texts("input", input), dtype=np.int32)


def lower(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """In lower case: letters of ASCII, with `encoding="utf-8"` all."""
    return each(_of_encoding(encoding, str.lower), texts("input", input))


def upper(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """In upper case: letters of ASCII, with `encoding="utf-8"` all."""
    return each(_of_encoding(encoding, str.upper), texts("input", input))


def strip(input: Any, name: str | None = None) -> Tensor:
    """Without white space at both ends."""
    return each(str.strip, texts("input", input))


def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Tensor:
    """Some characters of each text.

    Args:
        input: Texts.
        pos: Where each begins; a negative number counts from the end.
        len: How many to take, if there are so many.
        unit: What is counted: "BYTE" of UTF-8, or "UTF8_CHAR".

    Raises:
        ValueError: A text is shorter than `pos`, or bytes of a character would be torn apart.
    """

    def part(text: Any, start: int, number: int) -> Any:
        size = builtins.len(text)
        if not -size <= start <= size:
            raise ValueError(f"substr: pos must be from {-size} to {size} of {text!r}, got {start}")
        first = start + size if start < 0 else start
        return text[first : first + number]

    def of_bytes(text: str, start: int, number: int) -> str:
        try:
            return str(part(text.encode(), start, number), "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"substr: bytes {start} to {start + number} of {text!r} are not whole characters; "
                f"pass unit='UTF8_CHAR'"
            ) from error

    take = _of_unit(unit, of_bytes, part)
    return each(take, texts("input", input), np.asarray(pos), np.asarray(len))


def regex_replace(
    input: Any, pattern: str, rewrite: str, replace_global: bool = True, name: str | None = None
) -> Tensor:
    """Texts in which what matches is replaced; \\0 stands for it, \\1 for its first group."""
    count, by = 0 if replace_global else 1, rewrite.replace("\\0", "\\g<0>")
    return each(lambda text: re.sub(pattern, by, text, count=count), texts("input", input))


def regex_full_match(input: Any, pattern: str, name: str | None = None) -> Tensor:
    """Whether texts match as a whole."""
    fits = re.compile(pattern).fullmatch
    return each(lambda text: fits(text) is not None, texts("input", input), dtype=bool)


def _of_unit(unit: str, of_bytes: Callable[..., Any], of_characters: Callable[..., Any]) -> Any:
    units = {"BYTE": of_bytes, "UTF8_CHAR": of_characters}
    if unit not in units:
        raise ValueError(f"unit must be 'BYTE' or 'UTF8_CHAR', got {unit!r}")
    return units[unit]


def _of_encoding(encoding: str, function: Callable[[str], str]) -> Callable[[str], str]:
    if encoding.lower() not in ("", "utf-8"):
        raise ValueError(f"encoding must be '' (ASCII) or 'utf-8', got {encoding!r}")
    if encoding:
        return function
    return lambda text: "".join(function(c) if c.isascii() else c for c in text)
