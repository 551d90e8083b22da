"""A small job, for the tests of this folder and of tests/launch. It may be told to fail.

It prints AT THE FAULT just before it fails, otherwise where it ended and how often it evaluated.
"""

import argparse
import os
import signal

import numpy as np

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.nn import optimizers

parser = argparse.ArgumentParser()
parser.add_argument("model_dir")
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--save-every", type=int, default=10, help="0: as often as by default")
parser.add_argument("--timeout-secs", type=float, default=60)
parser.add_argument("--silence-secs", type=float, default=20)
parser.add_argument("--start-timeout-secs", type=float, default=60)
parser.add_argument("--fault", choices=("kill", "exit", "raise", "stop"))
parser.add_argument("--by", help="who fails, for example 'worker 1'")
parser.add_argument("--at", type=int, default=25, help="the step at which it fails")
parser.add_argument("--once", action="store_true", help="it does not fail after a restart")
parser.add_argument("--replay-steps", action="store_true", help="the model is not called in most")
arguments = parser.parse_args()
num_evaluations = 0


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1), initializer=np.zeros((3, 1), np.float32))
    loss = np.mean(np.square(features @ w - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.01).minimize(loss))


def examples():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    return pl.Dataset.from_tensor_slices((x, x[:, :1]))


def train_input_fn(input_context):
    count, index = input_context.num_input_pipelines, input_context.input_pipeline_id
    return examples().shard(count, index).repeat().batch(16 // count)


def eval_input_fn():
    global num_evaluations
    num_evaluations += 1
    return examples().batch(32)


class Fault(SessionRunHook):
    def after_run(self, run_context, run_values):
        if run_context.session.global_step == arguments.at:
            fail()


def fail():
    print("AT THE FAULT", flush=True)
    match arguments.fault:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise KeyError("something is missing")


options = pl.CommunicationOptions(
    timeout_seconds=arguments.timeout_secs,
    silence_secs=arguments.silence_secs,
    start_timeout_secs=arguments.start_timeout_secs,
)
strategy = pl.MultiWorkerMirroredStrategy(communication_options=options)
how_often = {"save_checkpoints_steps": arguments.save_every} if arguments.save_every else {}
config = pl.RunConfig(train_distribute=strategy, replay_steps=arguments.replay_steps, **how_often)
task = f"{config.task_type} {config.task_id}"
fails = arguments.by == task
if arguments.once and os.environ.get("PACELINE_RESTART_COUNT", "0") != "0":
    fails = False
if fails and config.task_type == "evaluator":
    eval_input_fn = fail
estimator = pl.Estimator(model_fn, arguments.model_dir, config)
train_spec = pl.TrainSpec(
    train_input_fn, max_steps=arguments.steps, hooks=[Fault()] if fails else []
)
eval_spec = pl.EvalSpec(eval_input_fn, start_delay_secs=0, throttle_secs=0)
end = pl.train_and_evaluate(estimator, train_spec, eval_spec)
times = "once" if num_evaluations == 1 else f"{num_evaluations} times"
print(f"{task} ended at step {end.global_step}, loss {end.metrics['loss']:.6f}, evaluated {times}")
