"""What to use instead of names of TensorFlow that have no counterpart here."""

from collections.abc import Mapping

_GRAPH = "there is no graph: models and steps are plain Python, run as written"
_SPARSE = "pad to equal length, or use feature columns, which take lists of ids"
_STATEFUL = "write a generator, and use tf.data.Dataset.from_generator"
_WITH_HEAD = "write a model_fn of paceline.nn.layers and a head (docs/premade.md)"
_SEVERAL = "use tf.data.Dataset.from_generator over the datasets' iterators, or interleave"
_BY_LENGTH = "sort or filter by length before padded_batch"
_KEPT = "use cache in memory, or np.save and tf.data.Dataset.from_tensor_slices"
_UNIQUE = "use np.unique of the source, or filter with a set"

_OF_DATASET: Mapping[str, str] = {
    "bucket_by_sequence_length": _BY_LENGTH,
    "choose_from_datasets": _SEVERAL,
    "counter": "use tf.data.experimental.Counter",
    "fingerprint": "use hashlib over what it is made of",
    "from_list": "use tf.data.Dataset.from_tensor_slices",
    "get_single_element": "use tf.data.experimental.get_single_element",
    "group_by_reducer": _STATEFUL,
    "group_by_window": _STATEFUL,
    "load": "use np.load and tf.data.Dataset.from_tensor_slices",
    "ragged_batch": _SPARSE,
    "random": "use tf.data.Dataset.from_generator and np.random",
    "rebatch": "use unbatch and batch",
    "reduce": "use a Python loop over the dataset, or functools.reduce",
    "rejection_resample": "use filter with a function that draws",
    "sample_from_datasets": _SEVERAL,
    "save": "use np.save, or write TFRecords with tf.io.TFRecordWriter",
    "scan": _STATEFUL,
    "snapshot": _KEPT,
    "sparse_batch": _SPARSE,
    "take_while": _STATEFUL,
    "unique": _UNIQUE,
}

_INSTEAD: Mapping[str, str] = {
    "tf.Graph": _GRAPH,
    "tf.Session": _GRAPH,
    "tf.InteractiveSession": _GRAPH,
    "tf.global_variables_initializer": _GRAPH + "; variables have their values when they are made",
    "tf.gradients": "use tf.GradientTape",
    "tf.hessians": "use nested tf.GradientTape",
    "tf.get_default_graph": _GRAPH,
    "tf.global_variables": "use model.variables, or tf.train.list_variables of a checkpoint",
    "tf.trainable_variables": "use model.trainable_variables",
    "tf.add_to_collection": _GRAPH + "; add_loss of a layer keeps a loss",
    "tf.Module": "use tf.keras.Model or tf.keras.layers.Layer",
    "tf.SparseTensor": _SPARSE,
    "tf.RaggedTensor": _SPARSE,
    "tf.ragged": _SPARSE,
    "tf.TensorArray": "use a Python list and tf.stack",
    "tf.TensorShape": "shapes are tuples",
    "tf.TypeSpec": "use tf.TensorSpec; dataset.element_spec says what elements are made of",
    "tf.autograph": _GRAPH,
    **{
        f"tf.saved_model.{name}": "use Estimator.export_saved_model or model.save, and "
        "paceline.estimator.load"
        for name in ("builder", "contains_saved_model", "load", "loader", "save", "simple_save")
    },
    "tf.lite": "export with paceline.estimator.export_onnx",
    "tf.lookup": "use a dict in Dataset.map, or a categorical column with a vocabulary",
    "tf.profiler": "use tf.estimator.ProfilerHook",
    "tf.raw_ops": "use NumPy's functions",
    "tf.signal": "use np.fft on arrays of the input",
    "tf.contrib.learn.Experiment": "use tf.estimator.train_and_evaluate",
    "tf.contrib.learn.learn_runner": "use tf.estimator.train_and_evaluate",
    "tf.contrib.learn.DNNClassifier": "use tf.estimator.DNNClassifier",
    "tf.contrib.learn.DNNRegressor": "use tf.estimator.DNNRegressor",
    "tf.contrib.learn.Estimator": "use tf.estimator.Estimator",
    "tf.contrib.learn.LinearClassifier": "use tf.estimator.LinearClassifier",
    "tf.contrib.learn.LinearRegressor": "use tf.estimator.LinearRegressor",
    "tf.contrib.learn.ModeKeys": "use tf.estimator.ModeKeys, in which INFER is PREDICT",
    "tf.contrib.boosted_trees": "use tf.estimator.BoostedTreesClassifier or BoostedTreesRegressor",
    "tf.contrib.cluster_resolver": "use tf.distribute.cluster_resolver",
    "tf.contrib.eager": "code runs as it is written; use tf.GradientTape and tf.Variable",
    "tf.contrib.layers.batch_norm": "use tf.layers.batch_normalization, with momentum for decay",
    "tf.contrib.layers.optimize_loss": "use minimize of an optimizer of tf.train",
    "tf.contrib.layers.input_from_feature_columns": "use tf.feature_column.input_layer",
    "tf.contrib.lookup": "use a dict in Dataset.map, or a categorical column with a vocabulary",
    "tf.contrib.metrics": "use tf.metrics",
    "tf.contrib.predictor": "use paceline.estimator.load",
    "tf.contrib.rnn": "use tf.keras.layers.LSTM, GRU or RNN",
    "tf.contrib.tpu": "there are no TPUs here; use tf.distribute.MirroredStrategy",
    "tf.nn.rnn_cell": "use tf.keras.layers.LSTMCell, GRUCell or SimpleRNNCell",
    "tf.nn.dynamic_rnn": "use tf.keras.layers.RNN, LSTM or GRU with a mask",
    "tf.train.SyncReplicasOptimizer": "use tf.distribute.MultiWorkerMirroredStrategy, which is "
    "synchronous",
    "tf.keras.utils.SidecarEvaluator": "use tf.estimator.train_and_evaluate, whose task evaluator "
    "evaluates each checkpoint",
    "tf.keras.layers.DenseFeatures": "use tf.feature_column.DenseFeatures in a tf.keras.Model",
    "tf.test.mock": "use unittest.mock",
    "tf.assign": "use variable.assign(value)",
    "tf.assign_add": "use variable.assign_add(value)",
    "tf.assign_sub": "use variable.assign_sub(value)",
    "tf.string_to_hash_bucket": "use tf.strings.to_hash_bucket_fast, whose hashes are others",
    "tf.strings.to_hash_bucket": "use tf.strings.to_hash_bucket_fast, whose hashes are others",
    "tf.strings.to_hash_bucket_strong": "use tf.strings.to_hash_bucket_fast, whose hashes are "
    "others",
    "tf.keras.backend.get_session": _GRAPH,
    "tf.reset_default_graph": _GRAPH,
    "tf.RunOptions": _GRAPH,
    "tf.xla": _GRAPH,
    "tf.parallel_stack": "use tf.stack",
    "tf.scan": "use a Python loop and tf.stack",
    "tf.foldl": "use functools.reduce",
    "tf.queue": "use tf.data.Dataset",
    "tf.data.Iterator": "use iter(dataset)",
    "tf.data.NumpyIterator": "use iter(dataset), which gives NumPy arrays",
    "tf.data.IteratorSpec": "use dataset.element_spec",
    "tf.data.FixedLengthRecordDataset": "use np.memmap and tf.data.Dataset.from_tensor_slices",
    "tf.data.ThreadingOptions": "use num_parallel_calls of Dataset.map",
    **{f"tf.data.Dataset.{name}": text for name, text in _OF_DATASET.items()},
    **{f"tf.data.experimental.{name}": text for name, text in _OF_DATASET.items()},
    "tf.data.experimental.DistributeOptions": "set auto_shard_policy of tf.data.Options",
    "tf.data.experimental.SHARD_HINT": "use dataset.shard(num_shards, index)",
    "tf.data.experimental.ServiceOptions": "workers read their own shards",
    "tf.data.experimental.assert_cardinality": "use dataset.cardinality() and an assertion",
    "tf.data.experimental.at": "use the source's own brackets",
    "tf.data.experimental.dense_to_ragged_batch": _SPARSE,
    "tf.data.experimental.dense_to_sparse_batch": _SPARSE,
    "tf.data.experimental.distributed_save": _KEPT,
    "tf.data.experimental.enable_debug_mode": "functions that a dataset maps are plain Python",
    "tf.data.experimental.from_variant": _GRAPH,
    "tf.data.experimental.get_model_proto": "repr(dataset) tells the chain of operations",
    "tf.data.experimental.index_table_from_dataset": "use a dict in Dataset.map",
    "tf.data.experimental.pad_to_cardinality": "use concatenate, with weights of zero",
    "tf.data.experimental.parse_example_dataset": "use tf.io.parse_single_example in Dataset.map",
    "tf.data.experimental.table_from_dataset": "use a dict in Dataset.map",
    "tf.data.experimental.to_variant": _GRAPH,
    "tf.data.experimental.AutotuneAlgorithm": "prefetch() tunes its depth by itself",
    "tf.data.experimental.AutotuneOptions": "prefetch() tunes its depth by itself",
    "tf.data.experimental.CsvDataset": "use paceline.inputs.csv_rows",
    "tf.data.experimental.DatasetInitializer": _GRAPH,
    "tf.data.experimental.ExternalStatePolicy": "an iterator's get_state() saves its own",
    "tf.data.experimental.OptimizationOptions": "chains of operations are planned by themselves",
    "tf.data.experimental.RandomDataset": "use tf.data.Dataset.from_generator and np.random",
    "tf.data.experimental.Reducer": "use functools.reduce over the dataset",
    "tf.data.experimental.SqlDataset": "use tf.data.Dataset.from_generator and sqlite3",
    "tf.data.experimental.ThreadingOptions": "use num_parallel_calls of Dataset.map",
    "tf.data.experimental.copy_to_device": "a strategy brings batches to its devices",
    "tf.data.experimental.prefetch_to_device": "a strategy brings batches to its devices",
    "tf.data.experimental.make_csv_dataset": "use paceline.inputs.csv_rows",
    "tf.data.experimental.make_batched_features_dataset": "use paceline.inputs.tf_records, "
    "parse_example in Dataset.map, and batch",
    "tf.data.experimental.make_saveable_from_iterator": "iterators have get_state and set_state; "
    "an Estimator saves them with the model",
    "tf.data.experimental.service": "workers read their own shards; there is no input service",
    "tf.distribute.Server": "tasks join by their resolver: run the script once per task, as "
    "`paceline launch` does",
    "tf.distribute.coordinator": "parameter servers are trained by tf.estimator.train_and_evaluate",
    "tf.distribute.experimental_set_strategy": "use `with strategy.scope():`",
    "tf.distribute.experimental.coordinator": "parameter servers are trained by "
    "tf.estimator.train_and_evaluate",
    "tf.distribute.experimental.PreemptionCheckpointHandler": "an Estimator saves when the process "
    "is told to end, and goes on from there",
    "tf.distribute.experimental.PreemptionWatcher": "an Estimator saves when the process is told "
    "to end; paceline.estimator.Preempted says so",
    "tf.distribute.experimental.TerminationConfig": "an Estimator saves when the process is told "
    "to end, and goes on from there",
    "tf.distribute.experimental.rpc": "use paceline.collectives",
    "tf.distribute.cluster_resolver.GCEClusterResolver": "use TFConfigClusterResolver",
    "tf.distribute.cluster_resolver.KubernetesClusterResolver": "set TF_CONFIG in the manifest "
    "(examples/kubernetes.py), and use TFConfigClusterResolver",
    "tf.distribute.cluster_resolver.KubernetesExecutableLocation": "set TF_CONFIG in the manifest",
    "tf.distribute.cluster_resolver.UnionResolver": "give one SimpleClusterResolver of a "
    "ClusterSpec",
    "tf.estimator.export.EvalOutput": "an export predicts; evaluate with Estimator.evaluate",
    **{
        f"tf.estimator.experimental.{name}": _WITH_HEAD
        for name in (
            "LinearSDCA",
            "RNNClassifier",
            "RNNEstimator",
            "call_logit_fn",
            "dnn_logit_fn_builder",
            "linear_logit_fn_builder",
        )
    },
    "tf.estimator.tpu": "there are no TPUs here; use tf.distribute.MirroredStrategy",
    "tf.train.Scaffold": "leave it away: variables are made with their values, and saved by the "
    "Estimator",
    "tf.train.MonitoredTrainingSession": "use tf.estimator.Estimator",
    "tf.train.Server": "use `paceline launch`, or run the script once per task",
    "tf.train.Saver": "use tf.train.Checkpoint, or an Estimator, which saves by itself",
    "tf.train.Coordinator": "use tf.data.Dataset",
    "tf.train.QueueRunner": "use tf.data.Dataset",
}


def advice() -> Mapping[str, str]:
    """What to use instead, by the full name."""
    return _INSTEAD
