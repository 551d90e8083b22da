"""Estimator.train: how long, from where, and what is left behind."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import CheckpointError
from paceline.estimator import NanLossDuringTrainingError, SessionRunHook
from paceline.nn import optimizers

from ..hooks import Losses


def step_of(estimator):
    return int(estimator.get_variable_value("global_step"))


def saved_steps(estimator):
    return [step for _, step in pl.checkpoint.list_checkpoints(estimator.model_dir)]


def test_es_08_training_returns_the_estimator_itself(estimator, input_fn):
    assert estimator.train(input_fn, steps=1) is estimator


def test_b1_train_counts_steps_from_where_training_stands(estimator, input_fn):
    estimator.train(input_fn, steps=10).train(input_fn, steps=10)
    assert step_of(estimator) == 20


def test_b1_train_counts_max_steps_from_the_very_beginning(estimator, input_fn):
    estimator.train(input_fn, max_steps=10).train(input_fn, max_steps=12)
    assert step_of(estimator) == 12


def test_b1_train_does_nothing_when_max_steps_is_reached_already(estimator, input_fn):
    estimator.train(input_fn, max_steps=5)

    def never():
        raise AssertionError("input_fn was called")

    assert estimator.train(never, max_steps=5) is estimator
    assert step_of(estimator) == 5


def test_training_ends_with_the_data(estimator, one_pass):
    """IN-24."""
    estimator.train(one_pass)
    assert step_of(estimator) == 6


def test_training_twice_equals_training_once(linear_model_fn, examples, tmp_path):
    def from_example(first):
        return lambda: pl.Dataset.from_tensor_slices(examples).skip(first).batch(8)

    once = pl.Estimator(linear_model_fn, tmp_path / "once").train(from_example(0), steps=6)
    twice = pl.Estimator(linear_model_fn, tmp_path / "twice").train(from_example(0), steps=2)
    twice.train(from_example(16), steps=4)
    np.testing.assert_array_equal(once.get_variable_value("w"), twice.get_variable_value("w"))


def test_another_estimator_on_the_same_directory_goes_on(linear_model_fn, input_fn, tmp_path):
    pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=3)
    other = pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=3)
    assert step_of(other) == 6


def test_the_first_and_the_last_step_are_saved(estimator, input_fn):
    """CK-03, CK-04."""
    estimator.train(input_fn, steps=10)
    assert saved_steps(estimator) == [0, 10]
    assert estimator.latest_checkpoint().endswith("model.ckpt-10")


def test_the_newest_five_checkpoints_are_kept(linear_model_fn, input_fn, tmp_path):
    """CK-05."""
    config = pl.RunConfig(save_checkpoints_steps=1)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, steps=6)
    assert saved_steps(estimator) == [2, 3, 4, 5, 6]


def test_the_checkpoint_of_step_0_has_the_initial_values(estimator, input_fn):
    estimator.train(input_fn, steps=1)
    start = pl.checkpoint.load(f"{estimator.model_dir}/model.ckpt-0")
    assert int(start.read("global_step")) == 0
    np.testing.assert_array_equal(start.read("w"), np.zeros((3, 1)))


def test_slots_exist_in_the_checkpoint_of_step_0(linear_model_fn, input_fn, tmp_path):
    """Training can go on from it."""

    def with_adam(features, labels, mode):
        loss = linear_model_fn(features, labels, mode).loss
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam().minimize(loss))

    estimator = pl.Estimator(with_adam, tmp_path).train(input_fn, steps=1)
    start = pl.checkpoint.load(f"{estimator.model_dir}/model.ckpt-0")
    assert {"adam/w/m", "adam/w/v", "adam/iterations"} <= set(start.names)


def test_without_model_dir_a_temporary_directory_is_named(linear_model_fn, input_fn, lines):
    """CK-10."""
    estimator = pl.Estimator(linear_model_fn)
    assert any("temporary directory" in line and estimator.model_dir in line for line in lines())


def test_variables_of_several_replicas_stay_equal(
    linear_model_fn, input_fn, tmp_path, two_replicas
):
    copies = []

    class Copies(SessionRunHook):
        def after_run(self, run_context, run_values):
            copies.append(run_context.session.store.variables["w"].local_values())

    config = pl.RunConfig(train_distribute=two_replicas)
    pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, hooks=[Copies()], steps=20)
    assert len(copies) == 20
    for first, second in copies:
        assert first is not second
        np.testing.assert_array_equal(first, second)


def test_each_replica_takes_a_batch_of_its_own(linear_model_fn, examples, tmp_path, two_replicas):
    """IN-03: 2 replicas and 3 steps drain 6 batches."""
    drained = []

    def input_fn():
        dataset = pl.Dataset.from_tensor_slices(examples).batch(8)
        return dataset.map(lambda x, y: drained.append(len(x)) or (x, y))

    config = pl.RunConfig(train_distribute=two_replicas)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn)
    assert step_of(estimator) == 3
    assert drained == [8] * 6


@pytest.mark.parametrize("num_examples", [16, 12, 9, 8, 5, 1])
def test_every_example_of_a_last_step_counts_once(
    linear_model_fn, examples, tmp_path, two_replicas, num_examples
):
    """Ruling 4: two replicas with batches of up to 8 do what one does with all of them."""
    x, y = examples[0][:num_examples], examples[1][:num_examples]

    def trained(name, batch_size, strategy):
        config = pl.RunConfig(train_distribute=strategy)
        hook = Losses()
        estimator = pl.Estimator(linear_model_fn, tmp_path / name, config)
        estimator.train(
            lambda: pl.Dataset.from_tensor_slices((x, y)).batch(batch_size), hooks=[hook]
        )
        return estimator.get_variable_value("w"), hook.values

    weights, losses = trained("one", 16, None)
    weights_of_two, losses_of_two = trained("two", 8, two_replicas)
    np.testing.assert_allclose(weights_of_two, weights, rtol=1e-6)
    np.testing.assert_allclose(losses_of_two, losses, rtol=1e-6)


def test_a_replica_without_examples_in_the_first_step_follows(
    linear_model_fn, examples, tmp_path, two_replicas
):
    config = pl.RunConfig(train_distribute=two_replicas)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    estimator.train(lambda: pl.Dataset.from_tensor_slices(examples).take(8).batch(8))
    assert step_of(estimator) == 1


def test_b12_nan_checkpoint_a_loss_that_is_nan_ends_training_and_is_not_saved(input_fn, tmp_path):
    """Ruling 10."""

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (), initializer=1.0)
        bad = np.nan if int(pl.get_or_create_global_step()) == 3 else 1.0
        loss = np.mean(features * w) * bad
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))

    config = pl.RunConfig(save_checkpoints_steps=1)
    estimator = pl.Estimator(model_fn, tmp_path, config)
    with pytest.raises(NanLossDuringTrainingError, match="loss of step 4 is nan"):
        estimator.train(input_fn, steps=10)
    assert saved_steps(estimator)[-1] == 3
    assert np.isfinite(estimator.get_variable_value("w"))


def test_a_step_can_make_several_updates(input_fn, tmp_path):
    """MB-22: two optimizers, one step."""

    def model_fn(features, labels, mode):
        a = pl.get_variable("a", (), initializer=1.0)
        b = pl.get_variable("b", (), initializer=1.0)
        loss = np.square(a) + 2 * b
        ops = [
            optimizers.SGD(0.5).minimize(loss, var_list=[a]),
            optimizers.SGD(0.25).minimize(loss, var_list=[b]),
        ]
        return pl.EstimatorSpec(mode, loss=loss, train_op=ops)

    estimator = pl.Estimator(model_fn, tmp_path).train(input_fn, steps=2)
    assert step_of(estimator) == 2
    assert estimator.get_variable_value("a") == 0.0
    assert estimator.get_variable_value("b") == 0.0


def test_initial_values_and_shuffling_follow_the_seed(examples, tmp_path):
    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (3, 1))
        loss = np.mean(np.square(features @ w - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))

    def trained(name, seed):
        estimator = pl.Estimator(model_fn, tmp_path / name, pl.RunConfig(tf_random_seed=seed))
        estimator.train(
            lambda: pl.Dataset.from_tensor_slices(examples).shuffle(48).batch(8), steps=5
        )
        return estimator.get_variable_value("w")

    np.testing.assert_array_equal(trained("a", 1), trained("b", 1))
    assert not np.array_equal(trained("c", 1), trained("d", 2))


def test_warm_start_takes_the_weights_but_not_the_step(linear_model_fn, input_fn, tmp_path):
    pl.Estimator(linear_model_fn, tmp_path / "old").train(input_fn, steps=5)
    old = pl.Estimator(linear_model_fn, tmp_path / "old").get_variable_value("w")
    warm = pl.Estimator(linear_model_fn, tmp_path / "new", warm_start_from=tmp_path / "old")
    warm.train(input_fn, steps=1)
    start = pl.checkpoint.load(tmp_path / "new" / "model.ckpt-0")
    np.testing.assert_array_equal(start.read("w"), old)
    assert step_of(warm) == 1


def test_a_checkpoint_of_one_strategy_is_continued_under_another(
    linear_model_fn, input_fn, tmp_path, two_replicas
):
    """CK-02."""
    pl.Estimator(linear_model_fn, tmp_path, pl.RunConfig(train_distribute=two_replicas)).train(
        input_fn, steps=3
    )
    single = pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=3)
    assert step_of(single) == 6


def test_an_unwritable_model_dir_is_refused_before_any_work(linear_model_fn, input_fn, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    estimator = pl.Estimator(linear_model_fn, in_the_way / "model")
    with pytest.raises(CheckpointError, match=str(in_the_way)):
        estimator.train(input_fn, steps=1)


def test_a_second_job_in_the_same_model_dir_is_refused(estimator, linear_model_fn, input_fn):
    """It would delete and overwrite what the first one saves."""
    model_dir = estimator.model_dir

    class StartAnother(SessionRunHook):
        def after_run(self, run_context, run_values):
            other = pl.Estimator(linear_model_fn, model_dir)
            with pytest.raises(CheckpointError, match="belongs to another job: pid"):
                other.train(input_fn, steps=1)

    estimator.train(input_fn, hooks=[StartAnother()], steps=1)
    estimator.train(input_fn, steps=1)
    assert step_of(estimator) == 2


def test_a_save_that_fails_in_the_background_ends_the_run(estimator, input_fn):
    class Spoil(SessionRunHook):
        def after_run(self, run_context, run_values):
            model_dir = Path(estimator.model_dir)
            if model_dir.is_dir():
                estimator.latest_checkpoint()  # waits for the one that is being saved
                shutil.rmtree(model_dir)
                model_dir.write_text("in the way")

    with pytest.raises(CheckpointError, match=r"cannot (save|write)"):
        estimator.train(input_fn, hooks=[Spoil()], steps=3)
