"""ST-47: a strategy, and the Estimator that has it, are there before anybody knows of a cluster."""

import json
import sys

from paceline.cluster import local_cluster

from .conftest import run_together

PROGRAM = """
import json, sys
import numpy as np
import paceline as pl
from paceline.nn import layers, optimizers

def model_fn(features, labels, mode):
    dense = layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="dense")
    loss = np.mean(np.square(dense(features) - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

def input_fn(input_context):
    examples = np.float32([[1], [3]]), np.float32([[2], [4]])
    shard = input_context.num_input_pipelines, input_context.input_pipeline_id
    return pl.Dataset.from_tensor_slices(examples).shard(*shard).batch(1)

directory, told = sys.argv[1], json.loads(sys.argv[2])
strategy = pl.MultiWorkerMirroredStrategy()
estimator = pl.Estimator(model_fn, directory, pl.RunConfig(train_distribute=strategy))
assert estimator.config.num_worker_replicas == 1
task = told["task"]
strategy.configure(cluster_spec=told["cluster"], task_type=task["type"], task_id=task["index"])
estimator.train(input_fn, steps=1)
config = estimator.config
weight = estimator.get_variable_value("dense/kernel").item()
print("found", config.task_id, config.is_chief, config.num_worker_replicas, f"{weight:.6f}")
try:
    strategy.configure(cluster_spec=told["cluster"], task_type=task["type"], task_id=task["index"])
except RuntimeError as error:
    print("found", error)
"""


def test_st_47_an_estimator_made_before_its_cluster_is_known_trains_on_two_workers(tmp_path):
    """One step on both examples: 0.1 · mean(2 · 1 · 2, 2 · 3 · 4) = 1.4."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = run_together([([*command, json.dumps(told)], {}) for told in local_cluster(2)])
    ended.require_success()
    for index, output in enumerate(ended.outputs):
        first, again = [line for line in output.splitlines() if line.startswith("found")]
        assert first == f"found {index} {index == 0} 2 1.400000"
        assert f"is worker {index} of 2 already and cannot be configured anew" in again
