"""One task of a small job with parameter servers, for the tests of this folder.

It prints each fifth of its steps, and where it ended. It trains until the file `--until` is there.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import numpy as np

import paceline as pl
from paceline import checkpoint
from paceline.collectives import DEFAULT_LINKS
from paceline.estimator import SessionRunHook
from paceline.nn import layers, optimizers

parser = argparse.ArgumentParser()
parser.add_argument("model_dir")
parser.add_argument("--until", type=Path, help="a file: all stop when it is there")
parser.add_argument("--max-steps", type=int)
parser.add_argument("--num-epochs", type=int, help="of the input; without end by default")
parser.add_argument("--max-staleness", type=int)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--absence-secs", type=float, default=60)
parser.add_argument("--silence-secs", type=float, default=20)
parser.add_argument("--start-timeout-secs", type=float, default=60)
parser.add_argument("--links", nargs="+", default=DEFAULT_LINKS)
parser.add_argument("--strategy", default="ParameterServer")
parser.add_argument("--by", help="to whom what follows happens, for example 'worker 1'")
parser.add_argument("--no-data", action="store_true")
parser.add_argument("--nan", action="store_true", help="the labels are no numbers")
parser.add_argument("--one-batch", action="store_true")
parser.add_argument("--pause-secs", type=float, default=0.0, help="each step takes longer")
parser.add_argument("--sigterm-after", type=int, help="so many of its steps it is asked to end")
parser.add_argument("--dies-in-write", type=int, help="of which checkpoint, counted from 1")
arguments = parser.parse_args()

NUM_ROWS = 40


def model_fn(features, labels, mode):
    rows = layers.Embedding(NUM_ROWS, 4, name="table")(features["row"])
    hidden = layers.Dense(6, activation="tanh", name="hidden")(
        np.concatenate([features["x"], rows], axis=1)
    )
    loss = np.mean(np.square(layers.Dense(1, name="out")(hidden) - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(0.01).minimize(loss))


def examples():
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 3)).astype(np.float32)
    y = x[:, :1] * (np.nan if arguments.nan and is_concerned else 1)
    return pl.Dataset.from_tensor_slices(
        ({"x": x, "row": random.integers(0, NUM_ROWS, 240)}, y.astype(np.float32))
    )


def train_input_fn(input_context):
    count, index = input_context.num_input_pipelines, input_context.input_pipeline_id
    dataset = examples().shard(count, index).repeat(arguments.num_epochs)
    if is_concerned and (arguments.no_data or arguments.one_batch):
        dataset = examples().take(8 if arguments.one_batch else 0)
    return dataset.batch(8)


def eval_input_fn():
    return examples().batch(60)


class Watch(SessionRunHook):
    num_steps = 0

    def after_create_session(self, session, coord=None):
        print(f"begins at step {session.global_step}", flush=True)

    def after_run(self, run_context, run_values):
        self.num_steps += 1
        if self.num_steps % 5 == 0:
            print(f"step {run_context.session.global_step}", flush=True)
        if is_concerned and self.num_steps == arguments.sigterm_after:
            os.kill(os.getpid(), signal.SIGTERM)
        if arguments.until and arguments.until.exists():
            run_context.request_stop()
        if is_concerned and arguments.pause_secs:
            time.sleep(arguments.pause_secs)


def die_in_write():
    write, num_left = checkpoint.write_shard, arguments.dies_in_write

    def write_or_die(*given):
        nonlocal num_left
        num_left -= 1
        if num_left == 0:
            print("AT THE FAULT", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*given)

    checkpoint.write_shard = write_or_die


options = pl.CommunicationOptions(
    silence_secs=arguments.silence_secs,
    start_timeout_secs=arguments.start_timeout_secs,
    links=arguments.links,
)
strategy = None
if arguments.strategy == "ParameterServer":
    strategy = pl.ParameterServerStrategy(
        max_staleness=arguments.max_staleness,
        absence_secs=arguments.absence_secs,
        communication_options=options,
    )
elif arguments.strategy == "MultiWorkerMirrored":
    strategy = pl.MultiWorkerMirroredStrategy(communication_options=options)
config = pl.RunConfig(
    train_distribute=strategy, tf_random_seed=1, save_checkpoints_steps=arguments.save_every
)
task = f"{config.task_type} {config.task_id}"
is_concerned = arguments.by == task
if is_concerned and arguments.dies_in_write:
    die_in_write()
end = pl.train_and_evaluate(
    pl.Estimator(model_fn, arguments.model_dir, config),
    pl.TrainSpec(train_input_fn, max_steps=arguments.max_steps, hooks=[Watch()]),
    pl.EvalSpec(eval_input_fn, start_delay_secs=0, throttle_secs=0),
)
loss = end.metrics.get("loss")
print(f"{task} ended at step {end.global_step}, loss {loss}: {end.ended}", flush=True)
