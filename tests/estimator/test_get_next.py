"""`dataset.make_one_shot_iterator().get_next()` in an `input_fn`, as TensorFlow 1's scripts do."""

from contextlib import suppress

import numpy as np
import pytest

import paceline as pl
import paceline.compat.tf as tf
from paceline.estimator import SessionRunHook
from paceline.nn.optimizers import SGD


def shuffled(examples):
    x, y = examples
    return pl.Dataset.from_tensor_slices(({"x": x, "id": x[:, 0]}, y)).shuffle(48, seed=3)


def returned_whole(dataset):
    return dataset.make_one_shot_iterator().get_next()


def taken_apart(dataset):
    features, labels = dataset.make_initializable_iterator().get_next()
    features.pop("id")
    return {"x": features["x"]}, labels


def in_a_list(dataset):
    features, labels = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    return [features, labels]


def computed_with(dataset):
    features, labels = tf.data.make_one_shot_iterator(dataset).get_next()
    wide = tf.concat([features["x"], tf.expand_dims(features.pop("id"), -1)], axis=1)
    features["x"] = tf.cast(wide[:, :3] * 2, tf.float32) / 2
    return features, np.negative(-labels)


def of_two_datasets(dataset):
    features = dataset.map(lambda x, y: x).make_one_shot_iterator().get_next()
    labels = dataset.map(lambda x, y: y).make_one_shot_iterator().get_next()
    return features, labels


WAYS = [returned_whole, taken_apart, in_a_list, computed_with, of_two_datasets]


@pytest.fixture
def make_estimator(tmp_path, linear_model_fn):
    def make(name, num_replicas=1):
        strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
        config = config.replace(save_checkpoints_steps=2)
        return pl.Estimator(by_name(linear_model_fn), tmp_path / name, config)

    return make


def by_name(model_fn):
    return lambda features, labels, mode: model_fn(features["x"], labels, mode)


def weights(estimator):
    return estimator.get_variable_value("w")


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_a_model_learns_what_it_learns_from_the_dataset_itself(
    make_estimator, examples, way, num_replicas
):
    def dataset():
        return shuffled(examples).repeat(3).batch(8)

    results = []
    for name, input_fn in {"plain": dataset, "way": lambda: way(dataset())}.items():
        estimator = make_estimator(name, num_replicas)
        estimator.train(input_fn)
        results.append(estimator)
    plain, found = results
    assert found.latest_checkpoint().endswith(plain.latest_checkpoint().rpartition("-")[2])
    np.testing.assert_array_equal(weights(found), weights(plain))


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_an_evaluation_and_a_prediction_see_each_example_once(
    make_estimator, examples, way, num_replicas
):
    estimator = make_estimator("model", num_replicas)
    x, y = examples
    plain = pl.Dataset.from_tensor_slices(({"x": x, "id": x[:, 0]}, y)).batch(7)

    def train_fn():
        return way(shuffled(examples).repeat(2).batch(8))

    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(train_fn, max_steps=4),
        tf.estimator.EvalSpec(lambda: way(plain), steps=None),
    )
    assert estimator.evaluate(lambda: way(plain)) == estimator.evaluate(lambda: plain)
    found = [row["y"] for row in estimator.predict(lambda: way(plain)[0])]
    np.testing.assert_allclose(found, x @ weights(estimator), rtol=1e-5)


class Die(SessionRunHook):
    def after_run(self, run_context, run_values):
        if run_context.session.global_step == 9:
            raise KeyboardInterrupt


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_run_goes_on_in_the_middle_of_an_epoch(
    make_estimator, examples, way, num_replicas
):
    def input_fn():
        return way(shuffled(examples).repeat(8).batch(8))

    whole, interrupted = make_estimator("whole", num_replicas), make_estimator("cut", num_replicas)
    whole.train(input_fn, max_steps=12)
    with suppress(KeyboardInterrupt):
        interrupted.train(input_fn, max_steps=12, hooks=[Die()])
    make_estimator("cut", num_replicas).train(input_fn, max_steps=12)
    np.testing.assert_array_equal(weights(interrupted), weights(whole))


def test_workers_divide_what_their_input_fns_shard(tmp_path, on_workers):
    seen = {}

    def model_fn(features, labels, mode):
        first = int(features[0, 0]) % 2
        seen.setdefault(first, []).extend(np.asarray(features)[:, 0].tolist())
        loss = np.mean(np.square(features @ pl.get_variable("w", (1, 1)) - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=SGD(0.01).minimize(loss))

    def input_fn(input_context):
        shard = input_context.num_input_pipelines, input_context.input_pipeline_id
        x = np.arange(12, dtype=np.float32)[:, None]
        dataset = pl.Dataset.from_tensor_slices(x).shard(*shard).batch(3)
        x = dataset.make_one_shot_iterator().get_next()
        return x, x * 2

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        pl.Estimator(model_fn, tmp_path / "model", config).train(input_fn)

    on_workers(2, 1, work)
    assert {index: sorted(set(examples)) for index, examples in seen.items()} == {
        0: list(range(0, 12, 2)),
        1: list(range(1, 12, 2)),
    }


def test_two_calls_of_one_iterator_are_refused(make_estimator, examples):
    def input_fn():
        iterator = shuffled(examples).batch(8).make_one_shot_iterator()
        return iterator.get_next()[0], iterator.get_next()[1]

    with pytest.raises(ValueError, match=r"two get_next.. calls of one iterator .*call get_next"):
        make_estimator("model").train(input_fn)


def test_a_call_that_is_not_used_takes_no_element(make_estimator, examples):
    def input_fn():
        iterator = shuffled(examples).batch(8).make_one_shot_iterator()
        iterator.get_next()
        return iterator.get_next()

    estimator = make_estimator("model")
    estimator.train(input_fn)
    assert estimator.get_variable_value("global_step") == 6


@pytest.mark.parametrize("decide", [bool, float, list, np.asarray, lambda x: [*x]])
def test_a_decision_about_values_is_sent_to_map(make_estimator, examples, decide):
    def input_fn():
        features, labels = shuffled(examples).batch(8).make_one_shot_iterator().get_next()
        return features, decide(labels)

    with pytest.raises(TypeError, match=r"in an input_fn into Dataset.map, before get_next"):
        make_estimator("model").train(input_fn)


def test_outside_of_an_input_fn_get_next_gives_elements():
    iterator = tf.data.make_initializable_iterator(pl.Dataset.range(2))
    assert iterator.initializer is None
    assert iterator.get_next() == 0
    optional = iterator.get_next_as_optional()
    assert optional.has_value()
    assert optional.get_value() == 1
    ended = tf.data.experimental.get_next_as_optional(iterator)
    assert not ended.has_value()
    with pytest.raises(ValueError, match="no further element; ask has_value"):
        ended.get_value()


def test_a_distributed_iterator_gives_optional_elements(two_replicas):
    iterator = iter(two_replicas.experimental_distribute_dataset(pl.Dataset.range(4).batch(4)))
    assert iterator.get_next_as_optional().has_value()
    assert not iterator.get_next_as_optional().has_value()
