"""Training steps without calls of the model: the operations of two calls, called again."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias, final

import numpy as np

from .. import summary
from ..autodiff import Array, CapturedReplay, Program, Replay, ReplayError, Trace, effect
from ..inputs import nest
from ..strategies import get_replica_context
from .fetches import held
from .spec import ModeKeys, ModelCall, Spec

_logger = logging.getLogger("paceline")
_MOST_KINDS = 16

for _shown in (summary.scalar, summary.histogram, summary.image, summary.text):
    effect(_shown)

_Kind: TypeAlias = "tuple[int, Hashable]"
"""A local replica, and what its batch is but for its values."""


@final
class ReplayedModel:
    """A model that is not called in every training step, but for the first few.

    The first call in a replica is like any other: it creates the variables. The next two with
    batches of certain shapes are followed, with tensors in the place of the batch's arrays. Where
    both have called the same operations, these are called for the batches to come, and the model is
    not. Otherwise, with a warning, it goes on being called in each step.

    Batches of other shapes, dtypes or keys, such as a last one that is smaller, are of another
    kind, and followed anew.

    Args:
        model: It promises to compute the same of each batch, and to change nothing but by
            operations.
        captures: Whether a GPU does them as a CUDA graph, where it can.
        name: What messages call it.
        setting: By which it was asked for, for messages.
    """

    def __init__(
        self,
        model: ModelCall,
        captures: bool = False,
        name: str = "model_fn",
        setting: str = "RunConfig(replay_steps=True)",
    ) -> None:
        self._model, self._name, self._setting = model, name, setting
        self._captures = captures
        self._has_told = False
        self._first_dtypes: dict[int, Any] = {}
        self._programs: dict[_Kind, Program] = {}
        self._replays: dict[_Kind, Replay | CapturedReplay] = {}
        self._is_refused = False

    def forget(self) -> None:
        """Follow the model anew: what it is made of may have changed since the last step."""
        self._has_told = self._has_told or bool(self._replays)
        self._programs.clear()
        self._replays.clear()
        self._first_dtypes.clear()

    def __call__(self, batch: Any, mode: ModeKeys) -> Spec:
        replica = get_replica_context()
        if mode is not ModeKeys.TRAIN or replica is None or not replica.has_examples:
            return self._model(batch, mode)
        arrays: list[Array] = []
        index = replica.local_index
        kind = index, _taken_apart(batch, arrays)
        replay = self._replays.get(kind)
        if replay is not None:
            loss, train_op, logs, named = replay(arrays)
            return Spec(loss=loss, train_op=train_op, logs=logs, named=named)
        if self._is_refused or self._num_other_kinds(kind) >= _MOST_KINDS:
            return self._model(batch, mode)
        if index not in self._first_dtypes:
            spec = self._model(batch, mode)
            self._first_dtypes[index] = _dtype_of_loss(spec)
            return spec
        return self._followed(batch, arrays, kind)

    def _num_other_kinds(self, kind: _Kind) -> int:
        """How many other kinds of batches the same replica has had that were followed."""
        known = {*self._programs, *self._replays} - {kind}
        return sum(other[0] == kind[0] for other in known)

    def _followed(self, batch: Any, arrays: Sequence[Array], kind: _Kind) -> Spec:
        trace = Trace(arrays)
        try:
            with trace.following():
                spec = self._model(nest.repacked(batch, trace.inputs), ModeKeys.TRAIN)
        except Exception as error:
            error.add_note(
                f"{self._setting} gives {self._name} tensors in the place of arrays, from its "
                f"second call on: compute with them by NumPy's functions, or leave it out."
            )
            raise
        named = None if spec.named is None else dict(spec.named)
        trace.outputs = spec.loss, spec.train_op, dict(spec.logs), named
        try:
            _require_plain(spec)
            _require_same(_dtype_of_loss(spec), self._first_dtypes[kind[0]])
            program = Program(trace)
            if kind in self._programs:
                replay = Replay(self._programs.pop(kind), program)
                self._replays[kind] = _captured(replay) if self._captures else replay
                if not self._has_told:
                    _logger.info(
                        "%s is called no more for batches of these shapes: the %d operations "
                        "that it has called are called again in their steps.",
                        self._name,
                        len(replay.steps),
                    )
            else:
                self._programs[kind] = program
        except ReplayError as error:
            self._is_refused = True
            self._programs.clear()
            _logger.warning(
                "%s: %s goes on being called in each step, since not all that it does can be done "
                "again without it: %s.",
                self._setting,
                self._name,
                error,
            )
        return spec


def _taken_apart(batch: Any, arrays: list[Array]) -> Hashable:
    """What a batch is but for its values; its arrays are added to a list, as `nest.flatten` does.

    Keys of dicts belong to it, in their order, which is that of the arrays: another order may come.
    """
    if isinstance(batch, dict):
        return dict, tuple([(key, _taken_apart(item, arrays)) for key, item in batch.items()])
    if isinstance(batch, (tuple, list)):
        return type(batch), tuple([_taken_apart(item, arrays) for item in batch])
    array = _in_even_width(batch)
    arrays.append(array)
    return array.shape, array.dtype


def _in_even_width(array: Array) -> Array:
    """Text in a width of few, for batches whose longest words differ are of one kind."""
    dtype = array.dtype
    if dtype.kind not in "SU":
        return array
    length = dtype.itemsize // np.dtype(f"{dtype.kind}1").itemsize
    return array.astype(f"{dtype.kind}{max(8, 1 << (length - 1).bit_length())}", copy=False)


def _dtype_of_loss(spec: Spec) -> Any:
    return None if spec.loss is None else spec.loss.dtype


def _require_same(dtype: Any, first: Any) -> None:
    """Refuse what comes to something else by tensors than by arrays."""
    if dtype != first:
        raise ReplayError(
            f"its loss is {first} of arrays, and {dtype} of tensors: a number that NumPy makes of "
            f"an array takes the dtype of what it meets, and a tensor keeps its own; give all the "
            f"dtype of the model"
        )


def _captured(replay: Replay) -> Replay | CapturedReplay:
    """The same as a graph of the card that the calling replica computes on, if it can be one."""
    replica = get_replica_context()
    assert replica is not None
    capture = replica.device.capture
    if capture is None:
        return replay
    try:
        return CapturedReplay(replay, capture)
    except ReplayError as error:
        _logger.warning("The steps are no CUDA graph: %s.", error)
        return replay


def _require_plain(spec: Spec) -> None:
    """Refuse what a step is to hand on besides its loss."""
    if spec.is_made:
        raise ReplayError("it changes variables itself, before it returns")
    for place, _ in held({"training_hooks": spec.training_hooks}):
        raise ReplayError(f"a hook that it makes holds a tensor of the batch, as {place}")
