"""A run that is killed at any operation on a file, and started again, ends as one that was not."""

import json
import subprocess
import sys

import pytest

# Trains in children, each of which dies at another file operation of its own, and trains again in
# the same directory in a second child. Prints how many died, what an undisturbed run ends with, and
# where something else came of it.
DRIVER = """
import itertools, json, logging, os, sys
import numpy as np
import paceline as pl
from paceline.nn import optimizers

root, first, stride = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "ctypes.dlsym"}
X = np.arange(24, dtype=np.float32).reshape(12, 2) / 24


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (2,), initializer=0.5)
    loss = np.mean(np.square(features @ w - 1))
    op = optimizers.SGD(0.1, momentum=0.9).minimize(loss) if mode == "train" else None
    return pl.EstimatorSpec(mode, loss=loss, train_op=op)


def input_fn():
    return pl.Dataset.from_tensor_slices(X).shuffle(12, seed=1).repeat().batch(4)


def train(model_dir):
    config = pl.RunConfig(
        save_checkpoints_steps=2, keep_checkpoint_max=1, keep_checkpoint_best="loss",
        log_step_count_steps=None,
    )
    spec = pl.EvalSpec(lambda: pl.Dataset.from_tensor_slices(X).batch(12), throttle_secs=0)
    estimator = pl.Estimator(model_fn, model_dir, config)
    result = pl.train_and_evaluate(estimator, pl.TrainSpec(input_fn, max_steps=5), spec)
    mark = json.load(open(os.path.join(model_dir, "training_ended.json")))
    names = estimator.get_variable_names()
    values = {name: estimator.get_variable_value(name).tolist() for name in names}
    loss = float(result.metrics["loss"])
    return json.dumps([values, loss, result.global_step, mark["global_step"]])


def child(model_dir, fatal):
    count = 0
    def watch(event, arguments):
        nonlocal count
        if event in WATCHED:
            count += 1
            if count == fatal:
                os._exit(9)
    sys.addaudithook(watch)
    return train(model_dir)


def forked(function, *arguments):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(write_end, function(*arguments).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, os.read(read_end, 1 << 16).decode()


logging.getLogger("paceline").setLevel(logging.ERROR)
train(os.path.join(root, "warm-up"))  # imports open files too
expected = forked(train, os.path.join(root, "undisturbed"))[1]
num_killed, others = 0, []
for fatal in itertools.count(first, stride):
    model_dir = os.path.join(root, f"run-{fatal}")
    status, _ = forked(child, model_dir, fatal)
    if status == 0:
        break
    assert status == 9, status
    num_killed += 1
    steps = {step: path for path, step in pl.checkpoint.list_checkpoints(model_dir)}
    is_newest = pl.checkpoint.latest_checkpoint(model_dir) == (steps[max(steps)] if steps else None)
    status, found = forked(train, model_dir)
    left = [name for name in os.listdir(model_dir) if name.startswith(".paceline-tmp")]
    if status or found != expected or left or not is_newest:
        others.append((fatal, status, found, left, is_newest))
print(json.dumps([num_killed, expected, others]))
"""


@pytest.mark.parametrize(
    ("first", "stride"),
    [(1, 11), pytest.param(1, 1, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_a_run_killed_at_any_file_operation_ends_as_an_undisturbed_one(tmp_path, first, stride):
    command = [sys.executable, "-c", DRIVER, str(tmp_path), str(first), str(stride)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert result.returncode == 0, result.stderr
    num_killed, expected, others = json.loads(result.stdout)
    assert others == [], f"expected {expected}"
    assert num_killed > 100 / stride
