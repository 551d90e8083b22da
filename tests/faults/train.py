"""A worker of a small job, for the tests beside this file: trains until it is told to stop."""

import os
import signal
import sys

import numpy as np

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.nn import optimizers

model_dir, fault, fault_index = sys.argv[1], sys.argv[2], int(sys.argv[3])
FAULT_STEP = 20


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1))
    loss = np.mean(np.square(features @ w - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.01).minimize(loss))


def input_fn():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    return pl.Dataset.from_tensor_slices((x, x[:, :1])).repeat().batch(8)


class Fault(SessionRunHook):
    def after_run(self, run_context, run_values):
        if run_context.session.global_step != FAULT_STEP:
            return
        print("AT THE FAULT", flush=True)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault == "raise":
            raise KeyError("something is missing")
        elif fault == "exit":
            os._exit(3)


strategy = pl.MultiWorkerMirroredStrategy(
    communication_options=pl.CommunicationOptions(timeout_seconds=3, start_timeout_secs=2)
)
config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=10)
estimator = pl.Estimator(model_fn, model_dir, config)
hooks = [Fault()] if strategy.extended.worker_index == fault_index else []
estimator.train(input_fn, hooks=hooks, max_steps=100_000 if fault != "none" else 40)
