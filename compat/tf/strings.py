"""`tf.strings`: text in arrays, for functions that a dataset maps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...autodiff import Tensor
from ..names import NameTable, serve
from .advice import advice
from .conversion import convert

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))


def _text(value: Any) -> np.ndarray:
    """An array of text."""
    array = np.asarray(value)
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(str)


def split(input: Any, sep: str | None = None, maxsplit: int = -1, name: Any = None) -> Tensor:
    """The parts of one text.

    Raises:
        ValueError: There are several texts, whose parts would make no array.
    """
    text = _text(input)
    if text.ndim:
        raise ValueError("tf.strings.split takes one text here; split in Dataset.map, before batch")
    return Tensor(np.array(str(text).split(sep, maxsplit)))


def join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """Texts one behind another, element by element."""
    first, *rest = [_text(part) for part in inputs]
    for part in rest:
        first = np.char.add(np.char.add(first, separator), part)
    return Tensor(np.asarray(first))


def to_number(input: Any, out_type: Any = np.float32, name: str | None = None) -> Tensor:
    """Texts as numbers."""
    return Tensor(np.asarray(_text(input).astype(out_type)))


def as_string(input: Any, *unused: Any, **hints: Any) -> Tensor:
    """Numbers as texts."""
    return Tensor(_text(convert(input)))


def length(input: Any, *unused: Any, **hints: Any) -> Tensor:
    """The numbers of characters."""
    return Tensor(np.asarray(np.char.str_len(_text(input)), np.int32))


def lower(input: Any, *unused: Any, **hints: Any) -> Tensor:
    """In lower case."""
    return Tensor(np.asarray(np.char.lower(_text(input))))


def upper(input: Any, *unused: Any, **hints: Any) -> Tensor:
    """In upper case."""
    return Tensor(np.asarray(np.char.upper(_text(input))))


def strip(input: Any, name: str | None = None) -> Tensor:
    """Without white space at both ends."""
    return Tensor(np.asarray(np.char.strip(_text(input))))


def substr(input: Any, pos: int, len: int, *unused: Any, **hints: Any) -> Tensor:
    """Some characters of each text."""
    return Tensor(np.vectorize(lambda text: text[pos : pos + len])(_text(input)))


def regex_replace(
    input: Any, pattern: str, rewrite: str, replace_global: bool = True, name: Any = None
) -> Tensor:
    """Texts in which what matches is replaced."""
    count = 0 if replace_global else 1
    replaced = np.vectorize(lambda text: re.sub(pattern, rewrite, text, count=count))
    return Tensor(replaced(_text(input)))


def regex_full_match(input: Any, pattern: str, name: str | None = None) -> Tensor:
    """Whether texts match as a whole."""
    return Tensor(np.vectorize(lambda text: bool(re.fullmatch(pattern, text)))(_text(input)))
