"""The estimator on several workers: N workers give what one gives."""

import functools
import os
import sys
import threading

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import LinearRegressor, SessionRunHook
from paceline.estimator.feature_column import numeric_column
from paceline.nn import metrics, optimizers
from paceline.strategies import current_store

from ..hooks import Losses

SIZES = [(1, 1), (2, 1), (3, 1), (2, 2)]
GLOBAL_BATCH = 12


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]} workers of {size[1]}")
def size(request):
    return request.param


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (3, 1))
    loss = np.mean(np.square(features @ w - labels))
    if mode == pl.ModeKeys.EVAL:
        mean = metrics.Mean(name="mean")
        mean.update_state(labels)
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": mean})
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


def dealt_out(examples, num_workers, num_replicas, index):
    """The examples of one worker: each global batch is dealt out to the replicas in order."""
    x, y = examples
    batch = GLOBAL_BATCH // (num_workers * num_replicas)
    mine = [k for k in range(len(x)) if (k % GLOBAL_BATCH) // batch // num_replicas == index]
    return pl.Dataset.from_tensor_slices((x[mine], y[mine])).batch(batch)


def test_g01_on_several_workers(on_workers, size, tmp_path):
    def input_fn():
        return pl.Dataset.from_tensors(({"feats": [1.0]}, [1.0])).repeat(1000).batch(10)

    def work(strategy, index):
        config = pl.RunConfig(
            model_dir=tmp_path, train_distribute=strategy, eval_distribute=strategy
        )
        regressor = LinearRegressor([numeric_column("feats")], optimizer="SGD", config=config)
        end = regressor.train_and_report(input_fn, steps=10)
        return end.loss, regressor.evaluate(input_fn, steps=10)

    for loss, found in on_workers(*size, work):
        assert np.float32(loss) == np.float32(2.877698e-13)
        assert found["average_loss"] == np.float32(1.4210855e-14)


@pytest.mark.parametrize("num_examples", [48, 45, 37, 25])
def test_unequal_shards_end_together_and_count_every_example(
    on_workers, size, tmp_path, examples, num_examples
):
    """Ruling 4: no hang, all workers stop at the same step, each example counts once."""
    part = tuple(array[:num_examples] for array in examples)

    def train(sizes, name):
        def work(strategy, index):
            config = pl.RunConfig(train_distribute=strategy, tf_random_seed=index)
            estimator = pl.Estimator(model_fn, tmp_path / name, config)
            losses = Losses()
            end = estimator.train_and_report(lambda: dealt_out(part, *sizes, index), hooks=[losses])
            return end.global_step, losses.values

        found = on_workers(*sizes, work)
        estimator = pl.Estimator(model_fn, tmp_path / name)
        return found, estimator.get_variable_value("w")

    (expected,), weights = train((1, 1), "one")
    found, weights_of_several = train(size, "several")
    for step, losses in found:
        assert step == expected[0] == -(-num_examples // GLOBAL_BATCH)
        np.testing.assert_allclose(losses, expected[1], rtol=1e-5)
    np.testing.assert_allclose(weights_of_several, weights, rtol=1e-5)


def test_a_worker_that_wants_to_stop_stops_all(on_workers, tmp_path, input_fn):
    class StopOnSecond(SessionRunHook):
        def __init__(self, index):
            self.index = index

        def after_run(self, run_context, run_values):
            if self.index == 1 and run_context.session.global_step == 3:
                run_context.request_stop()

    def work(strategy, index):
        estimator = pl.Estimator(model_fn, tmp_path, pl.RunConfig(train_distribute=strategy))
        return estimator.train_and_report(input_fn, hooks=[StopOnSecond(index)]).global_step

    assert on_workers(3, 1, work) == [3, 3, 3]


def test_only_the_chief_writes(on_workers, tmp_path, input_fn):
    """CK-01."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=2)
        pl.Estimator(model_fn, tmp_path / str(index), config).train(input_fn, steps=3)

    on_workers(2, 1, work)
    assert len(pl.checkpoint.list_checkpoints(tmp_path / "0")) == 3
    assert not (tmp_path / "1").exists()


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_listeners = []


def _tell_of_changes(event, arguments):
    """Tell tests of each file that is opened for writing, made, moved or removed."""
    if not _listeners or event not in CHANGES:
        return
    if event != "open" or (isinstance(arguments[0], str) and (arguments[2] or 0) & WRITES):
        for listener in _listeners:
            listener(threading.get_ident(), arguments[0])


@functools.cache  # it cannot be taken away again
def _add_audit_hook():
    sys.addaudithook(_tell_of_changes)


CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")


@pytest.fixture
def changes():
    """(thread, path) of each change to a file, within the test."""
    _add_audit_hook()
    found = []
    listener = lambda thread, path: found.append((thread, os.fspath(path)))  # noqa: E731
    _listeners.append(listener)
    yield found
    _listeners.remove(listener)


def test_ck_01_only_the_chief_writes_while_all_evaluate(
    on_workers, tmp_path, input_fn, one_pass, changes
):
    """Without an evaluator every worker evaluates; the metrics are noted once."""
    threads = {}

    def work(strategy, index):
        threads[index] = threading.get_ident()
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=2)
        estimator = pl.Estimator(model_fn, tmp_path, config)
        spec = pl.EvalSpec(one_pass, throttle_secs=0)
        pl.train_and_evaluate(estimator, pl.TrainSpec(input_fn, max_steps=4), spec)
        return estimator.evaluate(one_pass)

    first, second = on_workers(2, 1, work)
    assert first == second
    # What each worker notes of its own time is a file of its own, of which nothing depends.
    written = [path for thread, path in changes if thread == threads[1]]
    assert [path for path in written if "history" not in str(path)] == []
    noted = [path for thread, path in changes if thread == threads[0] and "metrics.json" in path]
    assert noted
    assert pl.checkpoint.read_metrics(tmp_path / "model.ckpt-4")["loss"] == first["loss"]


def test_workers_with_another_model_dir_are_told_so_by_name(on_workers, tmp_path, input_fn, lines):
    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        own = tmp_path / ("other" if index == 2 else "model")
        pl.Estimator(model_fn, own, config).train(input_fn, steps=1)

    on_workers(3, 1, work)
    (line,) = [line for line in lines() if line.startswith("model_dir is")]
    assert f"{tmp_path}/other on worker 2 and {tmp_path}/model on the chief" in line


def test_training_goes_on_from_the_chiefs_checkpoint(on_workers, tmp_path, input_fn):
    def work(strategy, index):
        estimator = pl.Estimator(model_fn, tmp_path, pl.RunConfig(train_distribute=strategy))
        return estimator.train_and_report(input_fn, steps=3).global_step

    assert on_workers(2, 1, work) == [3, 3]
    assert on_workers(3, 1, work) == [6, 6, 6]


def test_es_21_evaluation_over_workers_is_exact(on_workers, size, tmp_path, examples, input_fn):
    x, y = examples

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
        estimator = pl.Estimator(model_fn, tmp_path, config)
        estimator.train(input_fn, steps=2)
        return estimator.evaluate(
            lambda input_context: (
                pl.Dataset.from_tensor_slices((x, y))
                .shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
                .batch(7)
            )
        )

    found = on_workers(*size, work)
    w = pl.Estimator(model_fn, tmp_path).get_variable_value("w")
    for results in found:
        assert results["loss"] == pytest.approx(np.mean((x @ w - y) ** 2), rel=1e-6)
        assert results["mean"] == pytest.approx(np.mean(y), rel=1e-6)


def test_d_03_b12_none_return_but_the_result_on_every_worker(
    on_workers, tmp_path, input_fn, one_pass
):
    """Ruling 7, D-03."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=2)
        estimator = pl.Estimator(model_fn, tmp_path, config)
        return pl.train_and_evaluate(
            estimator,
            pl.TrainSpec(input_fn, max_steps=5),
            pl.EvalSpec(one_pass, throttle_secs=0),
        )

    first, second = on_workers(2, 1, work)
    assert first == second
    assert first.metrics["global_step"] == first.global_step == 5


def test_ck_10_b12_temp_dir_per_worker_but_that_of_the_chief_for_all(on_workers):
    def work(strategy, index):
        return pl.Estimator(model_fn, config=pl.RunConfig(train_distribute=strategy)).model_dir

    first, second = on_workers(2, 1, work)
    assert first == second


def test_a_worker_without_any_data_is_named(on_workers, tmp_path, examples):
    def work(strategy, index):
        estimator = pl.Estimator(model_fn, tmp_path, pl.RunConfig(train_distribute=strategy))
        part = tuple(array[: 0 if index == 1 else 8] for array in examples)
        estimator.train(lambda: pl.Dataset.from_tensor_slices(part).batch(4))

    with pytest.raises(
        (ValueError, RuntimeError), match="no batch on worker 1 of 2: the dataset is empty"
    ):
        on_workers(2, 1, work, timeout_secs=5)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ((3, 3), "max_steps was reached"),
        ((3, 9), "max_steps was reached on worker 0"),
        ((9, 3), "max_steps was reached on worker 1"),
        ((None, 3), "max_steps was reached on worker 1"),
        ((None, None), "the input ended"),
    ],
)
def test_why_a_run_ended_is_said_alike_on_all_workers(
    on_workers, linear_model_fn, one_pass, tmp_path, limits, reason
):
    """Also where the limit is that of another worker."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        return estimator.train_and_report(one_pass, max_steps=limits[index])

    for end in on_workers(2, 1, work):
        assert end.reason == reason
        assert end.global_step == min(limit or 6 for limit in limits)


def test_d_18_workers_decide_alike_whether_they_restore(on_workers, tmp_path, input_fn, one_pass):
    """Creating variables is a common call: a worker that has kept none makes all create them."""

    def work(strategy, index):
        made = []

        def watched(features, labels, mode):
            known = current_store().variables.keys() >= {"w"}
            made.append(not known)
            return model_fn(features, labels, mode)

        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
        estimator = pl.Estimator(watched, tmp_path, config).train(input_fn, steps=2)
        results, num_made = [], []
        for forgets in (None, None, 1, None, 0):
            if forgets == index:
                estimator = pl.Estimator(watched, tmp_path, config)
            made.clear()
            results.append(estimator.evaluate(one_pass))
            num_made.append(sum(made))
        return results, num_made

    for results, num_made in on_workers(2, 1, work):
        assert num_made == [1, 0, 1, 0, 1]
        assert all(r == results[0] for r in results)
