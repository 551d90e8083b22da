"""How a user's `model_fn` is called, and what it most likely does not mean."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..autodiff import Tensor
from ..inputs import nest
from ..nn.layers import noting_inference_calls
from ..strategies import current_store
from ..training import ModeKeys, count_examples, named_values
from .run_config import RunConfig
from .specs import EstimatorSpec

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
        names = chosen_arguments(model_fn, "model_fn", allowed)
        if "features" not in names:
            raise ValueError("model_fn must take an argument named features")
        if params is not None and "params" not in names:
            raise ValueError(
                "params are given but model_fn has no argument named params; add it, "
                "or leave params out"
            )
        if params is None and "params" in names:
            _logger.warning("model_fn has an argument params, but no params are given.")
        self._model_fn = model_fn
        self._training_calls = itertools.count()
        self._takes_labels, self._takes_mode = "labels" in names, "mode" in names
        self._params = (params or {}) if "params" in names else None
        self._same_in_all_calls: dict[str, Any] = {"config": config} if "config" in names else {}

    def __call__(self, batch: Any, mode: ModeKeys) -> EstimatorSpec:
        """The specification for one batch: features, or (features, labels)."""
        features, labels = split_features_and_labels(batch)
        arguments = self._same_in_all_calls.copy()
        if mode is ModeKeys.PREDICT:
            labels = None  # as in TensorFlow, by which a model may know that it predicts
        if self._takes_labels:
            arguments["labels"] = labels
        elif labels is not None:
            raise ValueError(
                "input_fn gives labels but model_fn has no argument named labels; add it, "
                "or let input_fn give features only"
            )
        if self._takes_mode:
            arguments["mode"] = mode
        if self._params is not None:
            arguments["params"] = copy_of_params(self._params)
        named: dict[str, Any] = {}
        token = named_values.set(named)
        try:
            if mode is ModeKeys.TRAIN and next(self._training_calls) == 0:
                spec = self._examined(features, arguments)
            else:
                spec = _checked(self._model_fn(features=features, **arguments), mode)
        finally:
            named_values.reset(token)
        if named:
            spec.named = named
        return spec

    def _examined(self, features: Any, arguments: dict[str, Any]) -> EstimatorSpec:
        """The first call that trains, with a look at what it does and most likely does not mean."""
        with noting_inference_calls() as names:
            spec = _checked(self._model_fn(features=features, **arguments), ModeKeys.TRAIN)
        warn_of_likely_mistakes(spec.loss, count_examples(features), names)
        if spec.eval_metric_ops:
            _logger.info(
                "eval_metric_ops are for evaluations: what the model gives while it trains (%s) is "
                "left aside. paceline.summary.scalar shows a value of the batch in the same place.",
                ", ".join(spec.eval_metric_ops),
            )
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


def chosen_arguments(
    function: Callable[..., Any], what: str, allowed: Collection[str]
) -> frozenset[str]:
    """Those of the `allowed` arguments that `function` names and that are not bound already.

    Raises:
        TypeError: It is not callable.
        ValueError: It needs an argument that is not among them.
    """
    if not callable(function):
        raise TypeError(f"{what} must be a function, it is {function!r}")
    parameters = inspect.signature(function).parameters.values()
    bound = frozenset(function.keywords) if isinstance(function, partial) else frozenset()
    unknown = [
        p.name
        for p in parameters
        if p.name not in allowed
        and p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if unknown:
        raise ValueError(
            f"{what} has the argument(s) {', '.join(unknown)}, which nobody would fill in; "
            f"it may name {', '.join(allowed)} (any other needs a default value)"
        )
    return frozenset(p.name for p in parameters if p.name in allowed) - bound


def warn_of_likely_mistakes(
    loss: Tensor | None, num_examples: int, called_for_inference: Sequence[str]
) -> None:
    """Log a warning for each that is found.

    Args:
        loss: What a `model_fn` returned in training.
        num_examples: The number of examples in the batch.
        called_for_inference: Names of layers that were called with `training=False`.
    """
    if called_for_inference:
        _logger.warning(
            "model_fn trains, but calls %s with training=False: dropout drops nothing, and batch "
            "normalization collects no statistics. Pass training=mode == ModeKeys.TRAIN to the "
            "model, or trainable=False to layers that are meant to be frozen.",
            ", ".join(called_for_inference),
        )
    if loss is None:
        return
    if broadcast_over_examples(loss, num_examples):
        _logger.warning(
            "The loss of %d examples compares each of them with every other one, in an array of "
            "shape (%d, %d): NumPy does that to predictions of shape (%d, 1) and labels of shape "
            "(%d,). Reshape one of them, or use a function of paceline.nn.losses, which does.",
            *[num_examples] * 5,
        )
    if _is_wider_than_the_model(loss):
        _logger.warning(
            "The loss is float64 although no variable is, which doubles the time of a step and "
            "changes nothing else: most likely features or labels are; "
            "convert them in input_fn with .astype(np.float32)."
        )


def broadcast_over_examples(loss: Tensor, num_examples: int) -> bool:
    """Whether the loss depends on an outer difference (n, n) of what has one value per example.

    Results of (n, n) are common where n is also a number of features. So an array counts only where
    all that it was computed from has n elements, and is not itself a variable (a bias, say).
    """
    outer = (num_examples, num_examples)
    return num_examples > 1 and any(
        node.data.shape == outer and all(_is_per_example(p, num_examples) for p in node.inputs)
        for node in _inner_nodes(loss)
    )


def _is_per_example(part: Tensor, num_examples: int) -> bool:
    is_variable = part.requires_grad and not part.inputs
    return np.size(part.data) == num_examples and not is_variable


def _inner_nodes(loss: Tensor) -> Iterator[Tensor]:
    """Every tensor that the loss was computed from by way of others, and the loss, once each."""
    found = {id(loss): loss}
    waiting = [loss]
    while waiting:
        node = waiting.pop()
        if not node.inputs:
            continue
        yield node
        new = {id(part): part for part in node.inputs if id(part) not in found}
        found |= new
        waiting += new.values()


def _is_wider_than_the_model(loss: Tensor) -> bool:
    trained = [variable.dtype for variable in current_store().trainable_variables()]
    return loss.dtype == np.float64 and bool(trained) and np.dtype(np.float64) not in trained
