"""Estimator: training, evaluation and prediction around a `model_fn`."""

from . import export, feature_column
from .early_stopping import (
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from .estimator import Estimator
from .eval_metrics import read_eval_metrics
from .export import BestExporter, Exporter, FinalExporter, LatestExporter
from .extenders import add_metrics
from .hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    CheckpointWriter,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    SecondOrStepTimer,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from .prediction import Predictor
from .preemption import Preempted
from .premade import (
    BaselineClassifier,
    BaselineEstimator,
    BaselineRegressor,
    BinaryClassHead,
    DNNClassifier,
    DNNEstimator,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor,
    DNNRegressor,
    Head,
    KMeansClustering,
    LinearClassifier,
    LinearEstimator,
    LinearRegressor,
    LogisticRegressionHead,
    MultiClassHead,
    MultiHead,
    MultiLabelHead,
    PoissonRegressionHead,
    RegressionHead,
)
from .replica_check import check_replicas
from .roles import TrainAndEvaluateResult, train_and_evaluate
from .run_config import DistributeConfig, RunConfig
from .saved_model import LoadedModel, LoadedSignature, load
from .session import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from .specs import EstimatorSpec, EvalSpec, ModeKeys, TrainSpec
from .warm_start import VocabInfo, WarmStartSettings

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "BestExporter",
    "BinaryClassHead",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointWriter",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "DistributeConfig",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FinalExporter",
    "Head",
    "KMeansClustering",
    "LatestExporter",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "LoadedModel",
    "LoadedSignature",
    "LoggingTensorHook",
    "LogisticRegressionHead",
    "ModeKeys",
    "MultiClassHead",
    "MultiHead",
    "MultiLabelHead",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "PoissonRegressionHead",
    "Predictor",
    "Preempted",
    "RegressionHead",
    "RunConfig",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainAndEvaluateResult",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "add_metrics",
    "check_replicas",
    "export",
    "feature_column",
    "load",
    "make_early_stopping_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "train_and_evaluate",
]
