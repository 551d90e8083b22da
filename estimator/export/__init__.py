"""What a model is exported with: what it gives to those who ask it, and what they ask it with."""

from ...inputs import TensorSpec
from .exporters import (
    BestExporter,
    Exporter,
    Exports,
    FinalExporter,
    LatestExporter,
    checked_exporters,
)
from .outputs import (
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    ClassificationOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
    signatures,
)
from .receivers import (
    ComputeFromPlaceholders,
    ParseExamples,
    PassOn,
    Preparation,
    Receiver,
    ServingInputReceiver,
    SupervisedInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
    build_raw_supervised_input_receiver_fn,
)

__all__ = [
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "BestExporter",
    "ClassificationOutput",
    "ComputeFromPlaceholders",
    "ExportOutput",
    "Exporter",
    "Exports",
    "FinalExporter",
    "LatestExporter",
    "ParseExamples",
    "PassOn",
    "PredictOutput",
    "Preparation",
    "Receiver",
    "RegressionOutput",
    "ServingInputReceiver",
    "SupervisedInputReceiver",
    "TensorServingInputReceiver",
    "TensorSpec",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
    "build_raw_supervised_input_receiver_fn",
    "checked_exporters",
    "signatures",
]
