"""`Checkpoint`: what a training loop of one's own saves and restores, part by part."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol, SupportsIndex, cast, final

import numpy as np

from ._directory import latest_checkpoint, lease_latest
from ._errors import CheckpointError
from ._lease import lease
from ._read import CheckpointReader, is_checkpoint, load
from ._save import save

Find = Callable[[str], "np.ndarray | None"]


class SavedVariable(Protocol):
    """One value with a name: a `paceline.Variable`, for example."""

    @property
    def name(self) -> str: ...

    def numpy(self) -> np.ndarray:
        """A copy of the value in host memory."""

    def assign(self, value: Any) -> object:
        """Sets the value, on every replica."""


class HasVariables(Protocol):
    """A layer, a model, an optimizer or a metric."""

    @property
    def variables(self) -> Iterable[SavedVariable]: ...


class CreatesVariables(Protocol):
    """Something that may create further variables later, such as the slots of an optimizer."""

    def restore_later(self, find: Find) -> None:
        """Asks `find(name)` what variables that are created from now on begin with."""


class HasState(Protocol):
    """Something whose state is small JSON: the iterator of a `Dataset`."""

    def get_state(self) -> dict[str, Any]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...


@final
class Checkpoint:
    """Saves and restores the parts of a training loop of one's own.

        checkpoint = Checkpoint(model=model, optimizer=optimizer, batches=batches)
        if path := checkpoint.latest(model_dir):
            start = checkpoint.restore(path).step
        ...
            checkpoint.save(model_dir, step)

    A variable is saved as "<part>/<its name>". What was saved under one strategy is restored under
    any other. Restoring brings back what exists, and what models and optimizers create later begins
    with its saved value, too. With a strategy, restore inside its scope.

    To save behind the back of the loop, hand `arrays()` and `state()` to a `Saver`.

    Args:
        parts: By any names: something with `variables` (layers, models, optimizers, metrics), a
            single variable, a mapping of names to variables or to NumPy arrays (which are
            restored in place), or something with `get_state` and `set_state` (the iterator of a
            dataset).

    Raises:
        TypeError: a part is none of these.
    """

    def __init__(self, **parts: Any) -> None:
        self._parts = {name: _part_of(name, value) for name, value in parts.items()}
        self._late = {name: _Late() for name in parts}

    @staticmethod
    def latest(model_dir: str | os.PathLike[str]) -> str | None:
        """The path of the checkpoint to resume from; None if there is none.

        Raises:
            CheckpointError: there are some, and none of them is whole.
        """
        return latest_checkpoint(model_dir)

    @property
    def pending(self) -> tuple[str, ...]:
        """What was in the restored checkpoint and has not been created yet."""
        return tuple(self._pending())

    def arrays(self) -> dict[str, np.ndarray]:
        """All values, by the names under which they are saved. Arrays are not copied.

        On several workers each has to call it, since some values are those of all together.
        """
        values = {
            f"{name}/{key}": value
            for name, part in self._parts.items()
            for key, value in part.arrays().items()
        }
        # What was restored and is still to be created is not lost by the next save.
        return {**self._pending(), **values}

    def state(self) -> dict[str, Any]:
        """The states of the parts that have some, by part."""
        states = {name: part.state() for name, part in self._parts.items()}
        return {name: state for name, state in states.items() if state is not None}

    def save(
        self,
        model_dir: str | os.PathLike[str],
        step: SupportsIndex,
        *,
        keep_max: int | None = 5,
        write: bool = True,
    ) -> str | None:
        """Saves all parts as `model.ckpt-<step>`; see `paceline.checkpoint.save`.

        Args:
            model_dir, step, keep_max: as there.
            write: on several workers all call this, and one of them writes.

        Returns:
            The path of the checkpoint, where it was written.
        """
        arrays, state = self.arrays(), self.state()
        if not write:
            return None
        return save(model_dir, step, arrays, state=state, keep_max=keep_max)

    def restore(self, path: str | os.PathLike[str]) -> CheckpointReader:
        """Gives all parts the values of a checkpoint, or of the newest in a directory.

        Nothing is changed unless everything fits.

        Returns:
            The checkpoint, whose `step` is the one to go on from.

        Raises:
            CheckpointError: there is none, it is damaged, it has other variables than the parts, or
                an iterator refuses its state.
        """
        path = os.fspath(path)
        with lease(path) if is_checkpoint(path) else lease_latest(path) as found:
            if found is None:
                raise CheckpointError(f"there is no checkpoint in '{path}'")
            reader = load(found)
            values = reader.arrays(
                [name for name in reader.names if name.partition("/")[0] in self._parts]
            )
        state = reader.state
        by_part = {name: _below(name, values) for name in self._parts}
        for name, part in self._parts.items():
            part.check(_Where(reader.path, name), by_part[name], state.get(name))
        with ExitStack() as undo:
            for name, part in self._parts.items():
                part.move(_Where(reader.path, name), state.get(name), undo)
            undo.pop_all()
        for name, part in self._parts.items():
            late = self._late[name]
            late.values = part.restore(by_part[name], late)
        return reader

    def _pending(self) -> dict[str, np.ndarray]:
        return {
            f"{part}/{name}": value
            for part, late in self._late.items()
            for name, value in late.values.items()
        }


class _Late:
    """The values of one part for what is still to be created; keeps nothing else alive."""

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray] = {}

    def __call__(self, name: str) -> np.ndarray | None:
        return self.values.pop(name, None)


def _below(part: str, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values of one part, by their names in it."""
    prefix = f"{part}/"
    return {n.removeprefix(prefix): value for n, value in values.items() if n.startswith(prefix)}


class _Where:
    """The checkpoint and the part of which an error speaks."""

    def __init__(self, path: str, part: str) -> None:
        self._text = f"cannot restore {part!r} from checkpoint '{path}'"

    def refuse(self, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._text}: {problem}")


class _Part(ABC):
    """One part of a `Checkpoint`."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Its values by their names in the part."""

    @abstractmethod
    def state(self) -> dict[str, Any] | None:
        """Its JSON, if it has any."""

    @abstractmethod
    def check(self, where: _Where, values: Mapping[str, np.ndarray], state: Any) -> None:
        """Raises a CheckpointError if that cannot be restored."""

    @abstractmethod
    def move(self, where: _Where, state: Any, undo: ExitStack) -> None:
        """Takes the state, which only its owner can check, by taking it; `undo` goes back.

        Raises:
            CheckpointError: The owner refuses it.
        """

    @abstractmethod
    def restore(self, values: dict[str, np.ndarray], find: Find) -> dict[str, np.ndarray]:
        """Takes the values; returns those that are for variables not created yet."""


@final
class _Variables(_Part):
    """Named variables; `owner` may create more."""

    def __init__(self, list_them: Callable[[], Iterable[SavedVariable]], owner: object) -> None:
        self._list = list_them
        self._owner = owner

    def _by_name(self) -> dict[str, SavedVariable]:
        by_name: dict[str, SavedVariable] = {}
        for variable in self._list():
            if by_name.setdefault(variable.name, variable) is not variable:
                raise ValueError(f"two variables are called {variable.name!r}: rename one of them")
        return by_name

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: variable.numpy() for name, variable in self._by_name().items()}

    def state(self) -> None:
        return None

    def check(self, where: _Where, values: Mapping[str, np.ndarray], state: Any) -> None:
        there = {name: variable.numpy() for name, variable in self._by_name().items()}
        _check_fit(where, there, values)
        if not _has(self._owner, CreatesVariables):
            _check_none_left(where, there, values)

    def move(self, where: _Where, state: Any, undo: ExitStack) -> None:
        """Variables have no state besides their values."""

    def restore(self, values: dict[str, np.ndarray], find: Find) -> dict[str, np.ndarray]:
        late = dict(values)
        for name, variable in self._by_name().items():
            variable.assign(late.pop(name))
        if late:
            cast(CreatesVariables, self._owner).restore_later(find)
        return late


@final
class _Arrays(_Part):
    """NumPy arrays by name, which belong to the caller."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = arrays

    def arrays(self) -> dict[str, np.ndarray]:
        return dict(self._arrays)

    def state(self) -> None:
        return None

    def check(self, where: _Where, values: Mapping[str, np.ndarray], state: Any) -> None:
        _check_fit(where, self._arrays, values)
        _check_none_left(where, self._arrays, values)

    def move(self, where: _Where, state: Any, undo: ExitStack) -> None:
        """Arrays have no state besides their values."""

    def restore(self, values: dict[str, np.ndarray], find: Find) -> dict[str, np.ndarray]:
        for name, array in self._arrays.items():
            array[...] = values[name]
        return {}


@final
class _State(_Part):
    """A little JSON."""

    def __init__(self, owner: HasState) -> None:
        self._owner = owner

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    def state(self) -> dict[str, Any]:
        return self._owner.get_state()

    def check(self, where: _Where, values: Mapping[str, np.ndarray], state: Any) -> None:
        if state is None:
            raise where.refuse("it was saved without this part")

    def move(self, where: _Where, state: Any, undo: ExitStack) -> None:
        undo.callback(self._owner.set_state, self._owner.get_state())
        try:
            self._owner.set_state(state)
        except (KeyError, TypeError, ValueError) as error:
            raise where.refuse(str(error)) from error

    def restore(self, values: dict[str, np.ndarray], find: Find) -> dict[str, np.ndarray]:
        return {}


def _part_of(name: str, value: Any) -> _Part:
    if isinstance(value, Mapping):
        if all(isinstance(array, np.ndarray) for array in value.values()):
            return _Arrays(value)
        if all(_has(variable, SavedVariable) for variable in value.values()):
            return _Variables(lambda: [_Renamed(key, one) for key, one in value.items()], None)
    elif _has(value, SavedVariable):
        return _Variables(lambda: [value], None)
    elif _has(value, HasVariables):
        return _Variables(lambda: value.variables, value)
    elif _has(value, HasState):
        return _State(value)
    raise TypeError(
        f"{name} must have variables, be a variable, a mapping of names to variables or to NumPy "
        f"arrays, or have get_state and set_state; it is {type(value).__name__}"
    )


def _has(value: object, protocol: type) -> bool:
    """Whether a part can do what is asked. Looks, but runs nothing: to list a layer's variables may
    create them."""
    nothing = object()
    names = [name for name in vars(protocol) if not name.startswith("_")]
    return all(inspect.getattr_static(value, name, nothing) is not nothing for name in names)


@final
class _Renamed:
    """A variable under the name that it has in a mapping."""

    def __init__(self, name: str, variable: SavedVariable) -> None:
        self.name = name
        self._variable = variable

    def numpy(self) -> np.ndarray:
        return self._variable.numpy()

    def assign(self, value: Any) -> object:
        return self._variable.assign(value)


def _check_fit(
    where: _Where, there: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]
) -> None:
    """Refuses values that are missing, or of another shape or dtype."""
    for name, array in there.items():
        if name not in values:
            listed = ", ".join(sorted(values)) or "nothing of this part"
            raise where.refuse(
                f"variable {name!r} is not in it; it has {listed}. (Names count up within a "
                f"process: dense, dense_1; make parts in the same order, in a new process)"
            )
        found = values[name]
        if (found.shape, found.dtype) != (array.shape, array.dtype):
            raise where.refuse(
                f"variable {name!r} has {found.dtype} of shape {found.shape} in it, and here "
                f"{array.dtype} of shape {array.shape}"
            )


def _check_none_left(
    where: _Where, there: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]
) -> None:
    left = sorted(set(values) - set(there))
    if left:
        raise where.refuse(f"nothing here takes its {', '.join(map(repr, left))}")
