"""Labels of a batch: checked, looked up in a vocabulary, and in the shape of the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from ....autodiff import Array, Tensor
from ....nn.arguments import count
from ....nn.metrics import to_host
from ....nn.shapes import as_tensor, check_range, whole_numbers


def label_array(labels: Any, logits: Tensor, dimension: int) -> Array:
    """The labels of a batch in the shape (..., dimension), `logits` being (..., any).

    Where dimension is 1 they may be without the last axis.

    Raises:
        TypeError: They are a dict.
        ValueError: There are none, or their shape does not fit.
    """
    if labels is None:
        raise ValueError(
            "the head needs labels to train and to evaluate, and there are none; "
            "let input_fn give pairs (features, labels)"
        )
    if isinstance(labels, dict):
        raise TypeError(
            f"labels must be an array, they are a dict with {', '.join(map(repr, labels))}; "
            f"choose one of them, or use a MultiHead, which takes a dict by the heads' names"
        )
    array = as_tensor(labels).data
    wanted = (*logits.shape[:-1], dimension)
    if array.shape == wanted or (dimension == 1 and array.shape == wanted[:-1]):
        return array.reshape(wanted)
    raise ValueError(
        f"labels have shape {array.shape}, and logits of shape {logits.shape} call for {wanted}"
        + (f" or {wanted[:-1]}" if dimension == 1 else "")
    )


def numbers(labels: Array, logits: Tensor) -> Array:
    """Labels in the dtype of `logits`.

    Raises:
        ValueError: They are no numbers.
    """
    if labels.dtype.kind not in "fiub":
        raise ValueError(f"labels must be numbers, they are {_described(labels)}")
    return labels.astype(logits.dtype)


def shares(labels: Array, logits: Tensor) -> Array:
    """Labels that are 0 or 1, or a share of class 1 in between, in the dtype of `logits`.

    Raises:
        ValueError: They are no numbers in [0, 1].
    """
    if labels.dtype.kind not in "fiub":
        raise ValueError(
            f"labels must be numbers in [0, 1], they are {_described(labels)}; for words pass "
            f"label_vocabulary"
        )
    if not ((labels >= 0) & (labels <= 1)).all():
        raise ValueError(
            f"labels must be in [0, 1]: 0, 1, or a share of class 1 in between; they reach from "
            f"{labels.min()} to {labels.max()}"
        )
    return labels.astype(logits.dtype)


@final
class Classes:
    """The classes of a problem, by number and by word.

    Args:
        num: How many there are, at least 2.
        vocabulary: A word for each, in order of their numbers, where labels are words.

    Attributes:
        num: As given.
        vocabulary: The words as str; None where labels are numbers.

    Raises:
        ValueError: There are not as many words as classes, or one is there twice.
        TypeError: One is neither str nor bytes.
    """

    def __init__(self, num: int, vocabulary: Sequence[str | bytes] | None = None) -> None:
        self.num = count("n_classes", num)
        if self.num < 2:
            raise ValueError(f"n_classes must be at least 2, it is {num}")
        self.vocabulary = None if vocabulary is None else _words(vocabulary, self.num)
        words = map(str, range(self.num)) if self.vocabulary is None else self.vocabulary
        self._words = np.array(list(words))
        self._numbers = {word: number for number, word in enumerate(self.vocabulary or ())}

    def made_of(self) -> Any:
        """What its answers depend on."""
        return self.num, self.vocabulary

    def ids(self, labels: Array, logits: Tensor) -> Array:
        """The class numbers of labels, int64 of the same shape, where `logits` are.

        Raises:
            ValueError: A label is out of range, no whole number, or a word that is not known.
        """
        if self.vocabulary is not None:
            return np.asarray(self._looked_up(labels), like=logits.data)
        whole = None
        if labels.dtype.kind in "fiub":
            whole = whole_numbers(labels.astype(np.int8) if labels.dtype.kind == "b" else labels)
        if whole is None:
            raise ValueError(
                f"labels must be class numbers in [0, {self.num}), they are {_described(labels)}; "
                f"for words pass label_vocabulary"
            )
        check_range("labels", whole, self.num)
        return whole

    def _looked_up(self, labels: Array) -> np.ndarray:
        if labels.dtype.kind not in "USO":
            raise ValueError(
                f"labels must be words of label_vocabulary, they are {_described(labels)}; "
                f"for class numbers leave label_vocabulary out"
            )
        words = [as_text(word) for word in to_host(labels).ravel().tolist()]
        unknown = sorted({repr(word) for word in words if word not in self._numbers})
        if unknown:
            known = ", ".join(map(repr, list(self._numbers)[:20]))
            raise ValueError(
                f"{len(unknown)} label(s) are not in label_vocabulary: {', '.join(unknown[:5])}; "
                f"it has {len(self._numbers)} words: {known}{'' if self.num <= 20 else ', …'}"
            )
        ids = [self._numbers[word] for word in words]
        return np.array(ids, np.int64).reshape(labels.shape)

    def number(self, name: str, value: int | str | bytes) -> int:
        """The number of a class that an argument called `name` names by number or by word.

        Raises:
            ValueError: There is no such class.
        """
        if isinstance(value, (str, bytes)):
            found = self._numbers.get(as_text(value), -1)
        else:
            found = int(value)
        if not 0 <= found < self.num:
            words = "" if self.vocabulary is None else " or a word of label_vocabulary"
            raise ValueError(f"{name} must be in [0, {self.num}){words}, one is {value!r}")
        return found

    def name(self, number: int) -> str:
        """How metrics call a class: by its word, or as "class7"."""
        return f"class{number}" if self.vocabulary is None else self.vocabulary[number]

    def words(self, ids: Any) -> np.ndarray:
        """The words of class numbers, or the numbers as text where there are no words."""
        return np.asarray(self._words[to_host(ids)])

    def all_of_each(self, logits: Tensor) -> dict[str, np.ndarray]:
        """The predictions "all_class_ids" and "all_classes": (..., num), the same in each row."""
        shape = (*logits.shape[:-1], self.num)
        return {
            "all_class_ids": np.broadcast_to(np.arange(self.num), shape),
            "all_classes": np.broadcast_to(self._words, shape),
        }


def as_text(word: Any) -> Any:
    """Bytes as the text that they encode; anything else is itself."""
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else word


def _words(vocabulary: Sequence[str | bytes], num: int) -> tuple[str, ...]:
    words = tuple(as_text(word) for word in vocabulary)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(
                f"label_vocabulary must be a list of words, it has {word!r}; for labels that are "
                f"numbers from 0 leave it out"
            )
    if len(words) != num or len(set(words)) != num:
        raise ValueError(
            f"label_vocabulary must have a word for each of {num} classes (n_classes), it has "
            f"{len(words)}, of which {len(set(words))} differ"
        )
    return words


def _described(labels: Array) -> str:
    first = f", the first of them {labels.ravel()[0]!r}" if labels.size else ""
    return f"{labels.dtype} of shape {labels.shape}{first}"
