"""`model_to_estimator` (ES-17): a compiled model trains as an Estimator, from its own weights."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import model_to_estimator
from paceline.nn import Input, Model, Sequential, layers

RNG = np.random.default_rng(3)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int64)


@pytest.fixture(autouse=True)
def names_begin_anew():
    pl.set_seed(1)


def compiled(optimizer="adam"):
    inputs = Input((3,))
    hidden = layers.BatchNormalization()(layers.Dense(4, "relu")(inputs))
    model = Model(inputs, layers.Dense(2, name="logits")(hidden))
    loss = pl.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def data(batch=4):
    return lambda: pl.Dataset.from_tensor_slices((X, Y)).batch(batch)


class Beginning(pl.estimator.SessionRunHook):
    """The values with which a run begins."""

    def __init__(self, names):
        self.values = {}
        self._names = names

    def before_run(self, run_context):
        for name in self._names:
            self.values.setdefault(name, run_context.session.run(name))


def test_es_17_weights_are_equal_before_and_after(tmp_path):
    model = compiled()
    model.layers[0].set_weights([np.full((3, 4), 0.5), np.arange(4.0)])
    before = {weight.name: weight.numpy() for weight in model.weights}
    outputs = model(X).numpy()
    estimator = model_to_estimator(model, tmp_path)
    saved = pl.checkpoint.load(pl.checkpoint.latest_checkpoint(tmp_path / "keras")).arrays()
    assert_equal(saved, before)
    beginning = Beginning([weight.name for weight in model.trainable_weights])
    estimator.train(data(), hooks=[beginning], steps=3)
    assert_equal(beginning.values, {name: before[name] for name in beginning.values})
    assert len(beginning.values) == 6
    assert (estimator.get_variable_value("dense/kernel") != before["dense/kernel"]).any()
    np.testing.assert_array_equal(model(X).numpy(), outputs)


def assert_equal(values, expected):
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(values[name], value)


def test_es_17_metrics_and_names_of_outputs_are_carried_over(tmp_path):
    estimator = model_to_estimator(compiled(), tmp_path, metric_names_map={"accuracy": "hits"})
    estimator.train(lambda: data()().repeat(), steps=200)
    found = estimator.evaluate(data())
    assert set(found) == {"loss", "hits", "global_step"}
    assert found["hits"] > 0.9
    predicted = np.stack([row["logits"] for row in estimator.predict(lambda: data()())])
    assert np.mean(predicted.argmax(axis=1) == Y) == pytest.approx(found["hits"])


@pytest.mark.parametrize("replicas", [2, 3])
def test_es_17_replicas_train_as_one_does_on_the_same_batches(replicas, tmp_path):
    ends = []
    for count, batch in ((1, 12), (replicas, 12 // replicas)):
        pl.set_seed(1)
        model = Sequential([Input((3,)), layers.Dense(4, "tanh"), layers.Dense(1)])
        model.compile("adam", "mse")
        strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(count)])
        config = pl.RunConfig(train_distribute=strategy)
        estimator = model_to_estimator(model, tmp_path / str(count), config)
        estimator.train(
            lambda batch=batch: pl.Dataset.from_tensor_slices((X, Y[:, None])).batch(batch)
        )
        ends.append({n: estimator.get_variable_value(n) for n in estimator.get_variable_names()})
    assert ends[0].keys() == ends[1].keys()
    for name, value in ends[0].items():
        np.testing.assert_allclose(ends[1][name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_es_17_a_run_that_has_begun_goes_on_from_its_own_checkpoint(tmp_path):
    model_to_estimator(compiled(), tmp_path).train(data(), steps=2)
    pl.set_seed(1)
    again = model_to_estimator(compiled(), tmp_path)
    again.train(data(), steps=2)
    assert again.get_variable_value("global_step") == 4


def test_es_17_a_model_that_has_no_weights_yet_gets_them_in_training(tmp_path):
    model = Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    estimator = model_to_estimator(model, tmp_path)
    estimator.train(lambda: pl.Dataset.from_tensor_slices((X, Y[:, None])).batch(4), steps=1)
    assert "dense/kernel" in estimator.get_variable_names()


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: model_to_estimator(layers.Dense(1)), TypeError, "must be a paceline.nn.Model"),
        (lambda: model_to_estimator(Model(a := Input((1,)), a + 1)), ValueError, "not compiled"),
        (
            lambda: model_to_estimator(compiled(), metric_names_map={"a": "x", "b": "x"}),
            ValueError,
            "two metrics one name",
        ),
    ],
    ids=["no model", "not compiled", "names"],
)
def test_es_17_what_cannot_become_an_estimator_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()
