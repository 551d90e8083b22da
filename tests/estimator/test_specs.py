"""B5, B1.spec: what a `model_fn` may return beyond loss and predictions."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import export
from paceline.nn import metrics

DEFAULT = "serving_default"
SUMMED = {
    "trainable": False,
    "synchronization": pl.VariableSynchronization.ON_READ,
    "aggregation": pl.VariableAggregation.SUM,
    "saved": False,
}
SCORES = np.array([[0.25, 0.75]], np.float32)


def predicted(**fields):
    return pl.EstimatorSpec("infer", predictions={"y": SCORES}, **fields)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"only": export.PredictOutput(SCORES)}, {"only", DEFAULT}),
        ({DEFAULT: {"y": SCORES}, "other": export.RegressionOutput(SCORES)}, {DEFAULT, "other"}),
        ({DEFAULT: export.ClassificationOutput(SCORES, np.array([["a", "b"]]))}, {DEFAULT}),
    ],
)
def test_b5_one_of_the_export_outputs_is_the_default(given, names):
    assert predicted(export_outputs=given).export_outputs.keys() == names


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({}, TypeError, "a dict of names"),
        ([1], TypeError, "a dict of names"),
        ({"a": SCORES}, TypeError, r"\['a'\] must be a PredictOutput"),
        ({3: {"y": SCORES}}, TypeError, "a name must be a text"),
        ({"a": {"y": SCORES}, "b": {"y": SCORES}}, ValueError, "call one 'serving_default'"),
    ],
)
def test_b5_export_outputs_that_cannot_be_are_refused(given, error, words):
    with pytest.raises(error, match=words):
        predicted(export_outputs=given)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: export.PredictOutput({}), "an empty dict"),
        (lambda: export.PredictOutput({1: SCORES}), r"the name\(s\) \[1\]"),
        (lambda: export.ClassificationOutput(), "scores, classes, or both"),
        (lambda: export.ClassificationOutput(scores=np.array([1])), "scores must be floats"),
        (lambda: export.ClassificationOutput(classes=np.array([1])), "classes must be text"),
        (lambda: export.RegressionOutput(np.array([1])), "value must be floats"),
    ],
)
def test_b5_an_output_says_what_it_is_made_of(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_b1_spec_replace_makes_another_one_of_the_same_mode():
    spec = predicted(export_outputs={"a": {"y": SCORES}})
    other = spec._replace(predictions={"z": SCORES})
    assert list(other.predictions) == ["z"]
    assert list(spec.predictions) == ["y"]
    assert other.export_outputs.keys() == {"a", DEFAULT}
    with pytest.raises(ValueError, match="cannot change mode"):
        spec._replace(mode="train")
    with pytest.raises(TypeError, match="no field scaffold"):
        spec._replace(scaffold=None)


def test_es_18_a_scaffold_is_refused_when_the_spec_is_made():
    with pytest.raises(TypeError, match="no field scaffold; its fields are mode, predictions"):
        predicted(scaffold=None)


def test_b1_spec_fields_stand_in_the_order_of_tensorflow():
    spec = pl.EstimatorSpec("eval", None, 1.0, None, {}, {"a": {"y": SCORES}})
    assert spec.export_outputs.keys() == {"a", DEFAULT}


@pytest.mark.parametrize("field", ["export_outputs", "eval_metric_ops", "train_op"])
def test_es_14_none_is_taken_where_tensorflow_takes_it(field):
    assert not getattr(predicted(**{field: None}), field)


def counted(features, labels, mode):
    """A model with the mean of the labels, as pairs (value, update) of three kinds."""
    total, count = (pl.get_variable(n, (), np.float64, 0.0, **SUMMED) for n in ("total", "count"))
    mean = metrics.Mean(name="mean")

    def update():
        total.assign_add(np.sum(labels))
        count.assign_add(len(labels))

    pairs = {
        "function": (lambda: total.as_a_whole() / count.as_a_whole(), update),
        "variable": (count, None),
        "metric": (mean, lambda: mean.update_state(labels)),
    }
    return pl.EstimatorSpec(mode, loss=np.mean(labels), eval_metric_ops=pairs)


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]], ids=len)
def test_b1_spec_pairs_of_value_and_update_are_exact_over_batches_and_replicas(devices, tmp_path):
    labels = np.arange(10, dtype=np.float32)
    config = pl.RunConfig(eval_distribute=pl.MirroredStrategy(devices))
    estimator = pl.Estimator(counted, tmp_path, config)
    found = estimator.evaluate(lambda: pl.Dataset.from_tensor_slices((labels, labels)).batch(4))
    assert [found[name] for name in ("function", "variable", "metric")] == [4.5, 10.0, 4.5]


def test_b1_spec_an_update_is_not_made_in_training():
    def never():
        raise AssertionError("called")

    pl.EstimatorSpec("train", loss=1.0, train_op=[], eval_metric_ops={"a": (lambda: 1.0, never)})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: (0.5, None), "the number of one batch says nothing of all"),
        (lambda: (lambda: 1.0, 3), "the update of a pair"),
        (lambda: lambda: 1.0, "must be a paceline.nn.metrics.Metric"),
    ],
)
def test_b1_spec_pairs_that_mean_nothing_are_refused(given, words):
    with pytest.raises(TypeError, match=words):
        pl.EstimatorSpec("eval", loss=1.0, eval_metric_ops={"a": given()})


def test_b1_spec_a_metric_whose_pair_has_no_update_is_refused_unless_it_was_updated():
    with pytest.raises(ValueError, match="was never updated"):
        pl.EstimatorSpec("eval", loss=1.0, eval_metric_ops={"a": (metrics.Mean(), None)})
