"""A user's `model_fn` with what belongs to it: how it is called, and where its variables are."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

from ..inputs import nest
from ..nn.layers import noting_inference_calls
from .call_by_name import chosen_arguments
from .likely_mistakes import warn_of_likely_mistakes
from .run_config import RunConfig
from .specs import EstimatorSpec, ModeKeys

_logger = logging.getLogger("paceline")


class ModelFunction:
    """Calls a `model_fn` with the arguments that it names.

    Args:
        model_fn: Names `features`, and of labels, mode, params and config what it needs.
        params: Handed over where it is named: each call gets dicts and lists of its own, so that
            one that takes something out of them leaves the next one as it was.
        config: Handed over where it is named.

    Raises:
        TypeError: It is not callable.
        ValueError: It does not take `features`, needs an argument that does not exist, or params
            are given and it does not take them.
    """

    def __init__(
        self, model_fn: Callable[..., Any], params: dict[str, Any] | None, config: RunConfig
    ) -> None:
        if model_fn is None:
            raise ValueError("model_fn must be given: a function model_fn(features, labels, mode)")
        allowed = ("features", "labels", "mode", "params", "config")
        self._names = chosen_arguments(model_fn, "model_fn", allowed)
        if "features" not in self._names:
            raise ValueError("model_fn must take an argument named features")
        if params is not None and "params" not in self._names:
            raise ValueError(
                "params are given but model_fn has no argument named params; add it, "
                "or leave params out"
            )
        if params is None and "params" in self._names:
            _logger.warning("model_fn has an argument params, but no params are given.")
        self._model_fn = model_fn
        self._training_calls = itertools.count()
        self._fixed: dict[str, Any] = {}
        if "params" in self._names:
            self._params = params or {}
        if "config" in self._names:
            self._fixed["config"] = config

    def __call__(self, features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
        """The specification for one batch."""
        arguments = dict(self._fixed)
        if "params" in self._names:
            arguments["params"] = copy_of_params(self._params)
        if "labels" in self._names:
            arguments["labels"] = labels
        elif labels is not None and mode is not ModeKeys.PREDICT:
            raise ValueError(
                "input_fn gives labels but model_fn has no argument named labels; add it, "
                "or let input_fn give features only"
            )
        if "mode" in self._names:
            arguments["mode"] = mode
        if mode is ModeKeys.TRAIN and next(self._training_calls) == 0:
            return self._examined(features, arguments)
        return _checked(self._model_fn(features=features, **arguments), mode)

    def _examined(self, features: Any, arguments: dict[str, Any]) -> EstimatorSpec:
        """The first call that trains, with a look at what it does and most likely does not mean."""
        with noting_inference_calls() as names:
            spec = _checked(self._model_fn(features=features, **arguments), ModeKeys.TRAIN)
        warn_of_likely_mistakes(spec.loss, count_examples(features), names)
        return spec


def _checked(spec: Any, mode: ModeKeys) -> EstimatorSpec:
    if not isinstance(spec, EstimatorSpec):
        raise TypeError(f"model_fn must return an EstimatorSpec, it returned {spec!r}")
    if spec.mode is not mode:
        raise ValueError(
            f"model_fn was called in mode ModeKeys.{mode.name} and returned a spec of mode "
            f"ModeKeys.{spec.mode.name}; pass mode=mode"
        )
    return spec


def copy_of_params(params: Any) -> Any:
    """`params` with dicts and lists of its own, at every depth, and the same values in them.

    The values are not copied: they may be layers, whose variables live where they are.
    """
    return nest.map_structure(_itself, params)


def _itself(value: Any) -> Any:
    return value


def split_features_and_labels(batch: Any) -> tuple[Any, Any]:
    """The (features, labels) of one batch; labels are None where a batch is features only.

    Raises:
        ValueError: A tuple or list that is not a pair.
    """
    if isinstance(batch, tuple | list):
        if len(batch) != 2:
            raise ValueError(
                f"input_fn must give features or pairs (features, labels), it gave a "
                f"{type(batch).__name__} of {len(batch)}; put several features into a dict"
            )
        return batch[0], batch[1]
    return batch, None


def count_examples(batch: Any) -> int:
    """The number of examples in a batch of (features, labels).

    Raises:
        ValueError: The arrays in it differ in their first dimension.
    """
    return nest.batch_size(batch, names=("features", "labels"))
