"""Columns whose categories are combinations of those of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from ...inputs import VarLenFeature
from ...nn.arguments import count
from .base import UNKNOWN, CategoricalColumn, Categories, Features, ParseSpec
from .categorical import HashColumn, WeightedColumn
from .fingerprint import cat_fingerprints, fingerprints
from .words import are_there, read_words, rows_of

_HASH_KEY = 0xDECAFCAFFE
"""What TensorFlow begins with."""


@final
@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """See `crossed_column`."""

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int

    @property
    def name(self) -> str:
        leaves = (leaf if isinstance(leaf, str) else leaf.name for leaf in self._leaves())
        return "_X_".join(sorted(leaves))

    @property
    def parse_example_spec(self) -> ParseSpec:
        spec: ParseSpec = {}
        for leaf in self._leaves():
            if isinstance(leaf, str):
                spec[leaf] = VarLenFeature(str)
            else:
                spec |= leaf.parse_example_spec
        return spec

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def categories(self, features: Features) -> Categories:
        # Columns before features: TensorFlow's operation hashes sparse inputs, which columns give,
        # before dense ones, whatever the order of the keys.
        leaves = sorted(self._leaves(), key=lambda leaf: isinstance(leaf, str))
        parts = [self._numbers(leaf, features) for leaf in leaves]
        batch = len(parts[0][0])
        found = np.full((batch, 1), self.hash_key, np.uint64)
        is_there = np.ones((batch, 1), bool)
        for numbers, there in parts:
            # All combinations of the example's categories so far with those of this leaf.
            found = cat_fingerprints(found[:, :, None], numbers[:, None, :])
            found = found.reshape(batch, -1)
            is_there = (is_there[:, :, None] & there[:, None, :]).reshape(found.shape)
        return Categories(np.where(is_there, (found % self.hash_bucket_size).astype(np.int64), -1))

    def _leaves(self) -> Iterator[str | CategoricalColumn]:
        """What is crossed, with what a crossed column among the keys crosses."""
        for key in self.keys:
            if isinstance(key, CrossedColumn):
                yield from key._leaves()
            else:
                yield key

    def _numbers(
        self, leaf: str | CategoricalColumn, features: Features
    ) -> tuple[np.ndarray, np.ndarray]:
        """(batch, width) 64 bits for each category, and which of them are some."""
        if not isinstance(leaf, str):
            ids = leaf.categories(features).ids
            # To TensorFlow an unknown word is the category -1.
            return np.maximum(ids, -1).view(np.uint64), (ids >= 0) | (ids == UNKNOWN)
        given = rows_of(features, leaf, self.name)
        if given.dtype.kind == "f":
            # All of them count: -1 pads whole numbers only, and -1.5 would become one.
            return _truncated(given).view(np.uint64), np.ones(given.shape, bool)
        words = read_words(features, leaf, self.name)
        is_text = words.dtype.kind == "S"
        return fingerprints(words) if is_text else words.view(np.uint64), are_there(words)


def crossed_column(
    keys: Sequence[str | CategoricalColumn],
    hash_bucket_size: int,
    hash_key: int | None = None,
) -> CrossedColumn:
    """A column whose categories are the combinations of others': the hash says which one.

    An example with several categories in some of the columns has all their combinations, and one
    without a category in some of them has none.

    The hash is TensorFlow's: beginning with `hash_key`, FingerprintCat64 of what came before with
    the Fingerprint64 of a word, or with a whole number, or with a column's category.

    Args:
        keys: Two or more: names of features of text or numbers, or categorical columns. (Not one
            with hash buckets: cross its feature by name, which has fewer collisions.) Floats lose
            their fraction, as in TensorFlow: to keep ranges apart cross a `bucketized_column`.
            Columns are hashed before features that are named, whatever the order of the keys, as
            TensorFlow does with dense features. It keeps the order of the keys for features that
            are parsed as `VarLenFeature`: list columns first, and there is one order only.
        hash_bucket_size: The number of categories.
        hash_key: What the hash begins with; None and 0 stand for TensorFlow's.

    Raises:
        ValueError: There is one key only, or the size is not positive.
        TypeError: A key is neither a name nor a categorical column that can be crossed.
    """
    given = tuple(keys) if not isinstance(keys, str) else (keys,)
    if len(given) < 2:
        raise ValueError(f"keys must be two or more to be crossed, they are {keys!r}")
    for key in given:
        if isinstance(key, HashColumn):
            raise TypeError(
                f"keys holds {key!r}: a combination would be hashed twice; name its feature "
                f"{key.key!r} instead"
            )
        if isinstance(key, WeightedColumn):
            raise TypeError(f"keys holds {key!r}: the weights of a combination are not defined")
        if not key or not isinstance(key, str | CategoricalColumn):
            raise TypeError(f"keys takes names of features and categorical columns, not {key!r}")
    size = count("hash_bucket_size of a crossed column", hash_bucket_size)
    return CrossedColumn(given, size, hash_key or _HASH_KEY)


def _truncated(values: np.ndarray) -> np.ndarray:
    """Floats without their fraction, as int64; what has no such number is the smallest one."""
    # NumPy leaves open what becomes of such a float, and processors differ.
    wide = values.astype(np.float64)
    return np.where(np.abs(wide) < 2.0**63, wide, -(2.0**63)).astype(np.int64)
