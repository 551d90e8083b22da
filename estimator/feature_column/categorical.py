"""Columns whose values are one or several of a number of categories."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from ...inputs import VarLenFeature
from ...nn.arguments import count
from ..warm_start import read_vocabulary
from .base import (
    UNKNOWN,
    CategoricalColumn,
    Categories,
    Features,
    ParseSpec,
    check_key,
    feature,
    on_host,
)
from .fingerprint import fingerprints
from .words import INTEGER, TEXT, are_there, as_text, as_words, read_words, shown, word_dtype


@final
@dataclass(frozen=True)
class IdentityColumn(CategoricalColumn):
    """See `categorical_column_with_identity`."""

    key: str
    number_buckets: int
    default_value: int | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def num_buckets(self) -> int:
        return self.number_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: VarLenFeature(np.int64)}

    def categories(self, features: Features) -> Categories:
        ids = read_words(features, self.key, self.name, INTEGER)
        is_outside = are_there(ids) & ((ids < 0) | (ids >= self.num_buckets))
        if not is_outside.any():
            return Categories(ids)
        if self.default_value is None:
            raise ValueError(
                f"feature column {self.name!r} takes numbers in [0, {self.num_buckets}), feature "
                f"{self.key!r} has {ids[is_outside][0]}; give a larger num_buckets, or a "
                f"default_value to count such as"
            )
        return Categories(np.where(is_outside, self.default_value, ids))


@final
@dataclass(frozen=True)
class HashColumn(CategoricalColumn):
    """See `categorical_column_with_hash_bucket`."""

    key: str
    hash_bucket_size: int
    dtype: np.dtype

    @property
    def name(self) -> str:
        return self.key

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: VarLenFeature(_parsed(self.dtype))}

    def categories(self, features: Features) -> Categories:
        words = read_words(features, self.key, self.name, self.dtype)
        return Categories(np.where(are_there(words), _bucket(words, self.num_buckets), -1))


@final
@dataclass(frozen=True)
class VocabularyColumn(CategoricalColumn):
    """See `categorical_column_with_vocabulary_list` and `categorical_column_with_vocabulary_file`.

    Args:
        vocabulary: Its words, or whole numbers; the place of each is its category.
    """

    key: str
    vocabulary: tuple[bytes, ...] | tuple[int, ...]
    default_value: int | None
    num_oov_buckets: int

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: VarLenFeature(_parsed(self._dtype))}

    @property
    def num_buckets(self) -> int:
        return len(self.vocabulary) + self.num_oov_buckets

    def categories(self, features: Features) -> Categories:
        words = read_words(features, self.key, self.name, self._dtype)
        ids = self._places(words)
        is_unknown = (ids < 0) & are_there(words)
        if is_unknown.any():
            ids[is_unknown] = self._of_unknown(words[is_unknown])
        return Categories(ids)

    @property
    def _dtype(self) -> np.dtype:
        return self._sorted[0].dtype

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """The words in order, and where in the vocabulary each of them stands."""
        words = np.array(self.vocabulary, INTEGER if isinstance(self.vocabulary[0], int) else TEXT)
        order = np.argsort(words)
        return words[order], order

    def _places(self, words: np.ndarray) -> np.ndarray:
        """Where in the vocabulary each word stands; -1 for nowhere."""
        known, order = self._sorted
        # In the vocabulary's own width, or else all of it were copied to the words' for each batch.
        same_width = words.astype(known.dtype, copy=False)
        near = np.minimum(np.searchsorted(known, same_width), len(known) - 1)
        return np.where(known[near] == words, order[near], -1)

    def _of_unknown(self, words: np.ndarray) -> Any:
        if self.num_oov_buckets:
            return len(self.vocabulary) + _bucket(words, self.num_oov_buckets)
        if self.default_value is None:
            raise ValueError(
                f"feature column {self.name!r}: feature {self.key!r} has {shown(words[0])}, which "
                f"is none of the {len(self.vocabulary)} words of its vocabulary; give "
                f"num_oov_buckets for such, or a default_value: the category that they count as, "
                f"or -1 to leave them out without notice (TensorFlow's default)"
            )
        return UNKNOWN if self.default_value == -1 else self.default_value


@final
@dataclass(frozen=True)
class WeightedColumn(CategoricalColumn):
    """See `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: np.dtype

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def parse_example_spec(self) -> ParseSpec:
        own: ParseSpec = {self.weight_feature_key: VarLenFeature(self.dtype)}
        return self.categorical_column.parse_example_spec | own

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def categories(self, features: Features) -> Categories:
        ids, inner = self.categorical_column.categories(features)
        weights = on_host(feature(features, self.weight_feature_key, self.name))
        if weights.dtype.kind not in "biuf":
            raise ValueError(
                f"feature column {self.name!r} takes numbers as weights, feature "
                f"{self.weight_feature_key!r} has dtype {weights.dtype}"
            )
        if weights.size != ids.size or len(weights) != len(ids):
            raise ValueError(
                f"feature column {self.name!r} takes one weight for each category; feature "
                f"{self.weight_feature_key!r} has shape {weights.shape}, and there are categories "
                f"of shape {ids.shape}"
            )
        weights = weights.astype(np.float32).reshape(ids.shape)
        return Categories(ids, weights if inner is None else weights * inner)


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityColumn:
    """A column whose values are the numbers of their categories.

    Args:
        key: The feature's name. It has shape (batch,), or (batch, width) padded with -1 where an
            example has fewer categories than another.
        num_buckets: Values are in [0, num_buckets).
        default_value: The category of values outside; None makes them an error.

    Raises:
        ValueError: num_buckets is not positive, or default_value no category.
    """
    buckets = count(f"num_buckets of column {key!r}", num_buckets)
    if default_value is not None and not 0 <= default_value < buckets:
        raise ValueError(
            f"default_value of column {key!r} must be in [0, {buckets}) or None, it is "
            f"{default_value}"
        )
    return IdentityColumn(check_key(key), buckets, default_value)


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = str
) -> HashColumn:
    """A column of words without a vocabulary: the hash of a word says its category.

    The hash is FarmHash's Fingerprint64 of the word's UTF-8, or of a whole number in decimal,
    modulo the number of buckets: the same on all platforms, in all processes, and in TensorFlow.

    Args:
        key: The feature's name: (batch,), or (batch, width) padded with "" or -1.
        hash_bucket_size: The number of categories. Different words may fall into one.
        dtype: `str`, or an integer type.

    Raises:
        ValueError: The size is not positive, or the dtype neither text nor of integers.
    """
    buckets = count(f"hash_bucket_size of column {key!r}", hash_bucket_size)
    return HashColumn(check_key(key), buckets, word_dtype(key, dtype))


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[str] | Sequence[bytes] | Sequence[int],
    dtype: Any = None,
    default_value: int | None = None,
    num_oov_buckets: int = 0,
) -> VocabularyColumn:
    """A column whose values are words of a list; the place in it is the category.

    Args:
        key: The feature's name: (batch,), or (batch, width) padded with "" or -1.
        vocabulary_list: Words, or whole numbers.
        dtype: `str` or an integer type; by default that of the list.
        default_value: The category of words that are not in the list; -1 leaves them out (a cross
            combines them all the same), which is TensorFlow's default; None makes them an error.
        num_oov_buckets: Instead, the number of further categories, into which such words fall by
            their hash (see `categorical_column_with_hash_bucket`).

    Raises:
        ValueError: The list is empty, mixed or has a word twice, or the other arguments exclude
            each other.
    """
    words = as_words(np.asarray(vocabulary_list, None if len(vocabulary_list) else str))
    if words is None or words.ndim != 1 or not len(words):
        raise ValueError(
            f"vocabulary_list of column {key!r} must be a list of words, or of whole numbers; it "
            f"is {vocabulary_list!r}"
        )
    if dtype is not None and word_dtype(key, dtype).kind != words.dtype.kind:
        raise ValueError(
            f"vocabulary_list of column {key!r} holds {words.dtype}, its dtype is to be {dtype}"
        )
    return _with_vocabulary(key, words, default_value, num_oov_buckets)


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = str,
    file_format: str | None = None,
) -> VocabularyColumn:
    """A column whose values are words of a file; the number of the line is the category.

    Args:
        key: The feature's name: (batch,), or (batch, width) padded with "" or -1.
        vocabulary_file: The path of a UTF-8 text file, with a word a line; it is read now.
        vocabulary_size: How many of its lines to use; None: all.
        num_oov_buckets, default_value: See `categorical_column_with_vocabulary_list`.
        dtype: `str`, or an integer type, as which the lines are then read.
        file_format: None or "text"; another one of TensorFlow's is not read.

    Raises:
        ValueError: The file cannot be read, is too short or has a word twice, or the other
            arguments exclude each other.
    """
    if file_format not in (None, "text"):
        raise ValueError(
            f"file_format must be None or 'text', got {file_format!r}: a vocabulary is a text file "
            f"with a word a line; write its words into one"
        )
    size = -1 if vocabulary_size is None else count("vocabulary_size", vocabulary_size)
    lines = read_vocabulary(vocabulary_file, size)
    if not lines:
        raise ValueError(f"vocabulary_file {os.fspath(vocabulary_file)!r} of {key!r} is empty")
    words = as_words(np.array(lines))
    assert words is not None, "lines are text"
    if word_dtype(key, dtype) == INTEGER:
        words = _numbers(key, vocabulary_file, words)
    return _with_vocabulary(key, words, default_value, num_oov_buckets)


def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: Any = np.float32
) -> WeightedColumn:
    """A categorical column whose categories count as much as another feature says.

    Args:
        categorical_column: The categories.
        weight_feature_key: The name of the feature with their weights: one for each of them, in the
            shape of theirs.
        dtype: That of the weights, a float or integer type.

    Raises:
        TypeError: It is no categorical column.
        ValueError: The dtype is not numeric.
    """
    check_categorical("weighted_categorical_column", categorical_column)
    if np.dtype(dtype).kind not in "iuf":
        raise ValueError(f"dtype of weights must be a float or integer type, it is {dtype}")
    weights = check_key(weight_feature_key, "weight_feature_key")
    return WeightedColumn(categorical_column, weights, np.dtype(dtype))


def check_categorical(what: str, column: Any) -> CategoricalColumn:
    """The column.

    Raises:
        TypeError: It is no categorical one.
    """
    if not isinstance(column, CategoricalColumn):
        raise TypeError(
            f"{what} takes a categorical column, such as categorical_column_with_identity makes; "
            f"it was given {column!r}"
        )
    return column


def _with_vocabulary(
    key: str, words: np.ndarray, default_value: int | None, num_oov_buckets: int
) -> VocabularyColumn:
    vocabulary = tuple(words.tolist())
    if len(set(vocabulary)) < len(vocabulary):
        twice = next(word for word in vocabulary if vocabulary.count(word) > 1)
        raise ValueError(f"the vocabulary of column {key!r} has {shown(twice)} twice")
    if not are_there(words).all():
        raise ValueError(
            f"the vocabulary of column {key!r} has {shown(words[~are_there(words)][0])}, which "
            f"stands for no category; leave it out"
        )
    # TensorFlow's default of default_value is -1, which scripts may give beside buckets.
    if num_oov_buckets < 0 or (num_oov_buckets and default_value not in (None, -1)):
        raise ValueError(
            f"column {key!r} has num_oov_buckets={num_oov_buckets} and default_value="
            f"{default_value}; give at most one of them, a number ≥ 0"
        )
    if default_value is not None and not -1 <= default_value < len(vocabulary):
        raise ValueError(
            f"default_value of column {key!r} must be in [-1, {len(vocabulary)}), it is "
            f"{default_value}"
        )
    return VocabularyColumn(check_key(key), vocabulary, default_value, num_oov_buckets)


def _numbers(key: str, path: Any, words: np.ndarray) -> np.ndarray:
    try:
        return words.astype(np.int64)
    except ValueError as error:
        raise ValueError(
            f"the vocabulary {os.fspath(path)!r} of column {key!r} must hold whole numbers: {error}"
        ) from error


def _bucket(words: np.ndarray, num_buckets: int) -> np.ndarray:
    return (fingerprints(as_text(words)) % num_buckets).astype(np.int64)


def _parsed(dtype: np.dtype) -> Any:
    return np.int64 if dtype.kind == "i" else str
