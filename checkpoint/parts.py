"""`Checkpoint`: what a training loop of one's own saves and restores, part by part."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol, SupportsIndex, final

import numpy as np

from .access import lease
from .counted_names import names_here, renamed, without_counts
from .directory import latest_checkpoint, lease_latest
from .errors import CheckpointError
from .reading import CheckpointReader, is_checkpoint, load
from .writing import save

_logger = logging.getLogger("paceline")

Find = Callable[[str], "np.ndarray | None"]


class SavedVariable(Protocol):
    """One value with a name: a `paceline.Variable`, for example."""

    @property
    def name(self) -> str: ...

    def numpy(self) -> np.ndarray:
        """A copy of the value in host memory."""

    def assign(self, value: Any) -> object:
        """Sets the value, on every replica."""


class SharedVariable(Protocol):
    """A variable that other processes may change, too."""

    def settle(self) -> None:
        """Has it as this process's last step has left it, or raises a RuntimeError."""


class AssignedTogether(Protocol):
    """A variable that can be set together with others, as is quicker where they lie on a GPU."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @staticmethod
    def assign_together(values: Iterable[tuple[Any, Any]]) -> None:
        """Sets each of these variables to the value beside it."""


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

    A variable is saved as "<part>/<its name>". Where names count up within a process, as dense and
    dense_1 do, the numbers need not be the same when it is restored: their order within the part
    says what belongs together. What was saved under one strategy is restored under any other.
    Restoring brings back what exists, and what models and optimizers create later begins with its
    saved value, too. With a strategy, restore inside its scope.

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
        for name, part in parts.items():
            _check_kind(name, part)
        self._states: dict[str, HasState] = {
            name: part for name, part in parts.items() if not _has_values(part)
        }
        self._values = {
            name: _Values(name, part) for name, part in parts.items() if _has_values(part)
        }
        # What has both says {} of itself where there is nothing to say.
        self._states_beside: dict[str, HasState] = {
            name: parts[name] for name in self._values if _can(parts[name], HasState)
        }

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

    def _pending(self) -> dict[str, np.ndarray]:
        return {
            f"{name}/{key}": value
            for name, part in self._values.items()
            for key, value in part.late.items()
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """All values, by the names under which they are saved. Arrays are not copied.

        On several workers each has to call it, since some values are those of all together.

        Raises:
            RuntimeError: other trainers at parameter servers change them meanwhile.
        """
        self._settle()
        values = {
            f"{name}/{key}": value.numpy()
            for name, part in self._values.items()
            for key, value in part.by_name().items()
        }
        # What was restored and is still to be created is not lost by the next save.
        return {**self._pending(), **values}

    def _settle(self) -> None:
        """Has all values as they are behind the last step: before any is read, or set."""
        values: list[Any] = [v for part in self._values.values() for v in part.by_name().values()]
        for value in values:
            if _can(value, SharedVariable):
                value.settle()

    def state(self) -> dict[str, Any]:
        """The states of the parts that have some, by part."""
        beside = {name: owner.get_state() for name, owner in self._states_beside.items()}
        own = {name: owner.get_state() for name, owner in self._states.items()}
        return own | {name: state for name, state in beside.items() if state}

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
            RuntimeError: other trainers at parameter servers have variables of the parts, and would
                lose what they have learned.
        """
        self._settle()
        path = os.fspath(path)
        with lease(path) if is_checkpoint(path) else lease_latest(path) as found:
            if found is None:
                raise CheckpointError(f"there is no checkpoint in '{path}'")
            reader = load(found)
            saved = {name: _read_part(reader, name) for name in self._values}
        values = self._in_names_of_here(saved)
        for name, part in self._values.items():
            part.check(reader.path, values[name])
        self._set_states(reader.path, reader.state)
        for name, part in self._values.items():
            part.restore(values[name])
        return reader

    def _in_names_of_here(
        self, saved: Mapping[str, Mapping[str, np.ndarray]]
    ) -> dict[str, dict[str, np.ndarray]]:
        """The values of each part by the names that they have here."""
        counting = {name: part for name, part in self._values.items() if part.has_counted_names}
        there = {name: saved[name].keys() for name in counting}
        components = names_here(there, {name: part.by_name() for name, part in counting.items()})
        found = {name: dict(values) for name, values in saved.items()}
        for name in counting:
            found[name] = {renamed(key, components): one for key, one in saved[name].items()}
            if len(found[name]) < len(saved[name]):  # names would fall together
                found[name] = dict(saved[name])
        return {name: self._values[name].as_only_value(values) for name, values in found.items()}

    def _set_states(self, path: str, states: Mapping[str, Any]) -> None:
        """Gives each owner its state, which it alone can check, by taking it; all or none."""
        with ExitStack() as undo:
            for name, owner in [*self._states.items(), *self._states_beside.items()]:
                state = states.get(name, {} if name in self._states_beside else None)
                if state is None:
                    raise _refusal(path, name, "it was saved without this part")
                undo.callback(owner.set_state, owner.get_state())
                try:
                    owner.set_state(state)
                except (KeyError, TypeError, ValueError) as error:
                    raise _refusal(path, name, str(error)) from error
            undo.pop_all()


def _read_part(reader: CheckpointReader, name: str) -> dict[str, np.ndarray]:
    """The values of one part, by their names in it."""
    chosen = [key for key in reader.names if key.startswith(f"{name}/")]
    values = reader.arrays(chosen)
    return {key.removeprefix(f"{name}/"): value for key, value in values.items()}


def _refusal(path: str, name: str, problem: str) -> CheckpointError:
    return CheckpointError(f"cannot restore {name!r} from checkpoint '{path}': {problem}")


@final
class _Values:
    """The named values of one part, and what was restored for those still to be created."""

    def __init__(self, name: str, owner: Any) -> None:
        self._name = name
        self._owner = owner
        self.late: dict[str, np.ndarray] = {}

    @property
    def has_counted_names(self) -> bool:
        """Whether names are given by a process, and not by the caller."""
        return not isinstance(self._owner, Mapping)

    def as_only_value(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Of a single variable its value, whatever its name was."""
        if _can(self._owner, SavedVariable) and len(values) == 1:
            return {self._owner.name: next(iter(values.values()))}
        return values

    def by_name(self) -> dict[str, SavedVariable]:
        """The values that there are now."""
        if isinstance(self._owner, Mapping):
            pairs = self._owner.items()
            return {key: _Array(one) if _is_array(one) else one for key, one in pairs}
        listed = [self._owner] if _can(self._owner, SavedVariable) else self._owner.variables
        by_name: dict[str, SavedVariable] = {}
        for variable in listed:
            if by_name.setdefault(variable.name, variable) is not variable:
                raise ValueError(f"two variables are called {variable.name!r}: rename one of them")
        return by_name

    def check(self, path: str, values: Mapping[str, np.ndarray]) -> None:
        """Raises a CheckpointError if these cannot be restored."""
        there = {
            name: one if _can(one, AssignedTogether) else one.numpy()
            for name, one in self.by_name().items()
        }
        problem = _misfit(there, values)
        left = sorted(set(values) - set(there))
        if left and not problem and not _can(self._owner, CreatesVariables):
            problem = f"nothing here takes its {', '.join(map(repr, left))}"
        if problem:
            raise _refusal(path, self._name, problem)

    def restore(self, values: dict[str, np.ndarray]) -> None:
        """Takes the values; those of variables that are not created yet are kept for them."""
        pairs = [(variable, values.pop(name)) for name, variable in self.by_name().items()]
        together: list[Any] = [pair for pair in pairs if _can(pair[0], AssignedTogether)]
        if together:
            together[0][0].assign_together(together)
        for variable, value in pairs:
            if not _can(variable, AssignedTogether):
                variable.assign(value)
        late = self.late
        late.clear()
        late.update(values)
        if late:
            self._owner.restore_later(self._take)

    def _take(self, name: str) -> np.ndarray | None:
        """What a variable that is created now begins with, if it was restored."""
        found = self.late.pop(name, None)
        if found is None:
            base = without_counts(name)
            alike = next((one for one in self.late if without_counts(one) == base), None)
            if alike is not None:
                _logger.warning(
                    "Variable %r begins anew, while the checkpoint that was restored has %r: where "
                    "they are the same, create the variables of %s before restoring it.",
                    name,
                    alike,
                    self._name,
                )
        return found


@final
class _Array:
    """A NumPy array of the caller's, as a variable."""

    name = ""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def numpy(self) -> np.ndarray:
        return self._array

    def assign(self, value: Any) -> None:
        self._array[...] = value


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _has_values(part: object) -> bool:
    return isinstance(part, Mapping) or _can(part, SavedVariable) or _can(part, HasVariables)


def _check_kind(name: str, part: Any) -> None:
    if isinstance(part, Mapping):
        ones = part.values()
        is_known = all(map(_is_array, ones)) or all(_can(one, SavedVariable) for one in ones)
    else:
        is_known = _has_values(part) or _can(part, HasState)
    if not is_known:
        raise TypeError(
            f"{name} must have variables, be a variable, a mapping of names to variables or to "
            f"NumPy arrays, or have get_state and set_state; it is {type(part).__name__}"
        )


def _can(value: object, protocol: type) -> bool:
    """Whether a part can do what is asked. Looks, but runs nothing: to list a layer's variables may
    create them."""
    nothing = object()
    names = [name for name in vars(protocol) if not name.startswith("_")]
    return all(inspect.getattr_static(value, name, nothing) is not nothing for name in names)


def _misfit(there: Mapping[str, Any], values: Mapping[str, np.ndarray]) -> str:
    """What is missing of these values, or has another shape or dtype; empty if nothing."""
    for name, array in there.items():
        if name not in values:
            listed = ", ".join(sorted(values)) or "nothing of this part"
            return (
                f"variable {name!r} is not in it; it has {listed}. (Names count up within a "
                f"process: dense, dense_1; make as many parts as there were, in the same order)"
            )
        found = values[name]
        if (found.shape, found.dtype) != (array.shape, array.dtype):
            return (
                f"variable {name!r} has {found.dtype} of shape {found.shape} in it, and here "
                f"{array.dtype} of shape {array.shape}"
            )
    return ""
