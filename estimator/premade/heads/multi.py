"""Several heads of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....autodiff import Tensor
from ....nn.metrics import Mean, Metric
from ...export import DEFAULT_SERVING_SIGNATURE_DEF_KEY, ExportOutput, PredictOutput, signatures
from .head import Head, checked_logits, chosen, total


class MultiHead(Head):
    """A model with several objectives: the weighted sum of what its heads make of their logits.

    Logits are a dict of tensors by the heads' names, or one tensor (..., sum of dimensions), whose
    parts are theirs in order. Labels are a dict by the heads' names. Predictions are those of all
    heads, by (head's name, key). Metrics are those of all heads, which have their names behind
    a slash, and loss/<head> for each: the head's own loss without its weight.

    Args:
        heads: At least one, with different names.
        head_weights: Factors ≥ 0 of the heads' losses, 1 by default.

    Attributes:
        name: The heads' names, joined by "_".

    Raises:
        ValueError: A head has no name, or that of another one; there are not as many weights; or
            the heads reduce their losses in different ways.
    """

    def __init__(self, heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> None:
        self.heads = tuple(heads)
        self._weights = _checked(self.heads, head_weights)
        names = "_".join(str(head.name) for head in self.heads)
        width = sum(head.logits_dimension for head in self.heads)
        super().__init__(names, width, self.heads[0].loss_reduction)

    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Tensor:
        losses = self._losses(labels, logits, features, mode)
        weighted = [weight * loss for weight, loss in zip(self._weights, losses, strict=True)]
        return sum(weighted[1:], weighted[0]) + total(regularization_losses)

    def predictions(self, logits: Any, keys: Sequence[Any] | None = None) -> dict[Any, Any]:
        of_heads = [
            (head.name, head.predictions(part))
            for head, part in zip(self.heads, self._parts(logits), strict=True)
        ]
        found = {(name, key): value for name, of in of_heads for key, value in of.items()}
        return chosen(found, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput] | None:
        """Those of each head as "head" and "head/signature"; the first head's are the default."""
        found: dict[str, ExportOutput] = {}
        for head in self.heads:
            own = {key: value for (name, key), value in predictions.items() if name == head.name}
            outputs = signatures(head.export_outputs(own) or {"predict": PredictOutput(own)})
            default = outputs.pop(DEFAULT_SERVING_SIGNATURE_DEF_KEY)
            found |= {str(head.name): default}
            found |= {f"{head.name}/{name}": output for name, output in outputs.items()}
        everything = {f"{name}/{key}": value for (name, key), value in predictions.items()}
        return {
            DEFAULT_SERVING_SIGNATURE_DEF_KEY: found[str(self.heads[0].name)],
            **found,
            "predict": PredictOutput(everything),
        }

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Metric]:
        found: dict[str, Metric] = {}
        if regularization_losses is not None:
            found["regularization_loss"] = Mean("regularization_loss")
        for head in self.heads:
            key = head.key("loss")
            found |= {key: Mean(key), **head.metrics()}
        return found

    def update_metrics(
        self,
        eval_metrics: Mapping[str, Metric],
        features: Any,
        logits: Any,
        labels: Any,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Mapping[str, Metric]:
        if regularization_losses is not None:
            eval_metrics["regularization_loss"].update_state(total(regularization_losses))
        losses, parts = self._losses(labels, logits, features, mode), self._parts(logits)
        for head, loss, part in zip(self.heads, losses, parts, strict=True):
            # As often as there are examples: the mean over batches of different sizes is exact.
            eval_metrics[head.key("loss")].update_state(loss, np.full((), len(part)))
            head.update_metrics(eval_metrics, features, part, labels[head.name], mode)
        return eval_metrics

    def _losses(self, labels: Any, logits: Any, features: Any, mode: str | None) -> list[Tensor]:
        names = [head.name for head in self.heads]
        if not isinstance(labels, Mapping) or not set(names) <= set(labels):
            there = list(labels) if isinstance(labels, Mapping) else type(labels).__name__
            raise ValueError(
                f"labels of a MultiHead must be a dict with one entry for each head, {names}; "
                f"input_fn gives {there}"
            )
        parts = zip(self.heads, self._parts(logits), strict=True)
        return [head.loss(labels[head.name], part, features, mode) for head, part in parts]

    def _parts(self, logits: Any) -> list[Tensor]:
        """The logits of each head."""
        if isinstance(logits, Mapping):
            missing = [head.name for head in self.heads if head.name not in logits]
            if missing:
                raise ValueError(
                    f"logits have no entry for head(s) {missing}, they have {list(logits)}"
                )
            return [checked_logits(logits[h.name], h.logits_dimension) for h in self.heads]
        logits = checked_logits(logits, self.logits_dimension)
        ends = np.cumsum([head.logits_dimension for head in self.heads]).tolist()
        starts = [0, *ends[:-1]]
        return [logits[..., start:end] for start, end in zip(starts, ends, strict=True)]


def _checked(heads: Sequence[Head], weights: Sequence[float] | None) -> tuple[float, ...]:
    """The heads' weights.

    Raises:
        ValueError: See `MultiHead`.
    """
    if not heads:
        raise ValueError("heads must hold at least one head")
    names = [head.name for head in heads]
    if None in names or "" in names or len(set(names)) != len(names):
        raise ValueError(f"heads must have different names, they are called {names}; pass name=...")
    reductions = {head.loss_reduction.value for head in heads}
    if len(reductions) > 1:
        raise ValueError(f"heads must have one loss_reduction, they have {sorted(reductions)}")
    given = tuple(weights) if weights is not None else (1.0,) * len(heads)
    if len(given) != len(heads) or not all(weight >= 0 for weight in given):
        raise ValueError(
            f"head_weights must be {len(heads)} numbers ≥ 0, one for each head, they are {weights}"
        )
    return given
