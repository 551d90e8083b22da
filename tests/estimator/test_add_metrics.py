"""add_metrics (B1.canned): more metrics for a model that is there already."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import BinaryClassHead, add_metrics
from paceline.nn import layers, metrics, optimizers

rng = np.random.default_rng(0)
X = rng.normal(size=(64, 2)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def input_fn():
    return pl.Dataset.from_tensor_slices(({"x": X, "extra": Y * 2}, Y)).repeat(10).batch(16)


def model_fn(features, labels, mode, params):
    head = BinaryClassHead()
    logits = layers.Dense(1)(features["x"])
    return head.create_estimator_spec(
        features, mode, logits, labels, optimizers.SGD(params["rate"])
    )


def no_more():
    return {}


@pytest.fixture
def trained(tmp_path):
    config = pl.RunConfig(tf_random_seed=1)
    return pl.Estimator(model_fn, tmp_path, config, {"rate": 0.5}).train(input_fn)


def test_metrics_of_features_labels_and_predictions_come_to_those_of_the_model(trained):
    seen = []

    def metric_fn(features, labels, predictions, config):
        seen.append(config.tf_random_seed)
        hits = metrics.Accuracy("hits")
        hits.update_state(labels, predictions["class_ids"][:, 0])
        extra = metrics.Mean("extra")
        extra.update_state(features["extra"])
        return {"hits": hits, "extra": extra}

    more = add_metrics(trained, metric_fn)
    found, before = more.evaluate(input_fn), trained.evaluate(input_fn)
    assert {name: found[name] for name in before} == before
    assert found["hits"] == before["accuracy"]
    assert found["extra"] == pytest.approx(2 * Y.mean())
    assert seen[0] == 1
    assert (more.model_dir, more.params) == (trained.model_dir, trained.params)


def test_a_metric_of_the_same_name_takes_the_others_place(trained):
    def metric_fn(labels):
        zero = metrics.Mean("zero")
        zero.update_state(labels * 0)
        return {"accuracy": zero}

    assert add_metrics(trained, metric_fn).evaluate(input_fn)["accuracy"] == 0


def test_the_model_goes_on_training_and_predicting(trained):
    more = add_metrics(trained, no_more)
    assert more.train(input_fn, steps=1).get_variable_value("global_step") == 41
    assert len(list(more.predict(input_fn))) == 640


def test_a_model_that_has_not_begun_begins_where_the_other_one_would(trained, tmp_path):
    warm = pl.Estimator(
        model_fn, tmp_path / "warm", None, {"rate": 0.0}, warm_start_from=trained.model_dir
    )
    more = add_metrics(warm, no_more).train(input_fn, steps=1)
    found, expected = (e.get_variable_value("dense/kernel") for e in (more, trained))
    np.testing.assert_array_equal(found, expected)


def test_a_model_without_params_stays_without(tmp_path, caplog):
    def plain(features, labels, mode):
        return model_fn(features, labels, mode, {"rate": 0.1})

    more = add_metrics(pl.Estimator(plain, tmp_path), no_more).train(input_fn, steps=1)
    assert more.params == {}
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_something_else_is_refused(trained):
    with pytest.raises(TypeError, match="must be an Estimator, it is 3"):
        add_metrics(3, no_more)
    with pytest.raises(ValueError, match=r"argument.s. logits.*predictions"):
        add_metrics(trained, lambda logits: {})
    with pytest.raises(TypeError, match="dict of metrics by name, it gave 3"):
        add_metrics(trained, lambda: 3).evaluate(input_fn, steps=1)
