"""One task of a job: the same small model by every front end, under some strategies.

    program.py DIRECTORY STRATEGY...

The weights, or the error, of each go to "DIRECTORY/FRONT_END-STRATEGY-TASK.json". The tasks of a
job share the directory.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import paceline as pl
from paceline.cluster import resolve
from paceline.nn import Sequential, compute_average_loss, layers, optimizers

GLOBAL_BATCH, STEPS, RATE = 8, 4, 0.1
CPUS = ["CPU:0", "CPU:1"]
MAKERS = {
    "Default": pl.get_strategy,
    "OneDevice": lambda: pl.OneDeviceStrategy("CPU:0"),
    "Mirrored": lambda: pl.MirroredStrategy(CPUS),
    "CentralStorage": lambda: pl.CentralStorageStrategy(CPUS),
    "TPU (simulated)": lambda: pl.TPUStrategy(simulate=2),
    "MultiWorkerMirrored": lambda: pl.MultiWorkerMirroredStrategy(devices=CPUS),
    "ParameterServer": lambda: pl.ParameterServerStrategy(max_staleness=0),
}


def examples():
    x = np.random.default_rng(0).normal(size=(GLOBAL_BATCH * STEPS, 2)).astype(np.float32)
    return x, x @ np.array([[1.0], [-2.0]], np.float32)


def oracle():
    """The weights after so many steps of one process, in NumPy."""
    x, y = examples()
    w = np.zeros((2, 1), np.float32)
    for begin in range(0, len(x), GLOBAL_BATCH):
        part = slice(begin, begin + GLOBAL_BATCH)
        w = w - RATE * 2 * x[part].T @ (x[part] @ w - y[part]) / GLOBAL_BATCH
    return w.ravel().tolist()


def dense():
    return layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="dense")


def by_estimator(strategy, directory):
    def model_fn(features, labels, mode):
        loss = np.mean(np.square(dense()(features) - labels))
        train_op = optimizers.SGD(RATE).minimize(loss) if mode == pl.ModeKeys.TRAIN else None
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(input_context):
        dataset = pl.Dataset.from_tensor_slices(examples()).shard(
            input_context.num_input_pipelines, input_context.input_pipeline_id
        )
        return dataset.batch(input_context.get_per_replica_batch_size(GLOBAL_BATCH))

    config = pl.RunConfig(train_distribute=strategy)
    estimator = pl.Estimator(model_fn, directory / "model", config)
    spec = pl.TrainSpec(input_fn, max_steps=STEPS), pl.EvalSpec(input_fn, steps=1)
    pl.train_and_evaluate(estimator, *spec)
    return estimator.get_variable_value("dense/kernel")


def by_loop(strategy, directory):
    return optimizers.train_or_serve(strategy, lambda: loop(strategy))


def loop(strategy):
    with strategy.scope():
        model = Sequential([dense()])
        optimizer = optimizers.SGD(RATE)

    def step(batch):
        features, labels = batch
        with pl.GradientTape() as tape:
            per_example = np.square(model(features, training=True) - labels)[:, 0]
            loss = compute_average_loss(per_example, global_batch_size=GLOBAL_BATCH)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def dataset_fn(context):
        shard = context.num_input_pipelines, context.input_pipeline_id
        per_replica = context.get_per_replica_batch_size(GLOBAL_BATCH)
        return pl.Dataset.from_tensor_slices(examples()).shard(*shard).batch(per_replica)

    for batch in strategy.distribute_datasets_from_function(dataset_fn):
        strategy.run(step, (batch,))
    return model.trainable_variables[0].numpy()


def by_fit(strategy, directory):
    try:
        return fit(strategy)
    except SystemExit:  # of a parameter server, when it has served
        return None


def fit(strategy):
    with strategy.scope():
        model = Sequential([dense()])
    model.compile(optimizers.SGD(RATE), loss="mse")
    data = pl.Dataset.from_tensor_slices(examples()).batch(GLOBAL_BATCH)
    model.fit(data, verbose=0)
    return model.trainable_variables[0].numpy()


FRONT_ENDS = {"Estimator": by_estimator, "fit": by_fit, "loop": by_loop}


def run(name, front_end, directory):
    """The weights that a front end ends with under the strategy `name`; or the text of an error."""
    try:
        strategy = MAKERS[name]()
    except ValueError as error:
        return str(error)
    weights = FRONT_ENDS[front_end](strategy, Path(directory, f"{front_end}-{name}"))
    return None if weights is None else np.ravel(weights).tolist()


def main(directory, names):
    resolver = resolve(os.environ)
    servers = range(resolver.cluster_spec().num_tasks("ps"))
    for name in names:
        for front_end in FRONT_ENDS:
            result = json.dumps(run(name, front_end, directory))
            done = Path(directory, f"{front_end}-{name}")
            finish(f"{done}-{resolver.task}.json", result)
            # The next job is that of other servers, at the same addresses.
            for server in servers:
                wait_for(Path(f"{done}-ps {server}.json"))


def finish(path, text):
    """Write a file at once as a whole."""
    Path(f"{path}.new").write_text(text)
    Path(f"{path}.new").rename(path)


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
