"""Write `tensorflow_names.txt`: the public names of tf.data, tf.distribute and tf.estimator.

    python tests/compat/make_names.py > tests/compat/tensorflow_names.txt

needs TensorFlow, not paceline. tf.estimator, which ended with 2.15, is listed here by hand; what
TensorFlow 2.21 has in tf.data and tf.distribute is what 2.15 had, and a few more.
"""

import inspect

import tensorflow as tf

ESTIMATOR = """
BaselineClassifier BaselineEstimator BaselineRegressor BestExporter BinaryClassHead
CheckpointSaverHook CheckpointSaverListener DNNClassifier DNNEstimator DNNLinearCombinedClassifier
DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor Estimator EstimatorSpec EvalSpec
Exporter FeedFnHook FinalExporter FinalOpsHook GlobalStepWaiterHook Head LatestExporter
LinearClassifier LinearEstimator LinearRegressor LoggingTensorHook LogisticRegressionHead ModeKeys
MultiClassHead MultiHead MultiLabelHead NanLossDuringTrainingError NanTensorHook
PoissonRegressionHead ProfilerHook RegressionHead RunConfig SecondOrStepTimer SessionRunArgs
SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook
TrainSpec VocabInfo WarmStartSettings add_metrics classifier_parse_example_spec
regressor_parse_example_spec train_and_evaluate
export.ClassificationOutput export.EvalOutput export.ExportOutput export.PredictOutput
export.RegressionOutput export.ServingInputReceiver export.TensorServingInputReceiver
export.build_parsing_serving_input_receiver_fn export.build_raw_serving_input_receiver_fn
experimental.InMemoryEvaluatorHook experimental.KMeans experimental.LinearSDCA
experimental.RNNClassifier experimental.RNNEstimator
experimental.build_raw_supervised_input_receiver_fn experimental.call_logit_fn
experimental.dnn_logit_fn_builder experimental.linear_logit_fn_builder
experimental.make_early_stopping_hook experimental.make_stop_at_checkpoint_step_hook
experimental.stop_if_higher_hook experimental.stop_if_lower_hook
experimental.stop_if_no_decrease_hook experimental.stop_if_no_increase_hook
"""
METHODS_OF = ("data.Dataset", "distribute.Strategy", "distribute.ReplicaContext")
OF_TENSORFLOW_1 = {
    "colocate_vars_with",
    "configure",
    "experimental_run",
    "group",
    "make_dataset_iterator",
    "make_input_fn_iterator",
    "unwrap",
    "update_config_proto",
}


def public(thing):
    return [name for name in dir(thing) if not name.startswith("_")]


def names_of(module, path):
    for name in public(module):
        value, full = getattr(module, name), f"{path}.{name}"
        if inspect.ismodule(value):
            yield from names_of(value, full)
        else:
            yield full
        if full.removeprefix("tf.") in METHODS_OF:
            yield from (f"{full}.{m}" for m in public(value) if m not in OF_TENSORFLOW_1)


found = [f"tf.estimator.{name}" for name in ESTIMATOR.split()]
for part in ("data", "distribute"):
    found += names_of(getattr(tf, part), f"tf.{part}")
print("\n".join(sorted(found)))
