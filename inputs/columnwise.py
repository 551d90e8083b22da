"""Functions that only parse and rearrange, recognized so that batches are parsed at once.

A typical function for `map` decodes a line and puts its fields into a dict. Called for each line it
costs more than the training step. So a function that called a parser for its first element is
called once more, with a placeholder: for a `Record` a parser returns a `Field` for each column, and
where the function puts them, untouched, is where the columns belong. Whatever else is done with a
placeholder raises an error, and then the function goes on being called for each element. As in
tf.data, which traces every function, one that is known in this way is not called again: a counter
or a print statement in it runs for the first batch and the placeholder only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, NoReturn, final

import numpy as np

from . import nest

_calls = count()
"""Numbers the calls of parsers in all threads, so that functions without one are left alone."""

Parser = Callable[[Sequence[Any]], Sequence[np.ndarray]]
"""Makes of several elements an array for each column, with a row for each element."""


@final
class _TouchedError(Exception):
    """A function has done something with a placeholder that only works with a value."""


@final
class _Trial:
    """One call of a function with placeholders.

    Attributes:
        parsers: Those that the function called, with the number of columns of each.
        is_pure: Whether no placeholder was touched.
        is_over: Whether the call has ended, after which placeholders are ordinary objects.
    """

    def __init__(self) -> None:
        self.parsers: list[tuple[Parser, int]] = []
        self.is_pure = True
        self.is_over = False


class _Placeholder:
    """A value that is not there yet; every use of it by the function under trial is an error."""

    __slots__ = ("_index", "_trial")

    def __init__(self, trial: _Trial, index: int) -> None:
        object.__setattr__(self, "_trial", trial)
        object.__setattr__(self, "_index", index)

    def __getattribute__(self, name: str) -> Any:
        # Also `__class__`, which isinstance reads where the type itself does not answer.
        if not object.__getattribute__(self, "_trial").is_over:
            _touched(self)
        return object.__getattribute__(self, name)


def _touched(placeholder: Any, *_: Any, **__: Any) -> NoReturn:
    object.__getattribute__(placeholder, "_trial").is_pure = False
    raise _TouchedError


_OPERATORS = (
    "abs add and divmod eq floordiv ge gt invert le lshift lt matmul mod mul ne neg or pos pow "
    "radd rand rdivmod rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv "
    "rxor sub truediv xor iadd iand ifloordiv ilshift imatmul imod imul ior ipow irshift isub "
    "itruediv ixor array array_ufunc array_function bool bytes ceil complex contains delitem enter "
    "exit float floor format fspath getitem hash index int iter len next reduce reduce_ex repr "
    "reversed round setattr setitem str trunc"
)
for _name in _OPERATORS.split():
    # Python looks operators up in the class, past `__getattribute__`.
    setattr(_Placeholder, f"__{_name}__", _touched)


@final
class Record(_Placeholder):
    """The placeholder of an element, which a parser takes in its place."""

    __slots__ = ()


@final
class Field(_Placeholder):
    """The placeholder of one column of what a parser gives."""

    __slots__ = ()


def note_call() -> None:
    """Every parser that knows placeholders calls this where it is given values."""
    next(_calls)


def parsed(record: Record, parser: Parser, num_columns: int) -> list[Any]:
    """What a parser returns for a placeholder: one of each of its columns.

    It must not depend on the elements how many columns there are.
    """
    trial = object.__getattribute__(record, "_trial")
    start = sum(number for _, number in trial.parsers)
    trial.parsers.append((parser, num_columns))
    return [Field(trial, start + index) for index in range(num_columns)]


@final
class _Arrangement(NamedTuple):
    """What a known function does: its parsers, and the column at each leaf of what it returns."""

    parsers: list[tuple[Parser, int]]
    result: Any

    def batch(self, elements: Sequence[Any]) -> Any:
        """What the function returns for the elements, stacked."""
        columns: list[Any] = []
        for parser, num_columns in self.parsers:
            found = parser(elements)
            if len(found) != num_columns:
                raise ValueError(f"a parser gave {len(found)} columns instead of {num_columns}")
            columns += found
        given: set[int] = set()

        def column(index: int) -> Any:
            # No two components share memory, as those of stacked elements do not.
            array = columns[index].copy() if index in given else columns[index]
            given.add(index)
            return array

        return nest.map_structure(column, self.result)


@final
class Columnwise:
    """A function of elements, and how batches of them are made at once if that is known.

    Args:
        function: Gets one element, which is no tuple, and returns what an element is made of.

    Attributes:
        is_new: Whether nothing is known, because no element was seen.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.is_new = True
        self._function = function
        self._arrangement: _Arrangement | None = None

    def learn_from(
        self, elements: Sequence[Any], compute: Callable[[Sequence[Any]], list[Any]]
    ) -> list[Any]:
        """What `compute` makes of the first elements, from which the function becomes known."""
        before = next(_calls)
        results = compute(elements)
        has_called_parser = next(_calls) - before > 1
        self.is_new = False
        if has_called_parser and _is_text_or_bytes(elements[0]):
            arrangement = _arrangement_of(self._function)
            if arrangement is not None and _is_first_row(arrangement, elements[0], results[0]):
                self._arrangement = arrangement
        return results

    @property
    def is_known(self) -> bool:
        """Whether `batch` may succeed."""
        return self._arrangement is not None

    def batch(self, elements: Sequence[Any]) -> Any:
        """What the function makes of the elements, stacked; None if that must be seen one by one.

        An error is such a case: the function may expect it, and it belongs to an element.
        """
        if self._arrangement is None or not elements:
            return None
        try:
            return self._arrangement.batch(elements)
        except Exception:
            return None


def _is_text_or_bytes(element: Any) -> bool:
    if type(element) is np.ndarray:
        return element.ndim == 1 and element.dtype == np.uint8
    return isinstance(element, str)


def _arrangement_of(function: Callable[[Any], Any]) -> _Arrangement | None:
    trial = _Trial()
    try:
        result = function(Record(trial, 0))
    except Exception:
        return None
    finally:
        trial.is_over = True
    leaves = nest.flatten(result)
    if not trial.is_pure or not leaves or any(type(leaf) is not Field for leaf in leaves):
        return None
    if _holds_list(result):
        return None
    return _Arrangement(trial.parsers, nest.map_structure(_index_of, result))


def _index_of(field: Any) -> Any:
    return object.__getattribute__(field, "_index")


def _holds_list(structure: Any) -> bool:
    """Whether there is a list in it, which in an element is a value and no structure."""
    steps = nest.steps_into(structure)
    return isinstance(structure, list) or any(_holds_list(child) for _, child in steps or ())


def _is_first_row(arrangement: _Arrangement, element: Any, result: Any) -> bool:
    """Whether the element becomes the same in both ways, to the bit."""
    try:
        batch = arrangement.batch([element])
        pairs = nest.map_structure(_is_only_row, batch, result)
    except Exception:
        return False
    return type(batch) is type(result) and all(nest.flatten(pairs))


def _is_only_row(rows: np.ndarray, value: Any) -> bool:
    same = rows.dtype == value.dtype and rows.shape == (1, *value.shape)
    return same and rows.tobytes() == value.tobytes()
