"""SIGTERM (preemption) and Ctrl-C: the step is finished and its checkpoint saved.

The exit code is 143 after SIGTERM, and that of any other KeyboardInterrupt after Ctrl-C.
"""

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import list_checkpoints, load
from paceline.cluster import free_ports
from paceline.estimator import Preempted, SessionRunHook

MAX_STEPS = 12

# Trains to MAX_STEPS and tells each step; after the step of its argument it waits for a line, so
# that a signal that was sent before the line has come by then.
TRAIN = """
import json, os, sys
import numpy as np
import paceline as pl
from paceline.nn import optimizers
from paceline.estimator import SessionRunHook

model_dir, (wait_after, num_lines), options = sys.argv[1], map(int, sys.argv[2:4]), sys.argv[4]
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 3)).astype(np.float32)
y = x @ np.array([[1.0], [-2.0], [0.5]], np.float32)

def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1), initializer=0.0)
    loss = np.mean(np.square(features @ w - labels))
    train_op = optimizers.SGD(0.1, momentum=0.9).minimize(loss) if mode == "train" else None
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

def input_fn(input_context=None):
    data = pl.Dataset.from_tensor_slices((x, y))
    if input_context and input_context.num_input_pipelines > 1:
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return data.shuffle(64, seed=3).repeat().batch(4)

class Tell(SessionRunHook):
    def after_run(self, run_context, run_values):
        step = run_context.session.global_step
        print("step", step, repr(run_context.session.loss), flush=True)
        if step == wait_after:
            for _ in range(num_lines):
                print("waits", flush=True)
                sys.stdin.readline()

strategy = pl.MultiWorkerMirroredStrategy() if "TF_CONFIG" in os.environ else None
config = pl.RunConfig(
    train_distribute=strategy, tf_random_seed=1, save_checkpoints_steps=100, **json.loads(options)
)
estimator = pl.Estimator(model_fn, model_dir, config)
try:
    pl.train_and_evaluate(
        estimator,
        pl.TrainSpec(input_fn, MAX_STEPS, [Tell()]),
        pl.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=0),
    )
    print("trained", flush=True)
finally:
    print("finally", flush=True)
""".replace("MAX_STEPS", str(MAX_STEPS))


class Task:
    """One process of a job."""

    def __init__(self, model_dir, wait_after, num_lines=1, options=None, tf_config=None):
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        if tf_config:
            environ["TF_CONFIG"] = json.dumps(tf_config)
        arguments = [model_dir, wait_after, num_lines, json.dumps(options or {})]
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAIN, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self.lines = []

    def wait_for(self, line):
        while not self.lines or self.lines[-1] != line:
            read = self.process.stdout.readline()
            assert read, self.process.stderr.read()
            self.lines.append(read.strip())

    def terminate(self, number=signal.SIGTERM):
        """The signal has come when the process reads the line after it."""
        self.process.send_signal(number)
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """Its exit code."""
        out, self.errors = self.process.communicate(timeout=60)
        self.lines += out.splitlines()
        return self.process.returncode

    def losses(self):
        """Step to loss."""
        told = [line.split() for line in self.lines if line.startswith("step")]
        return {int(step): float(loss) for _, step, loss in told}


@pytest.fixture
def start():
    tasks = []

    def start(*arguments, **options):
        tasks.append(Task(*arguments, **options))
        return tasks[-1]

    yield start
    for task in tasks:
        if task.process.poll() is None:
            task.process.kill()
            task.process.communicate()


def steps_saved(model_dir):
    return [step for _, step in list_checkpoints(model_dir)]


def test_a_preempted_run_saves_and_goes_on_as_if_it_had_not_been(start, tmp_path):
    """Exit code 143, `finally` runs, and the losses are those of an uninterrupted run."""
    straight = start(tmp_path / "straight", -1)
    assert straight.end() == 0, straight.errors

    first = start(tmp_path / "model", 5)
    first.wait_for("waits")
    first.terminate()
    assert first.end() == 143, first.errors
    assert first.lines[-1] == "finally"
    assert "trained" not in first.lines
    assert "SIGTERM: the run ends after step 6" in first.errors
    assert f"Training ended at step 6 of {MAX_STEPS}: a signal asked to end it." in first.errors
    assert steps_saved(tmp_path / "model") == [0, 6]
    assert not (tmp_path / "model" / "training_ended.json").exists()

    second = start(tmp_path / "model", -1)
    assert second.end() == 0, second.errors
    assert {**first.losses(), **second.losses()} == straight.losses()
    last = f"model.ckpt-{MAX_STEPS}"
    for name in load(tmp_path / "model" / last).names:
        found, expected = (load(tmp_path / d / last).read(name) for d in ("model", "straight"))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_second_signal_ends_at_once(start, tmp_path, number, code):
    task = start(tmp_path, 5, 2)
    task.wait_for("waits")
    task.terminate(number)
    task.lines.clear()
    task.wait_for("waits")
    task.terminate(number)
    assert task.end() == code, task.errors
    assert task.lines[-1] == "finally"
    assert steps_saved(tmp_path) == [0]


def test_ctrl_c_saves_and_says_so_in_a_line_and_a_short_traceback(start, tmp_path):
    task = start(tmp_path, 5)
    task.wait_for("waits")
    task.terminate(signal.SIGINT)
    assert task.end() == -signal.SIGINT, "a shell shows 130"
    assert steps_saved(tmp_path) == [0, 6]
    before, traceback = task.errors.split("Traceback (most recent call last):")
    assert before.count("Ctrl-C") == 1
    assert "Ctrl-C: the run ends after step 6" in before
    frames = [line for line in traceback.splitlines() if line.startswith("  File")]
    assert len(frames) <= 3
    assert traceback.endswith("\nKeyboardInterrupt: step 6 is saved\n")


def test_who_opts_out_ends_as_the_system_has_it(start, tmp_path):
    task = start(tmp_path, 5, options={"save_checkpoints_on_sigterm": False})
    task.wait_for("waits")
    task.terminate()
    assert task.end() == -signal.SIGTERM
    assert steps_saved(tmp_path) in ([], [0]), "the one that was under way may be there"


@pytest.mark.parametrize("told", [0, 1], ids=["the chief", "another worker"])
def test_all_workers_end_at_the_same_step_when_one_is_told_to(start, tmp_path, told):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    tasks = [
        start(
            tmp_path,
            5 if index == told else -1,
            tf_config={
                "cluster": {"worker": addresses},
                "task": {"type": "worker", "index": index},
            },
        )
        for index in range(2)
    ]
    tasks[told].wait_for("waits")
    tasks[told].terminate()
    assert [task.end() for task in tasks] == [143, 143], [task.errors for task in tasks]
    assert [max(task.losses()) for task in tasks] == [6, 6]
    assert [task.lines[-1] for task in tasks] == ["finally"] * 2
    assert steps_saved(tmp_path) == [0, 6]
    states = load(tmp_path / "model.ckpt-6").state["input"]
    assert len(states) == 2, "both can go on"


def test_an_evaluator_just_ends(start, tmp_path):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(1)]
    task = start(
        tmp_path,
        -1,
        tf_config={"cluster": {"worker": addresses}, "task": {"type": "evaluator", "index": 0}},
    )
    while "Using config" not in (line := task.process.stderr.readline()):
        assert line
    task.process.send_signal(signal.SIGTERM)
    assert task.end() in (143, -signal.SIGTERM), "before or after it listens"
    assert os.listdir(tmp_path) == []


class TellsItself(SessionRunHook):
    """Sends a signal to this process after a step."""

    def __init__(self, step, number=signal.SIGTERM):
        self._step = step
        self._number = number

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self._step:
            os.kill(os.getpid(), self._number)


def test_the_handler_of_ctrl_c_is_there_for_the_run_only(estimator, input_fn):
    before = signal.getsignal(signal.SIGINT)
    assert before is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt, match="step 4 is saved"):
        estimator.train(input_fn, hooks=[TellsItself(3, signal.SIGINT)], steps=10)
    assert signal.getsignal(signal.SIGINT) is before
    assert steps_saved(estimator.model_dir) == [0, 4]
    estimator.train(input_fn, max_steps=6)
    assert signal.getsignal(signal.SIGINT) is before


def test_who_opts_out_of_saving_has_python_s_ctrl_c(linear_model_fn, tmp_path, input_fn):
    config = pl.RunConfig(save_checkpoints_on_sigterm=False)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    with pytest.raises(KeyboardInterrupt) as caught:
        estimator.train(input_fn, hooks=[TellsItself(3, signal.SIGINT)], steps=10)
    assert not caught.value.args
    assert steps_saved(tmp_path) == [0]


def test_a_handler_of_ctrl_c_of_the_user_stays(estimator, input_fn):
    came = []
    before = signal.signal(signal.SIGINT, lambda *args: came.append(args))
    try:
        estimator.train(input_fn, hooks=[TellsItself(3, signal.SIGINT)], steps=5)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(came) == 1
    assert steps_saved(estimator.model_dir) == [0, 5]


def test_the_handler_is_there_for_the_run_only(estimator, input_fn):
    before = signal.getsignal(signal.SIGTERM)
    assert before == signal.SIG_DFL
    with pytest.raises(Preempted) as caught:
        estimator.train(input_fn, hooks=[TellsItself(3)], steps=10)
    assert (caught.value.code, caught.value.global_step) == (143, 4)
    assert isinstance(caught.value, SystemExit)
    assert signal.getsignal(signal.SIGTERM) == before
    estimator.train(input_fn, max_steps=6)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_of_the_user_stays(estimator, input_fn):
    came = []
    before = signal.signal(signal.SIGTERM, lambda *args: came.append(args))
    try:
        estimator.train(input_fn, hooks=[TellsItself(3)], steps=5)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(came) == 1
    assert steps_saved(estimator.model_dir) == [0, 5]


def test_sigterm_at_the_last_step_saves_it_as_the_end(estimator, input_fn):
    with pytest.raises(Preempted):
        estimator.train(input_fn, hooks=[TellsItself(4)], max_steps=5)
    newest = load(estimator.latest_checkpoint())
    assert newest.step == 5
    assert "input" not in newest.state, "the run was at its end"


def test_sigterm_after_the_last_step_ends_the_process_too(estimator, input_fn):
    with pytest.raises(Preempted) as caught:
        estimator.train(input_fn, hooks=[TellsItself(5)], max_steps=5)
    assert caught.value.global_step == 5
    assert steps_saved(estimator.model_dir) == [0, 5]


def test_an_error_of_the_run_is_not_hidden_by_sigterm(estimator, input_fn):
    class Fail(SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step == 3:
                raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        estimator.train(input_fn, hooks=[TellsItself(3), Fail()], steps=5)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_forked_meanwhile_ends_as_the_system_has_it(estimator, input_fn):
    """Such as the workers of a pool, which are asked to end by SIGTERM."""
    codes = []

    class Forks(SessionRunHook):
        def after_run(self, run_context, run_values):
            parent_end, child_end = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os.write(child_end, b"here")  # Python forgets what comes before
                while True:
                    pass
            os.read(parent_end, 4)
            os.kill(child, signal.SIGTERM)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            os.close(parent_end)
            os.close(child_end)

    estimator.train(input_fn, hooks=[Forks()], steps=2)
    assert codes == [-signal.SIGTERM] * 2


def test_in_another_thread_nothing_is_installed(estimator, input_fn):
    errors = []

    def train():
        try:
            estimator.train(input_fn, steps=3)
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert errors == []


class WantsEnd(SessionRunHook):
    def __init__(self, wants, step):
        self._wants = wants
        self._step = step

    def before_run(self, run_context):
        if self._wants and run_context.session.global_step == self._step - 1:
            run_context.session.wants_end = True


@pytest.mark.parametrize("save_every", [2, 3, 100])
def test_workers_agree_and_save_once(on_workers, linear_model_fn, input_fn, tmp_path, save_every):
    """Also where the step was due for saving anyway: the input can be continued from it."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=save_every)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        with pytest.raises(Preempted) as caught:
            estimator.train(input_fn, hooks=[WantsEnd(index == 1, 4)], steps=10)
        return caught.value.global_step

    assert on_workers(3, 1, work) == [4, 4, 4]
    newest = load(tmp_path / "model.ckpt-4")
    assert len(newest.state["input"]) == 3
    assert max(steps_saved(tmp_path)) == 4


def test_train_and_evaluate_leaves_without_a_last_evaluation(estimator, input_fn, one_pass):
    """There is no time for it, and the run has not ended."""
    evaluated = []

    class Evaluates(SessionRunHook):
        def begin(self):
            evaluated.append(True)

    def run(hooks):
        return pl.train_and_evaluate(
            estimator,
            pl.TrainSpec(input_fn, 6, hooks),
            pl.EvalSpec(one_pass, hooks=[Evaluates()], start_delay_secs=0),
        )

    with pytest.raises(Preempted):
        run([TellsItself(3)])
    assert evaluated == []
    assert not os.path.exists(os.path.join(estimator.model_dir, "training_ended.json"))
    assert run([]).global_step == 6
    assert evaluated
