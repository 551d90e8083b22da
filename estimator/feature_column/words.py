"""The words and whole numbers that categorical columns read: (batch, width), padded.

Words are compared and hashed as bytes of UTF-8. "" and -1 stand for "no category", as where
TensorFlow makes sparse tensors of dense ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Features, feature, on_host

INTEGER = np.dtype(np.int64)
TEXT = np.dtype(np.bytes_)
_WANTED = {"i": "whole numbers", "S": "text (str or bytes)"}


def word_dtype(column: str, dtype: Any) -> np.dtype:
    """What words are of that a column takes: `TEXT` or `INTEGER`.

    Raises:
        ValueError: The dtype is neither one of text nor of integers.
    """
    if str(dtype) == "string":  # TensorFlow's tf.string, and a name for it
        return TEXT
    kind = np.dtype(dtype).kind
    if kind not in "SUTiu":
        raise ValueError(
            f"dtype of column {column!r} must be str or an integer type, it is {np.dtype(dtype)}"
        )
    return INTEGER if kind in "iu" else TEXT


def read_words(
    features: Features, key: str, column: str, dtype: np.dtype | None = None
) -> np.ndarray:
    """(batch, width) the words of a batch.

    Args:
        features: A batch of them, by key.
        key: Under which they are: (batch,) or (batch, width).
        column: Its name, for messages.
        dtype: `INTEGER`, or of bytes of any length, such as `TEXT`; None for either.

    Returns:
        Bytes of UTF-8 (dtype "S"), or int64.

    Raises:
        ValueError: The feature is missing, or of another dtype or shape.
    """
    given = rows_of(features, key, column)
    words = as_words(given)
    if words is None or (dtype is not None and words.dtype.kind != dtype.kind):
        wanted = "text or whole numbers" if dtype is None else _WANTED[dtype.kind]
        raise ValueError(
            f"feature column {column!r} takes {wanted}, feature {key!r} has dtype "
            f"{given.dtype}{_of_objects(given)}; convert it in input_fn, or give the column its "
            f"dtype"
        )
    return words


def rows_of(features: Features, key: str, column: str) -> np.ndarray:
    """(batch, width) the values of a feature as they are, on the host.

    Raises:
        ValueError: The feature is missing, or of another shape.
    """
    given = on_host(feature(features, key, column))
    if given.ndim not in (1, 2):
        raise ValueError(
            f"feature column {column!r} takes feature {key!r} of shape (batch,) or (batch, width), "
            f"padded with -1 or '' where an example has fewer categories; it has {given.shape}"
        )
    return given if given.ndim == 2 else given[:, None]


def as_words(values: np.ndarray) -> np.ndarray | None:
    """Words as bytes of UTF-8, or whole numbers as int64; None for anything else."""
    if values.dtype.kind == "T":
        values = values.astype(object)
    if values.dtype.kind == "O":
        kinds = {type(value) for value in values.reshape(-1).tolist()}
        if kinds <= {str, np.str_}:
            values = values.astype(str)
        elif kinds <= {bytes, np.bytes_}:
            values = values.astype(bytes)
        elif kinds <= {str, bytes, np.str_, np.bytes_}:
            encoded = [_encoded(value) for value in values.reshape(-1).tolist()]
            values = np.array(encoded, bytes).reshape(values.shape)
        elif all(issubclass(kind, (int, np.integer)) for kind in kinds):
            values = values.astype(np.int64)
    if values.dtype.kind in "biu":
        return values.astype(np.int64, copy=False)
    if values.dtype.kind == "S":
        return values
    return _utf8(values) if values.dtype.kind == "U" else None


def are_there(words: np.ndarray) -> np.ndarray:
    """Which of the words are some, and no padding."""
    there: np.ndarray = words != (b"" if words.dtype.kind == "S" else -1)
    return there


def as_text(words: np.ndarray) -> np.ndarray:
    """Words as bytes, whole numbers written in decimal: as they are hashed."""
    return words if words.dtype.kind == "S" else words.astype(bytes)


def shown(word: Any) -> str:
    """A word as messages show it."""
    return repr(word.decode(errors="replace") if isinstance(word, bytes) else int(word))


def _utf8(values: np.ndarray) -> np.ndarray:
    try:
        return values.astype(bytes)  # the fast way, for ASCII only
    except UnicodeEncodeError:
        return np.strings.encode(values, "utf-8")


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _of_objects(values: np.ndarray) -> str:
    if values.dtype.kind != "O":
        return ""
    return f" (of {', '.join(sorted({type(v).__name__ for v in values.reshape(-1).tolist()}))})"
