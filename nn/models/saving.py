"""Saving models whole, or their weights; and giving saved values to a model.

What is saved is a checkpoint: the values of the variables by name, and in its state what the model
is made of. The names of variables are counted, and so they differ between processes: a model that
is loaded has variables of its own, and its first layer takes what was the first layer's.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from ...checkpoint import (
    CheckpointError,
    delete_saved,
    has_saved,
    lease,
    load,
    newest_saved,
    save_at,
)
from ...strategies import Job, Variable, current_store, get_strategy
from ..arguments import check_no_options
from ..layers import Layer
from ..optimizers import Optimizer
from ..optimizers.schedules import Constant
from ..serialization import Serializable, serialize
from .renaming import Values, all_layers, of_same_names, renamed

_FORMAT = 1
_HDF5 = (".h5", ".hdf5")

Path: TypeAlias = "str | os.PathLike[str]"


class Savable(Layer):
    """What can be saved and loaded: a model."""

    optimizer: Optimizer
    _num_restored = 0
    as_prototype = Serializable.as_prototype  # one with layers of its own is made anew

    @property
    @abstractmethod
    def is_compiled(self) -> bool:
        """Whether there are an optimizer and a loss."""

    @abstractmethod
    def get_compile_config(self) -> dict[str, Any] | None:
        """What it was compiled with, as plain values; None if it was not."""

    @abstractmethod
    def counters(self) -> list[Variable]:
        """What it counts besides its optimizer, as far as it exists."""

    @cached_property
    def _pending(self) -> Values:
        """Saved values of variables that do not exist yet, by their names here."""
        return {}

    def to_json(self) -> str:
        """What the model is made of, as JSON; its weights are not in it. See `model_from_json`.

        Raises:
            TypeError: An argument cannot be written down; it is named.
        """
        return json.dumps(serialize(self))

    def save(
        self,
        filepath: Path,
        overwrite: bool = True,
        save_format: str | None = None,
        include_optimizer: bool = True,
        options: None = None,
    ) -> None:
        """Save the model whole: layers, weights, what it was compiled with, the optimizer's state.

        All workers call it, in the scope of their strategy or not: the chief writes, and the others
        return when that is done; who names another path than the chief writes there, too. Of
        trainers at parameter servers, which are not in step, the chief writes and none waits.

        Args:
            filepath: Of a directory or URL, which appears whole or not at all.
            overwrite: Whether to replace what was saved there before.
            save_format: "tf", "keras" or None, which mean the same here.
            include_optimizer: Whether training is to go on from it.
            options: Only None is supported: those of TensorFlow name its own devices and files.

        Raises:
            CheckpointError: It could not be written; on all workers alike.
            TypeError: An argument of a layer cannot be written down; it is named.
            ValueError: `filepath`, or `save_format`, asks for an HDF5 file; or `options` is given.
        """
        _check_format(save_format)
        check_no_options(options)
        compiled = self.get_compile_config() if include_optimizer else None
        content = {"model": serialize(self), "compile": compiled}
        self._save(filepath, overwrite, content, include_optimizer and self.is_compiled)

    def save_weights(
        self,
        filepath: Path,
        overwrite: bool = True,
        save_format: str | None = None,
        options: None = None,
    ) -> None:
        """Save the weights alone; see `save` for who calls it, and for the arguments."""
        _check_format(save_format)
        check_no_options(options)
        self._save(filepath, overwrite, {}, include_optimizer=False)

    def load_weights(
        self,
        filepath: Path,
        by_name: bool = False,
        skip_mismatch: bool = False,
        options: None = None,
    ) -> None:
        """Take the weights of what `save` or `save_weights` has written, for a model alike.

        Weights that are not created yet begin with theirs. All workers call it.

        Args:
            filepath: As given there; of a directory of several the newest; or a checkpoint of a run
                whose variables have the same names.
            by_name: Whether to take weights of layers that have the same name, and leave all
                others as they are: from a model with other layers. They must exist.
            skip_mismatch: With `by_name`: whether to leave alone what has another shape.
            options: See `save`.

        Raises:
            CheckpointError: There is nothing, or it is damaged.
            ValueError: It does not fit; nothing is changed.
        """
        check_no_options(options)
        state, values = read_saved(filepath)
        if by_name:
            values = of_same_names(values, state, self)
            shared = [weight for weight in self.weights if weight.name in values]
            if skip_mismatch:
                shared = [weight for weight in shared if weight.shape == values[weight.name].shape]
            restore(self.name, shared, {weight.name: values[weight.name] for weight in shared}, ())
            return
        self.restore({**state, "optimizer": state.get("optimizer")}, values, with_optimizer=False)

    def back_up(self, path: Path, position: Mapping[str, Any]) -> None:
        """Save weights and the optimizer's state for `restore_backup`; all workers call it.

        Args:
            path: Where to.
            position: Where training stands: plain values, which `restore_backup` returns.
        """
        schedule = self.optimizer.learning_rate_schedule
        rate = schedule(0) if isinstance(schedule, Constant) else None
        states = {name: one.get_state() for name, one in self._all_optimizers().items()}
        content = {"position": dict(position), "learning_rate": rate, "states": states}
        self._save(path, True, content, include_optimizer=True)

    def restore_backup(self, path: Path) -> Mapping[str, Any] | None:
        """Take what `back_up` has saved; its position, or None where there is nothing.

        Raises:
            ValueError: It does not fit; nothing is changed.
        """
        # A key of its own for each call: what trainers at parameter servers post stays there.
        self._num_restored += 1
        found = "there" if has_saved(path) else ""
        if not _job_of(self.weights).text_from_chief(found, f"backup {path} {self._num_restored}"):
            return None
        state, values = read_saved(path)
        self.restore(state, values)
        if isinstance(state["learning_rate"], float):
            self.optimizer.learning_rate = state["learning_rate"]
        for name, one in self._all_optimizers().items():
            if assigned := state.get("states", {}).get(name):
                one.set_state(assigned)
        position: Mapping[str, Any] = state["position"]
        return position

    def delete_backup(self, path: Path) -> None:
        """Remove what `back_up` has saved, where this is the chief."""
        if _job_of(self.weights).is_chief:
            delete_saved(path)

    def restore(
        self, state: Mapping[str, Any], values: Values, with_optimizer: bool = True
    ) -> None:
        """Take what `read_saved` has found.

        Raises:
            ValueError: It does not fit; nothing is changed.
        """
        optimizer = self.optimizer if with_optimizer and self.is_compiled else None
        found = renamed(values, state, self, optimizer, self._own_optimizers())
        late = restore(self.name, self._saved_variables(optimizer), found, self._built())
        self._pending.clear()
        self._pending.update(late)
        self.expect_restored()

    def expect_restored(self) -> None:
        """Let what the model still makes begin with what was restored: also behind `set_seed`."""
        if self._pending:
            current_store().restore_later(self._take_restored)

    def _take_restored(self, name: str) -> np.ndarray | None:
        return self._pending.pop(name, None)

    def _saved_variables(self, optimizer: Optimizer | None) -> list[Variable]:
        if optimizer is None:
            return self.weights
        optimizers = [optimizer, *self._own_optimizers().values()]
        of_optimizers = [variable for one in optimizers for variable in one.existing_variables]
        # How many steps `fit` has made, where it has made any: dropout goes by it.
        return [*self.weights, *of_optimizers, *self.counters()]

    def _own_optimizers(self) -> dict[str, Optimizer]:
        """Those that are attributes besides `optimizer`, for a train_step of the model's own."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, Optimizer)}
        return {name: one for name, one in own.items() if name != "optimizer"}

    def _all_optimizers(self) -> dict[str, Optimizer]:
        return {"optimizer": self.optimizer, **self._own_optimizers()}

    def _built(self) -> set[str]:
        """The layers that have made their weights: each makes all of them, or none so far."""
        return {weight.name.rpartition("/")[0] for weight in self.weights} - {self.variables_prefix}

    def _save(
        self, path: Path, overwrite: bool, content: Mapping[str, Any], include_optimizer: bool
    ) -> None:
        path = checked_path(path)
        optimizer = self.optimizer if include_optimizer else None
        variables = self._saved_variables(optimizer)
        state = {"optimizer": None if optimizer is None else optimizer.prefix, **content}
        own = {} if optimizer is None else self._own_optimizers()
        state["own_optimizers"] = {name: one.prefix for name, one in own.items()}
        job = _job_of(variables)
        job.refresh()
        # What was restored and is still to be created is not lost.
        values = self._pending | {variable.name: variable.numpy() for variable in variables}
        layers = all_layers(self)
        state |= {
            "saved_model": _FORMAT,
            "layers": [layer.variables_prefix for layer in layers],
            "layer_names": [layer.name for layer in layers],
        }
        step = int(values.get(f"{state['optimizer']}/iterations", 0))
        write = partial(save_at, path, values, step=step, state=state, overwrite=overwrite)
        _by_the_chief(job, path, write)


def _by_the_chief(job: Job, path: str, write: Callable[[], None]) -> None:
    """Let the chief write, and others who want it elsewhere; all of them know how it ended."""
    if not job.has_chief_in_step:
        return
    problem = ""
    if job.is_chief:
        try:
            write()
        except CheckpointError as error:
            problem = str(error)
    told = job.text_from_chief(f"{path}\n{problem}", "saved model")
    path_of_chief, _, problem = told.partition("\n")
    if problem:
        raise CheckpointError(problem)
    if path != path_of_chief:
        write()


def read_saved(path: Path) -> tuple[dict[str, Any], Values]:
    """The state and the values of what was saved at `path`, or newest of all within it.

    Raises:
        CheckpointError: There is nothing, or it is damaged.
    """
    path = checked_path(path)
    if os.path.isfile(path):
        raise CheckpointError(
            f"'{path}' is a file, and paceline saves models as directories; a file of Keras's own "
            f"is not read: in Keras, write np.savez(file, *model.get_weights()), and here give the "
            f"arrays to model.set_weights"
        )
    try:
        with lease(path):
            return _content(path)
    except CheckpointError:
        newest = None if "://" in path else newest_saved(path)
        if newest is None:
            raise
        with lease(newest):
            return _content(newest)


def _content(path: str) -> tuple[dict[str, Any], Values]:
    reader = load(path)
    version = reader.state.get("saved_model", _FORMAT)
    if version != _FORMAT:
        raise CheckpointError(
            f"'{path}' was saved in format {version}, this version of paceline reads {_FORMAT}"
        )
    return reader.state, reader.arrays()


def restore(
    model: str, variables: Sequence[Variable], values: Values, built: Container[str]
) -> Values:
    """Give variables saved values.

    Nothing is changed unless all fit. With several workers all call it.

    Args:
        model: What the model is called, for errors.
        variables: Those that exist.
        values: By the names that variables have here.
        built: The names of layers all of whose variables exist.

    Returns:
        The values of variables that do not exist yet.

    Raises:
        ValueError: The values are not those of such a model.
    """
    there = {variable.name: variable for variable in variables}
    late = {name: value for name, value in values.items() if name not in there}
    problems = [_misfit(variable, values.get(name)) for name, variable in there.items()]
    problems += [f"{n!r} is not in the model" for n in late if n.rpartition("/")[0] in built]
    if any(problems):
        raise ValueError(
            f"what was saved does not fit model {model!r}: {'; '.join(filter(None, problems))}"
        )
    job = _job_of(variables)
    # Trainers at parameter servers share one value, which the chief sets.
    own = [v for v in there.values() if job.is_chief or not v.is_remote]
    Variable.assign_together([(variable, values[variable.name]) for variable in own])
    return late


def _misfit(variable: Variable, value: np.ndarray | None) -> str:
    if value is None:
        return f"{variable.name!r} is not in it"
    if value.shape != variable.shape:
        return f"{variable.name!r} has shape {variable.shape}, and {value.shape} in it"
    return ""


def checked_path(path: Path) -> str:
    """A path to save at or to load from.

    Raises:
        ValueError: It names a kind of file that others would take for what it is not.
    """
    text = os.fspath(path)
    if text.lower().endswith(_HDF5):
        raise ValueError(
            f"'{text}' is the name of an HDF5 file, and paceline saves models as directories: "
            f"leave the ending out, or call it '{text.rpartition('.')[0]}.keras'"
        )
    return text


def _check_format(save_format: str | None) -> None:
    if save_format not in (None, "tf", "keras"):
        raise ValueError(
            f"save_format must be 'tf', 'keras' or None, not {save_format!r}: models are saved as "
            f"directories of one form"
        )


def _job_of(variables: Sequence[Variable]) -> Job:
    """That of the strategy which the variables were made under."""
    strategy = variables[0].strategy if variables else get_strategy()
    job: Job = strategy.extended.job
    return job
