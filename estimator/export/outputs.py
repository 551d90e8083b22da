"""What a model gives to those who ask it: the `export_outputs` of an `EstimatorSpec`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np

from ...autodiff import lift

DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
"""The name of the signature that is meant where none is named."""


class ExportOutput(ABC):
    """The outputs of one signature.

    Args:
        outputs: Name → array or tensor, with one row per example.

    Attributes:
        method_name: What kind of question the signature answers, in the words of TensorFlow
            Serving.
    """

    method_name: ClassVar[str]

    def __init__(self, outputs: Mapping[str, Any]) -> None:
        self.outputs = dict(outputs)

    def _dtype_kind(self, name: str) -> str:
        """One letter for the kind of an output's dtype, as `numpy.dtype.kind` has it."""
        data = lift(self.outputs[name]).data
        dtype = data.dtype if hasattr(data, "dtype") else np.asarray(data).dtype
        kind: str = dtype.kind
        return kind


@final
class PredictOutput(ExportOutput):
    """Any outputs, as they are.

    Args:
        outputs: Name → array or tensor; one that is no dict is named "output".

    Raises:
        ValueError: The dict is empty, or has a name that is no text.
    """

    method_name = "tensorflow/serving/predict"

    def __init__(self, outputs: Any) -> None:
        named = outputs if isinstance(outputs, Mapping) else {"output": outputs}
        odd = [name for name in named if not isinstance(name, str) or not name]
        if odd or not named:
            raise ValueError(
                f"PredictOutput needs an array, or a dict of names to arrays; "
                f"it was given {f'the name(s) {odd}' if odd else 'an empty dict'}"
            )
        super().__init__(named)


@final
class ClassificationOutput(ExportOutput):
    """The scores of classes, their labels, or both.

    Args:
        scores: Floats (batch, num_classes).
        classes: Labels (batch, num_classes) as text.

    Raises:
        ValueError: Both are missing, scores are no floats, or classes are no text.
    """

    method_name = "tensorflow/serving/classify"

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        given = {"classes": classes, "scores": scores}
        super().__init__({name: value for name, value in given.items() if value is not None})
        if not self.outputs:
            raise ValueError("ClassificationOutput needs scores, classes, or both")
        if scores is not None and self._dtype_kind("scores") != "f":
            raise ValueError("ClassificationOutput: scores must be floats; use PredictOutput else")
        if classes is not None and self._dtype_kind("classes") not in "SUO":
            raise ValueError(
                "ClassificationOutput: classes must be text, as labels are; "
                "convert numbers with np.char.mod('%d', classes), or use PredictOutput"
            )


@final
class RegressionOutput(ExportOutput):
    """Estimated numbers; their output is named "outputs".

    Args:
        value: Floats (batch,) or (batch, 1).

    Raises:
        ValueError: They are no floats.
    """

    method_name = "tensorflow/serving/regress"

    def __init__(self, value: Any) -> None:
        super().__init__({"outputs": value})
        if self._dtype_kind("outputs") != "f":
            raise ValueError("RegressionOutput: value must be floats; use PredictOutput for others")


def signatures(export_outputs: Any) -> dict[str, ExportOutput]:
    """The `export_outputs` of an `EstimatorSpec`, with a default one.

    Args:
        export_outputs: Name → `ExportOutput`, or a dict of tensors, which means a `PredictOutput`.
            One that is alone is also the default.

    Raises:
        TypeError: It is something else.
        ValueError: There are several, and none is the default.
    """
    if not isinstance(export_outputs, Mapping) or not export_outputs:
        raise TypeError(
            f"export_outputs must be a dict of names to PredictOutput, ClassificationOutput or "
            f"RegressionOutput, or None; it is {export_outputs!r}"
        )
    outputs = {name: _export_output(name, value) for name, value in export_outputs.items()}
    if len(outputs) == 1:
        [only] = outputs.values()
        outputs[DEFAULT_SERVING_SIGNATURE_DEF_KEY] = only
    elif DEFAULT_SERVING_SIGNATURE_DEF_KEY not in outputs:
        raise ValueError(
            f"export_outputs has several signatures ({', '.join(map(str, outputs))}) and none is "
            f"the default; call one {DEFAULT_SERVING_SIGNATURE_DEF_KEY!r}"
        )
    return outputs


def _export_output(name: Any, value: Any) -> ExportOutput:
    if not isinstance(name, str) or not name:
        raise TypeError(f"export_outputs: a name must be a text that is not empty, one is {name!r}")
    if isinstance(value, ExportOutput):
        return value
    if isinstance(value, Mapping):
        return PredictOutput(value)
    raise TypeError(
        f"export_outputs[{name!r}] must be a PredictOutput, ClassificationOutput or "
        f"RegressionOutput, or a dict of tensors; it is {type(value).__name__}"
    )
