"""IN-26, D-23: a run that was interrupted goes on with exactly the elements that were left."""

import logging
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline.estimator import SessionRunHook
from paceline.nn import optimizers

NUM_EXAMPLES = 30
EVERY = 3
DIES_AT = 5


class DiedError(Exception):
    pass


class Die(SessionRunHook):
    def __init__(self, step):
        self._step = step

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self._step:
            raise DiedError


def run(on_workers, directory, num_workers, num_replicas=1, dies_at=None, make=None, steps=8):
    """Train; the examples that the replicas saw in each step, by step."""
    seen = {}

    def model_fn(features, labels, mode):
        if len(features):
            step = int(pl.get_or_create_global_step())
            seen.setdefault(step, []).extend(features[:, 0].astype(int).tolist())
        w = pl.get_variable("w", (1, 1))
        loss = np.mean(np.square(features @ w - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(1e-4).minimize(loss))

    def input_fn(input_context):
        shard = input_context.num_input_pipelines, input_context.input_pipeline_id
        x = np.arange(NUM_EXAMPLES, dtype=np.float32)[:, None]
        dataset = pl.Dataset.from_tensor_slices((x, x))
        return (make or shuffled)(dataset, shard)

    def work(strategy, index):
        config = pl.RunConfig(
            train_distribute=strategy, save_checkpoints_steps=EVERY, tf_random_seed=5
        )
        estimator = pl.Estimator(model_fn, directory, config)
        with suppress(DiedError):
            estimator.train(input_fn, hooks=[Die(dies_at)] if dies_at else [], max_steps=steps)

    on_workers(num_workers, num_replicas, work)
    return {step: sorted(found) for step, found in sorted(seen.items())}


def shuffled(dataset, shard):
    return dataset.shuffle(NUM_EXAMPLES, seed=1).repeat().shard(*shard).batch(2)


@pytest.mark.parametrize(("num_workers", "num_replicas"), [(1, 1), (1, 2), (2, 1), (3, 2)])
def test_in_26_d_23_the_steps_after_the_checkpoint_see_what_they_would_have_seen(
    on_workers, tmp_path, num_workers, num_replicas, caplog
):
    caplog.set_level(logging.INFO, "paceline")
    whole = run(on_workers, tmp_path / "whole", num_workers, num_replicas)
    run(on_workers, tmp_path / "parts", num_workers, num_replicas, dies_at=DIES_AT)
    caplog.clear()
    rest = run(on_workers, tmp_path / "parts", num_workers, num_replicas)
    assert rest == {step: whole[step] for step in range(EVERY, 8)}
    assert "The input goes on where the last run stopped." in caplog.text


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
def test_another_number_of_workers_sees_each_element_once_an_epoch(
    on_workers, tmp_path, before, after
):
    first = run(on_workers, tmp_path, before, dies_at=DIES_AT)
    num_saved = EVERY * before * 2
    steps_left = (NUM_EXAMPLES - num_saved) // (2 * after)
    rest = run(on_workers, tmp_path, after, steps=EVERY + steps_left)
    seen = [x for step in range(EVERY) for x in first[step]]
    seen += [x for step, found in rest.items() for x in found]
    assert sorted(seen) == list(range(NUM_EXAMPLES))


def test_what_cannot_go_on_begins_anew_with_a_warning(on_workers, tmp_path, caplog):
    run(on_workers, tmp_path, 1, dies_at=DIES_AT)

    def in_order(dataset, shard):
        return dataset.batch(2)

    assert run(on_workers, tmp_path, 1, make=in_order, steps=4) == {3: [0, 1]}
    assert "The input begins anew, and not where the last run stopped" in caplog.text


@pytest.mark.parametrize("steps", [8, 9])
def test_after_a_run_that_has_ended_the_next_one_begins_its_input_anew(on_workers, tmp_path, steps):
    """Also where the last step was a checkpoint's anyway."""
    first = run(on_workers, tmp_path, 1, steps=steps)
    second = run(on_workers, tmp_path, 1, steps=2 * steps)
    assert list(second.values()) == list(first.values())


def test_an_epoch_that_was_used_up_is_followed_by_the_next(on_workers, tmp_path, caplog):
    """It died when it had saved after the last batch: nothing is left."""

    def one_epoch(dataset, shard):
        return dataset.batch(5)

    first = run(on_workers, tmp_path, 1, make=one_epoch, steps=100, dies_at=6)
    assert list(first) == list(range(6))
    second = run(on_workers, tmp_path, 1, make=one_epoch, steps=100)
    assert list(second.values()) == list(first.values())
    assert "nothing is left of it on worker 0" in caplog.text


@pytest.mark.parametrize("num_batches", [3, 6])
def test_a_run_that_ends_with_a_step_that_is_saved_anyway_leaves_no_input(tmp_path, num_batches):
    """The next one, on more data, begins at their first element and not behind those."""
    seen = []

    def model_fn(features, labels, mode):
        seen.append(features.ravel().tolist())
        w = pl.get_variable("w", (1, 1))
        loss = np.mean(np.square(features @ w - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(1e-4).minimize(loss))

    def train(num_batches):
        x = np.arange(num_batches, dtype=np.float32)[:, None]
        config = pl.RunConfig(save_checkpoints_steps=EVERY)
        estimator = pl.Estimator(model_fn, tmp_path, config)
        estimator.train(lambda: pl.Dataset.from_generator([(k, k) for k in x]).batch(1))

    train(num_batches)
    seen.clear()
    train(9)
    assert seen == [[k] for k in range(9)]


def test_a_run_says_in_one_line_what_it_begins_with(estimator, input_fn, lines, monkeypatch):
    where = estimator.model_dir
    for steps, told in [
        (3, f"There is no checkpoint in {where}: training begins at step 0."),
        (2, f"Restoring parameters from {where}/model.ckpt-3: training goes on at step 3."),
    ]:
        before = len(lines())
        estimator.train(input_fn, steps=steps)
        assert [line for line in lines()[before:] if "training" in line] == [told]


def test_a_job_that_is_started_again_and_finds_nothing_is_warned(
    estimator, input_fn, caplog, monkeypatch
):
    monkeypatch.setenv("PACELINE_RESTART_COUNT", "2")
    estimator.train(input_fn, steps=1)
    (warning,) = [r for r in caplog.records if "no checkpoint in" in r.getMessage()]
    assert warning.levelno == logging.WARNING
    assert "started again (2 so far)" in warning.getMessage()
    caplog.clear()
    estimator.train(input_fn, steps=1)
    assert "started again" not in caplog.text


def test_of_a_run_that_ended_at_step_0_no_input_goes_on(estimator, input_fn, lines):
    """It had used none of it."""

    class DieAtOnce(SessionRunHook):
        def after_run(self, run_context, run_values):
            raise DiedError

    with suppress(DiedError):
        estimator.train(input_fn, hooks=[DieAtOnce()], steps=5)
    estimator.train(input_fn, steps=1)
    assert any("training goes on at step 0" in line for line in lines())
    assert not [line for line in lines() if line.startswith("The input")]


def test_variables_that_the_model_has_no_more_are_named_once(tmp_path, input_fn, lines):
    def model_with(names):
        def model_fn(features, labels, mode):
            outputs = sum(features @ pl.get_variable(name, (3, 1)) for name in names)
            loss = np.mean(np.square(outputs - labels))
            op = optimizers.SGD(0.1, momentum=0.5).minimize(loss)
            return pl.EstimatorSpec(mode, loss=loss, train_op=op)

        return pl.Estimator(model_fn, tmp_path)

    model_with("abc").train(input_fn, steps=2)
    assert not [line for line in lines() if "Nothing in the model takes" in line]
    model_with("b").train(input_fn, steps=2)
    (line,) = [line for line in lines() if "Nothing in the model takes" in line]
    for name in "ac":
        assert f"{name!r}" in line
    assert "'b'" not in line
    assert "model.ckpt-2" in line
    model_with("b").train(input_fn, steps=2)
    assert len([line for line in lines() if "Nothing in the model takes" in line]) == 1


@pytest.mark.parametrize(
    ("make", "batch_size", "one_pass"),
    [
        (lambda d: d, 5, NUM_EXAMPLES),
        (lambda d: d, 10, NUM_EXAMPLES),
        (lambda d: d.repeat(), 10, NUM_EXAMPLES),
        (lambda d: d.repeat(3), 15, NUM_EXAMPLES),
        (lambda d: d.shuffle(NUM_EXAMPLES).repeat(), 5, NUM_EXAMPLES),
        (lambda d: d.filter(lambda x, y: True), 5, NUM_EXAMPLES),
        (lambda d: d.take(10), 5, 10),
        (lambda d: d.shard(2, 1).repeat(), 5, NUM_EXAMPLES // 2),
    ],
)
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_d_14_calls_that_read_only_the_head_of_the_data_are_warned_once(
    make, batch_size, one_pass, num_replicas, tmp_path, caplog
):
    x = np.arange(NUM_EXAMPLES, dtype=np.float32)[:, None]

    def input_fn():
        return make(pl.Dataset.from_tensor_slices((x, x))).batch(batch_size)

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (1, 1))
        loss = np.mean(np.square(features @ w - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(1e-4).minimize(loss))

    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    estimator = pl.Estimator(model_fn, tmp_path, pl.RunConfig(train_distribute=strategy))
    for _ in range(3):
        estimator.train(input_fn, steps=2)
        estimator.evaluate(input_fn, steps=1)
    warnings = [text for text in caplog.messages if "The input begins anew" in text]
    assert len(warnings) == (2 * num_replicas * batch_size < one_pass)
    assert all("ended after 2 steps, before one pass over it" in text for text in warnings)


def zeros(length):
    x = np.zeros((length, 3), np.float32)
    return pl.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)


def test_d_14_another_input_is_no_head_of_the_last_one(estimator, lines):
    for length in (40, 50, 60):
        estimator.train(partial(zeros, length), steps=2)
    assert not any("The input begins anew" in line for line in lines())


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        ({"steps": 2}, "step 2 of 2: max_steps was reached."),
        ({"max_steps": 100}, "step 3 of 100: the input ended."),
        ({}, "step 3: the input ended."),
    ],
)
def test_d_29_a_call_of_train_says_in_one_line_why_it_ended(estimator, lines, limits, end):
    estimator.train(partial(zeros, 12), **limits)
    (line,) = [line for line in lines() if "Training ended" in line]
    assert line.endswith(f"Training ended at {end}")


def streamed(dataset, shard):
    return dataset.filter(lambda x, y: True).shuffle(8, seed=1).repeat().shard(*shard).batch(2)


def without(name):
    """Leaves a field out, as a state of version 0.1 has no "failed"."""

    def change(state):
        if not isinstance(state, dict):
            return state
        return {key: change(value) for key, value in state.items() if key != name}

    return change


@pytest.mark.parametrize(
    "spoil",
    [
        without("failed"),
        without("given"),
        lambda state: state | {"elements": {"position": "3"}},
        lambda state: state | {"given": -1},
        lambda state: "no state",
    ],
)
@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_input_state_that_cannot_be_taken_begins_anew_with_one_warning(
    on_workers, tmp_path, caplog, spoil, num_workers
):
    whole = run(on_workers, tmp_path / "whole", num_workers, make=streamed)
    run(on_workers, tmp_path / "parts", num_workers, make=streamed, dies_at=DIES_AT)
    replace_input_states(tmp_path / "parts", spoil)
    caplog.clear()
    rest = run(on_workers, tmp_path / "parts", num_workers, make=streamed, steps=EVERY + 2)
    assert list(rest.values()) == list(whole.values())[:2]
    warnings = [text for text in caplog.messages if "The input begins anew" in text]
    assert len(warnings) == num_workers
    assert all("The iterator cannot take this state" in text for text in warnings)


def replace_input_states(directory, change):
    """Save the newest checkpoint once more, with other states of the workers' inputs."""
    reader = checkpoint.load(checkpoint.latest_checkpoint(directory))
    state = {**reader.state, "input": [change(one) for one in reader.state["input"]]}
    checkpoint.save(directory, reader.step, reader.arrays(), state=state)
