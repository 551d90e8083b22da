"""What N workers must give as one process does, as cases that any strategy can be put through.

Each case takes a strategy and a directory that all workers share, and returns arrays by name: the
same on every worker, and the same (to rounding, or to the bit) as on a single one. All workers run
the cases in the same order.
"""

import hashlib
from functools import partial

import numpy as np

import paceline as pl
from paceline.estimator import (
    LinearRegressor,
    SessionRunArgs,
    SessionRunHook,
    read_eval_metrics,
    stop_if_lower_hook,
)
from paceline.estimator.feature_column import numeric_column
from paceline.nn import Sequential, compute_average_loss, layers, losses, optimizers
from paceline.strategies import VariableStore, get_replica_context

G05_FIRST_LOSS = 0.7598197
CNN_STEPS = 30
CNN_GLOBAL_BATCH = 12
CHECKSUM_STEPS = 500


class Losses(SessionRunHook):
    """Notes the loss of each step."""

    def __init__(self):
        self.values = []

    def before_run(self, run_context):
        return SessionRunArgs("loss")

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def g01(strategy, directory):
    """The premade linear regressor of the guide, trained and evaluated over all workers."""

    def input_fn(input_context):
        dataset = pl.Dataset.from_tensors(({"feats": [1.0]}, [1.0])).repeat(1000)
        return dataset.shard(
            input_context.num_input_pipelines, input_context.input_pipeline_id
        ).batch(10)

    config = pl.RunConfig(model_dir=directory, train_distribute=strategy, eval_distribute=strategy)
    regressor = LinearRegressor([numeric_column("feats")], optimizer="SGD", config=config)
    hook = Losses()
    regressor.train(input_fn, hooks=[hook], steps=10)
    found = regressor.evaluate(input_fn, steps=10)
    return {
        "losses": np.array(hook.values, np.float32),
        "average_loss": found["average_loss"],
        "label/mean": found["label/mean"],
        "global_step": np.array(found["global_step"]),
        "weights": np.array(
            [
                regressor.get_variable_value(f"linear/linear_model/{name}").item()
                for name in ("feats/weights", "bias_weights")
            ],
            np.float32,
        ),
    }


def g05(strategy, directory):
    """The guide's custom loop: thirty losses of a dense layer, from batches of 20 in all."""
    z = -np.log(np.expm1(np.float64(G05_FIRST_LOSS)))  # loss = ln(1 + e^-z) at the first step
    with strategy.scope():
        model = Sequential(
            [layers.Dense(1, input_shape=(1,), kernel_initializer=lambda *_: np.full((1, 1), z))]
        )
        optimizer = optimizers.SGD()
    dataset = pl.Dataset.from_tensors(([1.0], [1.0])).repeat(600).batch(20)
    loss_object = losses.BinaryCrossentropy(from_logits=True, reduction=losses.Reduction.NONE)

    def step(inputs):
        features, labels = inputs
        with pl.GradientTape() as tape:
            per_example = loss_object(labels, model(features, training=True))
            loss = compute_average_loss(per_example, global_batch_size=20)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return {
        "losses": np.array(
            [
                strategy.reduce("SUM", strategy.run(step, (inputs,)))
                for inputs in strategy.experimental_distribute_dataset(dataset)
            ]
        )
    }


def g10(strategy, directory):
    """Four elements on each replica, and a last batch of which the last replica has only two."""
    n = strategy.num_replicas_in_sync

    def ranges(total):
        return strategy.run(lambda: np.arange(4 * _replica_id(), min(4 * _replica_id() + 4, total)))

    return {
        "sum over replicas": strategy.reduce("SUM", ranges(4 * n), axis=None),
        "sum over the batch": strategy.reduce("SUM", ranges(4 * n), axis=0),
        "mean over a last batch": strategy.reduce("MEAN", ranges(4 * n - 2), axis=0),
    }


def cnn(dtype, strategy, directory):
    """The tutorial's convolutional network, trained by an Estimator on shuffled shards."""
    config = pl.RunConfig(train_distribute=strategy, tf_random_seed=3)
    model_dir = f"{directory}/{dtype}"
    estimator = pl.Estimator(_cnn_model_fn, model_dir, config, params={"dtype": dtype})
    images, labels = _stripes(dtype)

    def input_fn(input_context):
        return (
            pl.Dataset.from_tensor_slices((images, labels))
            .shuffle(len(labels))
            .repeat()
            .shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
            .batch(input_context.get_per_replica_batch_size(CNN_GLOBAL_BATCH))
        )

    estimator.train(input_fn, steps=CNN_STEPS)
    names = [n for n in estimator.get_variable_names() if n.startswith(("conv2d", "dense"))]
    return {name: estimator.get_variable_value(name) for name in names}


def _cnn_model_fn(features, labels, mode, params):
    dtype = params["dtype"]
    model = Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", dtype=dtype),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu", dtype=dtype),
            layers.Dense(10, dtype=dtype),
        ]
    )
    logits = model(features, training=True)
    loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.05).minimize(loss))


def _stripes(dtype):
    """Images (512, 28, 28, 1) whose bright row tells their label."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 512)
    rows = np.eye(28)[labels * 2][:, :, None, None] * np.ones((1, 1, 28, 1))
    return (rows + 0.1 * rng.normal(size=rows.shape)).astype(dtype), labels


def checksums(strategy, directory):
    """CO-16: 500 steps on ragged global batches; a checksum of every copy of every variable.

    Each worker draws its initial values from a seed of its own: the chief's are taken.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(CHECKSUM_STEPS * 7, 5))
    dataset = pl.Dataset.from_tensor_slices((x, np.sin(x[:, :2]))).batch(7)
    store = VariableStore(seed=strategy.extended.worker_index, averages_replicas=True)
    with store.building(), strategy.scope():
        model = Sequential(
            [
                layers.Dense(8, activation="tanh", dtype="float64"),
                layers.Dense(2, dtype="float64"),
            ]
        )
        optimizer = optimizers.Adam(0.01)

        def step(batch):
            features, labels = batch
            loss = np.mean(np.square(model(features) - labels))
            optimizer.minimize(loss)(len(features))

        for batch in strategy.experimental_distribute_dataset(dataset):
            strategy.run(step, (batch,))
    variables = store.variables.values()
    copies = zip(*[strategy.experimental_local_results(v) for v in variables], strict=True)
    return {
        "checksums": np.array([_checksum(copy) for copy in copies]),
        **{v.name: v.numpy() for v in model.variables},
    }


def _checksum(arrays):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def early_stopping(strategy, directory):
    """B9: training ends with the step after the first evaluation whose loss is below a limit."""

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (3, 1), np.float64, lambda *_: np.zeros((3, 1)))
        loss = np.mean(np.square(features @ w - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.05).minimize(loss))

    def input_fn(input_context):
        rng = np.random.default_rng(5)
        x = rng.normal(size=(12 * 50, 3))
        pipelines = input_context.num_input_pipelines, input_context.input_pipeline_id
        dataset = pl.Dataset.from_tensor_slices((x, x @ np.array([[1.0], [-2.0], [0.5]])))
        return dataset.shard(*pipelines).batch(input_context.get_per_replica_batch_size(12))

    config = pl.RunConfig(
        train_distribute=strategy, eval_distribute=strategy, save_checkpoints_steps=3
    )
    estimator = pl.Estimator(model_fn, directory, config)
    hook = stop_if_lower_hook(estimator, "loss", 1.0, run_every_secs=None, run_every_steps=1)
    result = pl.train_and_evaluate(
        estimator,
        pl.TrainSpec(input_fn, hooks=[hook]),
        pl.EvalSpec(input_fn, steps=None, throttle_secs=0),
    )
    return {
        "global_step": np.array(result.global_step),
        "loss": np.array(result.metrics["loss"]),
        "evaluated": np.array(list(read_eval_metrics(estimator.eval_dir()))),
        "w": estimator.get_variable_value("w"),
    }


def _replica_id():
    return get_replica_context().replica_id_in_sync_group


CASES = {
    "G-01": g01,
    "G-05": g05,
    "G-10": g10,
    "CNN float64": partial(cnn, "float64"),
    "CNN float32": partial(cnn, "float32"),
    "CO-16": checksums,
    "B9": early_stopping,
}


def run_all(strategy, directory):
    """The results of all cases: case → name → array."""
    return {
        name: case(strategy, f"{directory}/{name.replace(' ', '-')}")
        for name, case in CASES.items()
    }
