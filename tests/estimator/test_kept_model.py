"""`evaluate` and `predict` keep what they have restored (D-18, B12.rebuild_per_call)."""

import gc
import shutil
import threading
import weakref

import numpy as np
import pytest

import paceline as pl
from paceline.nn import metrics, optimizers
from paceline.strategies import current_store

N = 24
X = np.arange(N, dtype=np.float32).reshape(N, 1)


def one_pass():
    return pl.Dataset.from_tensor_slices((X, X)).batch(4)


@pytest.fixture
def drawn():
    """The names of the variables that were created, in order."""
    return []


@pytest.fixture
def model_fn(drawn):
    def model_fn(features, labels, mode):
        def initial(shape, dtype, rng):
            drawn.append("w")
            return np.zeros(shape, dtype)

        w = pl.get_variable("w", (1, 1), initializer=initial)
        seen = pl.get_variable("seen", (), np.int64, 0, trainable=False)
        if mode == pl.ModeKeys.PREDICT:
            return pl.EstimatorSpec(mode, predictions={"y": features @ w, "seen": seen + 0 * X[:4]})
        loss = np.mean(np.square(features @ w - 2 * labels))
        if mode == pl.ModeKeys.EVAL:
            seen.assign_add(len(features))
            mean = metrics.Mean(name="mean")
            mean.update_state(features)
            return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": mean})
        train_op = optimizers.SGD(0.001).minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


@pytest.fixture
def trained(model_fn, tmp_path):
    return pl.Estimator(model_fn, tmp_path / "model").train(one_pass)


STRATEGIES = {
    "default": lambda: None,
    "one device": lambda: pl.OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
    "central storage": lambda: pl.CentralStorageStrategy(["CPU:0", "CPU:1"]),
    "one of several workers": lambda: pl.MultiWorkerMirroredStrategy(),
}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_d_18_b12_rebuild_per_call_but_a_second_evaluation_restores_nothing(
    kind, model_fn, drawn, trained
):
    config = pl.RunConfig(eval_distribute=STRATEGIES[kind]())
    estimator = pl.Estimator(model_fn, trained.model_dir, config)
    first = estimator.evaluate(one_pass)
    drawn.clear()
    assert estimator.evaluate(one_pass) == first
    assert drawn == []
    assert first["mean"] == pytest.approx(np.mean(X))


def test_d_18_a_second_prediction_restores_nothing_and_finds_the_same(trained, drawn):
    first = list(trained.predict(one_pass))
    drawn.clear()
    assert [p["y"] for p in trained.predict(one_pass)] == [p["y"] for p in first]
    assert drawn == []


def test_what_an_evaluation_assigns_is_not_there_in_the_next_prediction(trained):
    trained.evaluate(one_pass)
    assert {int(p["seen"][0]) for p in trained.predict(one_pass)} == {0}


def test_a_new_checkpoint_is_restored(trained, drawn):
    before = trained.evaluate(one_pass)
    trained.train(one_pass)
    after = trained.evaluate(one_pass)
    assert after["global_step"] == 2 * before["global_step"]
    assert after["loss"] < before["loss"]


def test_a_checkpoint_that_another_process_has_put_in_its_place_is_restored(
    trained, model_fn, tmp_path
):
    before = trained.evaluate(one_pass)
    other = pl.Estimator(model_fn, tmp_path / "other")
    other.train(lambda: one_pass().take(1).repeat(6))
    assert other.latest_checkpoint().endswith("model.ckpt-6")
    shutil.rmtree(trained.latest_checkpoint())
    shutil.copytree(other.latest_checkpoint(), f"{trained.model_dir}/model.ckpt-6")
    after = trained.evaluate(one_pass)
    assert after["global_step"] == before["global_step"] == 6
    assert after["loss"] == other.evaluate(one_pass)["loss"] != before["loss"]


def test_each_of_two_checkpoints_is_restored_in_turn(trained):
    beginning = f"{trained.model_dir}/model.ckpt-0"
    steps = [
        trained.evaluate(one_pass, checkpoint_path=path)["global_step"]
        for path in (beginning, None, beginning)
    ]
    assert steps == [0, 6, 0]


def test_another_strategy_has_variables_of_its_own(model_fn, trained, drawn):
    config = pl.RunConfig(eval_distribute=pl.MirroredStrategy(["CPU:0", "CPU:1"]))
    estimator = pl.Estimator(model_fn, trained.model_dir, config)
    expected = trained.evaluate(one_pass)
    drawn.clear()
    assert estimator.evaluate(one_pass) == expected
    assert len(list(estimator.predict(one_pass))) == N
    assert estimator.evaluate(one_pass) == expected
    assert drawn == ["w"] * 3


def test_one_model_is_kept_and_none_while_training(model_fn, tmp_path):
    alive = weakref.WeakSet()

    def watched(features, labels, mode):
        alive.add(current_store())
        return model_fn(features, labels, mode)

    estimator = pl.Estimator(watched, tmp_path).train(one_pass, steps=1)
    for path in (None, f"{tmp_path}/model.ckpt-0", None):
        estimator.evaluate(one_pass, checkpoint_path=path)
        list(estimator.predict(one_pass))
    gc.collect()
    assert len(alive) == 1

    seen = []

    class Count(pl.estimator.SessionRunHook):
        def after_run(self, run_context, run_values):
            gc.collect()
            seen.append(len(alive))

    estimator.train(one_pass, steps=2, hooks=[Count()])
    assert seen == [1, 1]


def test_a_failed_evaluation_leaves_nothing_behind(trained, drawn):
    trained.evaluate(one_pass)
    with pytest.raises(ValueError, match="no batch"):
        trained.evaluate(lambda: one_pass().take(0))
    drawn.clear()
    trained.evaluate(one_pass)
    assert drawn == ["w"]


def test_initial_values_are_drawn_anew(model_fn, drawn, tmp_path):
    estimator = pl.Estimator(model_fn, tmp_path)
    for _ in range(2):
        estimator.evaluate(one_pass)
    assert drawn == ["w", "w"]


def test_d_19_predictions_that_are_interleaved_with_all_else_stay_right(trained, drawn):
    expected = [p["y"] for p in trained.predict(one_pass)]
    first, second = trained.predict(one_pass), trained.predict(one_pass)
    found = [[], []]
    for _ in range(N // 2):
        found[0].append(next(first)["y"])
        found[1].append(next(second)["y"])
    trained.evaluate(one_pass)
    trained.train(one_pass)  # another checkpoint: who has begun goes on with the old one
    found[0] += [p["y"] for p in first]
    found[1] += [p["y"] for p in second]
    assert found == [expected, expected]
    drawn.clear()
    after = [p["y"] for p in trained.predict(one_pass)]
    assert drawn == ["w"]
    assert after != expected


def test_a_prediction_that_is_left_early_gives_the_model_back(trained, drawn):
    taken = trained.predict(one_pass)
    first = next(taken)
    taken.close()
    drawn.clear()
    assert next(trained.predict(one_pass))["y"] == first["y"]
    assert drawn == []


class TestPredictor:
    def test_it_predicts_batches_with_one_checkpoint(self, trained, drawn):
        expected = [p["y"] for p in trained.predict(one_pass)]
        drawn.clear()
        with trained.predictor() as predict:
            assert predict.checkpoint_path == trained.latest_checkpoint()
            trained.train(one_pass)
            found = [predict(X[i : i + 4])["y"] for i in range(0, N, 4)]
        np.testing.assert_array_equal(np.concatenate(found), expected)
        assert drawn[:1] == ["w"]
        assert isinstance(found[0], np.ndarray)

    def test_requests_come_from_any_number_of_threads(self, trained):
        expected = np.array([p["y"] for p in trained.predict(one_pass)])
        with trained.predictor() as predict:
            found = {}

            def serve(index):
                for start in range(0, N, 4):
                    found[index, start] = predict(X[start : start + 4])["y"]

            threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(found) == 4 * N // 4
        for (_, start), values in found.items():
            np.testing.assert_array_equal(values, expected[start : start + 4])

    def test_its_checkpoint_is_not_deleted_until_it_is_closed(self, model_fn, tmp_path):
        estimator = pl.Estimator(model_fn, tmp_path, pl.RunConfig(keep_checkpoint_max=1))
        estimator.train(one_pass, steps=1)
        predict = estimator.predictor(estimator.latest_checkpoint())
        estimator.train(one_pass, steps=1)
        assert (tmp_path / "model.ckpt-1").exists()
        first = predict(X[:4])
        assert first["y"].shape == (4, 1)
        predict.close()
        with pytest.raises(ValueError, match="closed; make a new one"):
            predict(X[:4])
        estimator.train(one_pass, steps=1)
        assert not (tmp_path / "model.ckpt-1").exists()

    def test_without_a_checkpoint_it_is_refused(self, model_fn, tmp_path):
        estimator = pl.Estimator(model_fn, tmp_path)
        with pytest.raises(ValueError, match="no checkpoint"):
            estimator.predictor()
        with estimator.predictor(allow_untrained=True) as predict:
            assert predict.checkpoint_path is None
            assert predict(X[:4])["y"].tolist() == [[0.0]] * 4
