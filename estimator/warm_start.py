"""Warm start: a new model begins with what another one has learned."""

from __future__ import annotations

import difflib
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from ..autodiff import Array
from ..checkpoint import CheckpointReader, TensorBundle
from ..strategies import Initializer, Variable, to_host
from ..training import Session, SessionRunHook

_logger = logging.getLogger("paceline")


@final
@dataclass(frozen=True)
class VocabInfo:
    """How the rows of a variable are found again when its vocabulary has changed.

    A vocabulary is a UTF-8 text file with a word a line; the line says the row. Rows of words that
    the old vocabulary does not know, and of the out-of-vocabulary buckets, which come last, keep
    their initial values.

    Args:
        new_vocab: Path of the new model's vocabulary.
        new_vocab_size: How many of its words are used.
        num_oov_buckets: The number of rows after them.
        old_vocab: Path of the vocabulary of the checkpoint.
        old_vocab_size: How many of its words were used; -1: all.
        backup_initializer: Gives the rows of unknown words instead of the variable's own one:
            `f(shape, dtype, rng)`, as in `paceline.nn.initializers`.
        axis: 0 where words are rows, as in an embedding; 1 where they are columns, as in an output
            layer.

    Raises:
        ValueError: A number out of range.
    """

    new_vocab: str | os.PathLike[str]
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str | os.PathLike[str]
    old_vocab_size: int = -1
    backup_initializer: Initializer | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        rules = {
            "new_vocab_size": (self.new_vocab_size >= 1, "at least 1"),
            "num_oov_buckets": (self.num_oov_buckets >= 0, "at least 0"),
            "old_vocab_size": (
                self.old_vocab_size == -1 or self.old_vocab_size >= 1,
                "at least 1, or -1 for all",
            ),
            "axis": (self.axis in (0, 1), "0 or 1"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise ValueError(f"{name} must be {rule}; got {getattr(self, name)}")


@final
@dataclass(frozen=True)
class WarmStartSettings:
    """Which variables begin with the values of another model's checkpoint.

    Only a model that has no checkpoint of its own begins so. Its global step begins at 0 in any
    case.

    Args:
        ckpt_to_initialize_from: A checkpoint, or a directory of which the newest is taken; also one
            of TensorFlow's, by its prefix or its directory.
        vars_to_warm_start: A regular expression that trainable variables are chosen by (it is to
            match the beginning of the name); or a list of expressions or variables, which chooses
            among all variables that are saved; or None for the trainable ones that
            `var_name_to_vocab_info` names.
        var_name_to_vocab_info: How rows move, for variables whose vocabulary has changed.
        var_name_to_prev_var_name: What variables are called in the checkpoint, where not the same.

    Raises:
        ValueError: An expression that is none.
    """

    ckpt_to_initialize_from: str | os.PathLike[str]
    vars_to_warm_start: str | Sequence[str | Variable] | None = ".*"
    var_name_to_vocab_info: Mapping[str, VocabInfo] = field(default_factory=dict)
    var_name_to_prev_var_name: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = os.fsdecode(self.ckpt_to_initialize_from)  # TensorFlow's paths may be bytes
        object.__setattr__(self, "ckpt_to_initialize_from", path)
        # TensorFlow's None means the same as an empty one.
        for name in ("var_name_to_vocab_info", "var_name_to_prev_var_name"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))
        for pattern in self._patterns():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"vars_to_warm_start {pattern!r} is no regular expression: {error}"
                ) from error

    def chooses(self, name: str, trainable: bool) -> bool:
        """Whether a variable is warm-started."""
        if name == "global_step":
            return False
        chosen = self.vars_to_warm_start
        if chosen is None:
            return trainable and name in self.var_name_to_vocab_info
        is_eligible = trainable or not isinstance(chosen, str)
        return is_eligible and any(re.match(pattern, name) for pattern in self._patterns())

    def _patterns(self) -> list[str]:
        chosen = self.vars_to_warm_start
        if chosen is None:
            return []
        listed = [chosen] if isinstance(chosen, str) else chosen
        return [one if isinstance(one, str) else f"{re.escape(one.name)}$" for one in listed]


def settings_of(warm_start_from: object) -> WarmStartSettings | None:
    """What `Estimator(warm_start_from=...)` was given, as settings.

    Raises:
        TypeError: It is neither settings nor a path.
    """
    if warm_start_from is None or isinstance(warm_start_from, WarmStartSettings):
        return warm_start_from
    if not isinstance(warm_start_from, str | bytes | os.PathLike):
        raise TypeError(
            f"warm_start_from must be a path or WarmStartSettings, it is {warm_start_from!r}"
        )
    return WarmStartSettings(os.fsdecode(warm_start_from))


@final
class WarmStart(SessionRunHook):
    """Gives the variables of one model their first values.

    As a hook of the run that creates them it refuses settings for variables that do not exist.

    Args:
        settings: Which, and how.
        reader: The checkpoint that they come from.
        seed: Seeds what backup initializers draw; None: different each time.
        lease: Keeps the checkpoint from being deleted; closed when all variables exist.
    """

    def __init__(
        self,
        settings: WarmStartSettings,
        reader: CheckpointReader | TensorBundle,
        seed: int | None,
        lease: ExitStack,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._seed = seed
        self._lease = lease
        self._used: set[str] = set()

    def restore(self, name: str, value: Array, trainable: bool) -> Array | None:
        """What a variable begins with instead of `value`; None leaves it.

        Raises:
            ValueError: It is to be warm-started, and the checkpoint has nothing that fits.
        """
        settings = self._settings
        if not settings.chooses(name, trainable):
            return None
        self._used.add(name)
        old_name = settings.var_name_to_prev_var_name.get(name, name)
        old = self._read(name, old_name)
        info = settings.var_name_to_vocab_info.get(name)
        if old.dtype != value.dtype:
            raise ValueError(
                f"variable {name!r} is made with dtype {value.dtype}, and {old_name!r} in "
                f"{self._reader.path} has {old.dtype}; make them equal, or leave it out of "
                f"vars_to_warm_start"
            )
        if info is not None:
            return self._remapped(name, old, value, info)
        if old.shape != value.shape:
            raise ValueError(
                f"variable {name!r} is made with shape {value.shape}, and {old_name!r} in "
                f"{self._reader.path} has {old.shape}; leave it out of vars_to_warm_start, or say "
                f"in var_name_to_vocab_info how its vocabulary has changed"
            )
        return old

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        """All variables exist.

        Raises:
            ValueError: The settings have a name that nothing was done with.
        """
        self._lease.close()
        for option in ("var_name_to_vocab_info", "var_name_to_prev_var_name"):
            unused = sorted(set(getattr(self._settings, option)) - self._used)
            if unused:
                raise ValueError(
                    f"{option} names {', '.join(map(repr, unused))}, which was not warm-started: "
                    f"the model has no such variable, or vars_to_warm_start="
                    f"{self._settings.vars_to_warm_start!r} leaves it out; warm-started were "
                    f"{', '.join(sorted(self._used)) or 'none'}"
                )
        if not self._used:
            raise ValueError(
                f"vars_to_warm_start={self._settings.vars_to_warm_start!r} chooses none of the "
                f"model's variables; leave warm_start_from out, or correct the expression"
            )
        _logger.info("Warm start from %s: %s.", self._reader.path, ", ".join(sorted(self._used)))

    def _read(self, name: str, old_name: str) -> np.ndarray:
        names = self._reader.names
        if old_name not in names:
            near = difflib.get_close_matches(old_name, names, n=3) or names[:3]
            raise ValueError(
                f"variable {name!r} is to be warm-started, and {self._reader.path} has no "
                f"{old_name!r} (but {', '.join(map(repr, near))}, among {len(names)}); leave it "
                f"out of vars_to_warm_start, or name the old one in var_name_to_prev_var_name"
            )
        return self._reader.read(old_name)

    def _remapped(self, name: str, old: np.ndarray, value: Array, info: VocabInfo) -> np.ndarray:
        new_words = read_vocabulary(info.new_vocab, info.new_vocab_size)
        old_words = read_vocabulary(info.old_vocab, info.old_vocab_size)
        _check_shapes(name, old.shape, value.shape, info, len(old_words))
        rng = np.random.default_rng(
            None if self._seed is None else [self._seed, zlib.crc32(name.encode())]
        )
        first = value
        if info.backup_initializer is not None:
            first = info.backup_initializer(value.shape, value.dtype, rng)
        result = np.array(to_host(first), value.dtype)
        new_rows, old_rows = rows_in_common(new_words, old_words)
        target, source = np.moveaxis(result, info.axis, 0), np.moveaxis(old, info.axis, 0)
        target[new_rows] = source[old_rows]
        _logger.info("%r keeps %d of %d words.", name, len(new_rows), len(new_words))
        return result


def rows_in_common(
    new_words: Sequence[str], old_words: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """(rows in the new, rows in the old vocabulary) of the words that are in both."""
    old_rows = {word: row for row, word in enumerate(old_words)}
    pairs = [(row, old_rows[word]) for row, word in enumerate(new_words) if word in old_rows]
    rows = np.array(pairs, np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def read_vocabulary(path: str | os.PathLike[str], size: int) -> list[str]:
    """The first `size` lines of a vocabulary file; -1: all.

    Raises:
        ValueError: There are fewer, or a word comes twice, or the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            words = [line.rstrip("\r\n") for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the vocabulary {os.fspath(path)!r}: {error}") from error
    if size > len(words):
        raise ValueError(
            f"vocabulary {os.fspath(path)!r} has {len(words)} words, and {size} are to be used"
        )
    words = words if size == -1 else words[:size]
    if len(set(words)) < len(words):
        twice = Counter(words).most_common(1)[0][0]
        raise ValueError(f"vocabulary {os.fspath(path)!r} has the word {twice!r} twice")
    return words


def _check_shapes(
    name: str, old: tuple[int, ...], new: tuple[int, ...], info: VocabInfo, num_old: int
) -> None:
    """Refuse shapes that do not fit the vocabularies.

    Raises:
        ValueError: They do not.
    """
    axis, expected = info.axis, info.new_vocab_size + info.num_oov_buckets
    if len(new) <= axis or new[axis] != expected:
        raise ValueError(
            f"variable {name!r} has shape {new}, and along axis {axis} its VocabInfo wants "
            f"new_vocab_size + num_oov_buckets = {expected}"
        )
    others = [shape[:axis] + shape[axis + 1 :] for shape in (old, new)]
    if len(old) != len(new) or others[0] != others[1]:
        raise ValueError(
            f"variable {name!r} has shape {new} and had {old}; along other axes than {axis}, that "
            f"of the vocabulary, they must agree"
        )
    if old[axis] < num_old:
        raise ValueError(
            f"variable {name!r} had {old[axis]} rows, and {num_old} words of the old vocabulary "
            f"are to be used; give old_vocab_size as it was"
        )
