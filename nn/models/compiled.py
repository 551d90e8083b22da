"""`Compiled`: the losses and metrics that `Model.compile` was given, for each output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...autodiff import Array, Tensor
from ...inputs import nest
from ...strategies import Strategy
from .. import losses, metrics
from ..losses.reduction import sum_over_replicas
from ..metrics import Mean, MeanMetricWrapper, Metric
from ..metrics.accuracies import (
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
)
from ..metrics.base import anywhere


@dataclass(frozen=True, slots=True)
class Part:
    """What concerns one output.

    Args:
        name: Of the output.
        y, y_pred: Its labels and predictions.
        sample_weight: A factor for each example, or None.
        loss, loss_weights, metrics, weighted_metrics: What `compile` was given for it.
    """

    name: str
    y: Any
    y_pred: Any
    sample_weight: Any
    loss: Any
    loss_weights: Any
    metrics: Any
    weighted_metrics: Any


@final
class Compiled:
    """What a model is trained and measured by; see `Model.compile`.

    Args:
        loss, metrics, loss_weights, weighted_metrics: As `compile` takes them.

    Raises:
        ValueError: A name that is unknown.
        TypeError: Something that is no loss, or no metric.
    """

    def __init__(self, loss: Any, metrics: Any, loss_weights: Any, weighted_metrics: Any) -> None:
        self.given = {
            "loss": loss,
            "loss_weights": loss_weights,
            "metrics": metrics,
            "weighted_metrics": weighted_metrics,
        }
        _check(loss, metrics, weighted_metrics)
        self._trackers: dict[str, Mean] = {}
        self._metrics: dict[str, list[tuple[str, Metric, bool]]] = {}

    def output_names(self) -> list[str]:
        """What the outputs of a model are called that does not say so itself."""
        for given in (self.given["loss"], self.given["metrics"]):
            if isinstance(given, Mapping):
                return list(given)
        loss = self.given["loss"]
        several = isinstance(loss, (list, tuple)) and len(loss) > 1
        return [f"output_{index + 1}" for index in range(len(loss))] if several else ["output_1"]

    def parts(
        self, names: Sequence[str], y: Any, y_pred: Any, sample_weight: Any = None
    ) -> list[Part]:
        """What concerns each of the outputs `names`."""
        structures = {"y": y, "y_pred": y_pred, "sample_weight": sample_weight, **self.given}
        spread = {key: _spread(key, value, names) for key, value in structures.items()}
        return [
            Part(name, **{key: values[index] for key, values in spread.items()})
            for index, name in enumerate(names)
        ]

    def loss_of(self, parts: Sequence[Part], penalties: Sequence[Tensor]) -> Tensor | None:
        """The sum of the outputs' losses and of penalties, as a scalar; None where there is none.

        Where `begin` was called it is noted, weighted by the number of examples.
        """
        found = list(penalties)
        for part in parts:
            if part.loss is None:
                continue
            loss = losses.get(part.loss)
            value = loss(part.y, part.y_pred, part.sample_weight)
            value = np.mean(value) if np.ndim(value) else value  # type: ignore
            if getattr(loss, "reduction", None) is losses.Reduction.SUM:
                value = sum_over_replicas(value, np.shape(part.y_pred)[0])
            if len(parts) > 1:
                self._track(f"{part.name}_loss", value, part)
            found.append(value if part.loss_weights is None else value * part.loss_weights)
        if not found:
            return None
        total: Tensor = sum(found[1:], found[0])
        self._track("loss", total, parts[0])
        return total

    def _track(self, name: str, value: Tensor, part: Part) -> None:
        if name in self._trackers:
            self._trackers[name].add_mean(value, np.shape(part.y_pred)[0])

    def begin(self, names: Sequence[str], strategy: Strategy) -> None:
        """Make metrics that are kept from step to step; in cross-replica context, once."""
        if self._trackers:
            return
        with strategy.scope():
            several = len(names) > 1
            parts = self.parts(names, *([None] * len(names) if several else None for _ in "yp"))
            tracked = [f"{part.name}_loss" for part in parts if several and part.loss is not None]
            self._trackers = {name: Mean(name) for name in ("loss", *tracked)}
            for part in parts:
                prefix = f"{part.name}_" if several else ""
                self._metrics[part.name] = [
                    (prefix + name, _own(metric, strategy), is_weighted)
                    for name, metric, is_weighted in _metrics_of(part)
                ]

    @property
    def figures(self) -> dict[str, Metric]:
        """The metrics of `begin` by their names in logs."""
        named = {name: metric for found in self._metrics.values() for name, metric, _ in found}
        return {**self._trackers, **named}

    def update(self, parts: Sequence[Part]) -> None:
        """Count a batch in the metrics of `begin`."""
        for part in parts:
            if part.name not in self._metrics:
                raise ValueError(
                    f"the model has given an output {part.name!r}, it was compiled for "
                    f"{list(self._metrics)}: give loss=... a key, or an entry, for each output"
                )
            for _, metric, is_weighted in self._metrics[part.name]:
                _count(metric, part, is_weighted)

    def of_call(self, parts: Sequence[Part]) -> dict[str, Metric]:
        """Metrics made for the calling model and updated with a batch, by their names."""
        found: dict[str, Metric] = {}
        for part in parts:
            prefix = f"{part.name}_" if len(parts) > 1 else ""
            for name, given, is_weighted in _metrics_of(part):
                metric = given.clone() if given in _listed_all(part) else given
                _count(metric, part, is_weighted)
                found[prefix + name] = metric
        return found


def _count(metric: Metric, part: Part, is_weighted: bool) -> None:
    metric.update_state(part.y, part.y_pred, part.sample_weight if is_weighted else None)


def _metrics_of(part: Part) -> Iterator[tuple[str, Metric, bool]]:
    """The metrics of an output: their names, what they are, and whether weights count."""
    for key, is_weighted in (("metrics", False), ("weighted_metrics", True)):
        for given in _listed(getattr(part, key)):
            yield *_metric(given), is_weighted


def _own(metric: Metric, strategy: Strategy) -> Metric:
    """A metric with a state for each replica: another one where it was made outside the scope."""
    is_here = all(variable.strategy is strategy for variable in metric.variables)
    return metric if is_here else metric.clone()


def _listed_all(part: Part) -> list[Any]:
    return [*_listed(part.metrics), *_listed(part.weighted_metrics)]


def _metric(given: Any) -> tuple[str, Metric]:
    """What an entry of `metrics` means, and what it is called."""
    if isinstance(given, Metric):
        return given.name, given
    if isinstance(given, str) and _is_accuracy(given):
        return given, MeanMetricWrapper(_accuracy, given)
    metric = metrics.get(given)
    metric.name = given if isinstance(given, str) else given.__name__
    return metric.name, metric


def _is_accuracy(name: str) -> bool:
    return name.lower() in ("accuracy", "acc")


@anywhere
def _accuracy(y_true: Array, y_pred: Array) -> Array:
    """The kind of accuracy that fits the shapes, by Keras's rule."""
    labels, predictions = np.shape(y_true), np.shape(y_pred)
    width = predictions[-1] if len(predictions) > 1 else 1
    if width == 1:
        return binary_accuracy(y_true, y_pred, 0.5)
    is_sparse = len(labels) < len(predictions) or labels[-1] == 1
    kind = sparse_categorical_accuracy if is_sparse else categorical_accuracy
    return kind(y_true, y_pred)


def _check(loss: Any, metrics_given: Any, weighted: Any) -> None:
    """Refuse in `compile`, and not in the first step, what means nothing."""
    for one in _given(loss):
        losses.get(one)
    for one in (*_given(metrics_given), *_given(weighted)):
        if isinstance(one, str) and not _is_accuracy(one):
            metrics.check_name(one)
        elif not callable(one) and not isinstance(one, (str, Metric)):
            raise TypeError(f"metrics must be metrics, names or functions, one is {one!r}")


def _given(structure: Any) -> list[Any]:
    return [leaf for leaf in nest.flatten(structure) if leaf is not None]


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _spread(argument: str, value: Any, names: Sequence[str]) -> list[Any]:
    """The value of an argument for each output."""
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in names]
        if unknown:
            raise ValueError(
                f"{argument} has the keys {list(value)}, but the outputs are called {list(names)}"
            )
        return [value.get(name) for name in names]
    if len(names) == 1:
        return [value]
    if isinstance(value, (list, tuple)) and len(value) == len(names):
        return list(value)
    if argument in ("y", "y_pred", "loss_weights") and value is not None:
        raise ValueError(
            f"{argument} must have a part for each of the outputs {list(names)}: a list, or a dict"
        )
    return [value] * len(names)
