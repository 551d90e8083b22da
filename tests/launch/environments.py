"""Train a tiny model as one of two workers, and print the weights, the rank and the mean loss."""

import sys

import numpy as np

import paceline as pl


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1), initializer=np.zeros((3, 1), np.float32))
    loss = np.mean(np.square(features @ w - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=pl.nn.optimizers.SGD(0.1).minimize(loss))


def input_fn(input_context):
    x = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    count, index = input_context.num_input_pipelines, input_context.input_pipeline_id
    return pl.Dataset.from_tensor_slices((x, x[:, :1])).shard(count, index).batch(4)


options = pl.CommunicationOptions(start_timeout_secs=60)
strategy = pl.MultiWorkerMirroredStrategy(communication_options=options)
config = pl.RunConfig(train_distribute=strategy)
estimator = pl.Estimator(model_fn, sys.argv[1], config).train(input_fn)
weights = estimator.get_variable_value("w").tobytes().hex()
print(config.num_worker_replicas, config.task_type, config.task_id, config.is_chief, weights)
