"""A model that is asked: its function, its variables, and what it is told of each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...autodiff import lift_array
from ...strategies import VariableStore
from ...training import ModeKeys, spec_of
from ..export import DEFAULT_SERVING_SIGNATURE_DEF_KEY, ExportOutput, PredictOutput
from ..model_function import ModelFunction
from ..specs import EstimatorSpec
from .signature import PreparationInfo, prepare


@final
@dataclass(frozen=True)
class Program:
    """Calls a model; from several threads at once, when its variables exist.

    Args:
        model: What to call.
        store: Its variables.
        mode: For what it is called.
        features, labels: How these are made of the inputs.
        allowed: The modules whose functions may do it.
    """

    model: ModelFunction
    store: VariableStore
    mode: ModeKeys
    features: PreparationInfo
    labels: PreparationInfo | None
    allowed: Sequence[str]

    def ask(self, inputs: dict[str, np.ndarray]) -> Mapping[str, ExportOutput]:
        """The outputs of all signatures for a batch."""
        features = prepare(self.features, inputs, self.allowed)
        labels = None if self.labels is None else prepare(self.labels, inputs, self.allowed)
        spec = spec_of(self.model, self.store, (features, labels), self.mode)
        if self.mode is ModeKeys.PREDICT:
            return _signatures(spec)
        return {self.mode.value: PredictOutput(_supervised(spec))}


def arrays_of(output: ExportOutput) -> dict[str, np.ndarray]:
    """The outputs of one signature, in host memory."""
    return {name: lift_array(value).numpy() for name, value in output.outputs.items()}


def _signatures(spec: EstimatorSpec) -> Mapping[str, ExportOutput]:
    if spec.export_outputs is not None:
        return spec.export_outputs
    return {DEFAULT_SERVING_SIGNATURE_DEF_KEY: PredictOutput(spec.predictions)}


def _supervised(spec: EstimatorSpec) -> dict[str, Any]:
    """The loss and the predictions, as TensorFlow names them."""
    predictions = spec.predictions
    if predictions is None:
        predictions = {}
    elif not isinstance(predictions, Mapping):
        predictions = {"output": predictions}
    return {"loss": spec.loss, **{f"predictions/{name}": p for name, p in predictions.items()}}
