"""Metrics: the values that Keras's documentation prints, and exactness over batches."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.autodiff import Tensor
from paceline.nn import Sequential, layers, losses, metrics
from paceline.nn.masks import with_mask

COLUMN = np.array([[1], [1], [0], [0]])
ONE_HOT, CLASSES = np.array([[0, 0, 1], [0, 1, 0]]), np.array([2, 1])
SCORES = np.array([[0.1, 0.9, 0.8], [0.05, 0.95, 0.0]])
SCORES_2 = np.array([[0.1, 0.6, 0.3], [0.05, 0.95, 0.0]])
Y, P = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 0.0]])

# What Keras prints for each class: (metric, y_true, y_pred, value, weights, value with weights).
KERAS = [
    (metrics.Accuracy, [[1], [2], [3], [4]], [[0], [2], [3], [4]], 0.75, [1, 1, 0, 0], 0.5),
    (metrics.BinaryAccuracy, COLUMN, [[0.98], [1], [0], [0.6]], 0.75, [1, 0, 0, 1], 0.5),
    (metrics.CategoricalAccuracy, ONE_HOT, SCORES, 0.5, [0.7, 0.3], 0.3),
    (metrics.SparseCategoricalAccuracy, CLASSES[:, None], SCORES_2, 0.5, [0.7, 0.3], 0.3),
    (lambda: metrics.TopKCategoricalAccuracy(1), ONE_HOT, SCORES, 0.5, [0.7, 0.3], 0.3),
    (lambda: metrics.SparseTopKCategoricalAccuracy(1), CLASSES, SCORES, 0.5, [0.7, 0.3], 0.3),
    (metrics.MeanSquaredError, Y, P, 0.25, [1, 0], 0.5),
    (metrics.MeanAbsoluteError, Y, P, 0.25, [1, 0], 0.5),
    (metrics.RootMeanSquaredError, Y, P, 0.5, [1, 0], math.sqrt(0.5)),
    (metrics.Precision, [0, 1, 1, 1], [1, 0, 1, 1], 2 / 3, [0, 0, 1, 0], 1.0),
    (metrics.Recall, [0, 1, 1, 1], [1, 0, 1, 1], 2 / 3, [0, 0, 1, 0], 1.0),
    (lambda: metrics.AUC(3), [0, 0, 1, 1], [0, 0.5, 0.3, 0.9], 0.75, [1, 0, 0, 1], 1.0),
    (
        lambda: metrics.MeanMetricWrapper(losses.binary_crossentropy),
        [[0.0, 1.0], [0.0, 0.0]],
        [[0.6, 0.4], [0.4, 0.6]],
        0.8149,
        [1, 0],
        0.9163,
    ),
]


@pytest.mark.parametrize(("make", "y", "p", "value", "weights", "weighted"), KERAS)
def test_a_metric_has_the_values_of_keras_documentation(make, y, p, value, weights, weighted):
    y, p = np.array(y), np.array(p)
    metric = make()
    metric.update_state(y, p)
    assert metric.result() == pytest.approx(value, abs=1e-4)
    metric.reset_state()
    metric.update_state(y, p, weights)
    assert metric.result() == pytest.approx(weighted, abs=1e-4)


@pytest.mark.parametrize(("make", "y", "p", "value", "weights", "weighted"), KERAS)
def test_cutting_the_data_changes_nothing(make, y, p, value, weights, weighted):
    y, p, w = np.array(y), np.array(p), np.array(weights)
    whole, parts, rest = make(), make(), make()
    whole.update_state(y, p, w)
    parts.update_state(y[:1], p[:1], w[:1])
    rest.update_state(y[1:], p[1:], w[1:])
    parts.merge_state(rest)
    assert parts.result() == pytest.approx(whole.result(), rel=1e-15)


@pytest.mark.parametrize(("make", "y", "p", "value", "weights", "weighted"), KERAS)
def test_without_data_a_metric_is_zero(make, y, p, value, weights, weighted):
    metric = make()
    assert metric.result() == 0.0
    assert isinstance(metric.result(), float)
    assert metric.result().numpy() == np.float64(0)


@pytest.mark.parametrize(
    ("make", "value", "weighted"), [(metrics.Mean, 4, 2), (metrics.Sum, 16, 4)]
)
def test_mean_and_sum_of_values(make, value, weighted):
    metric = make()
    metric.update_state([1, 3, 5, 7])
    assert metric.result() == value
    metric.reset_state()
    metric.update_state([1, 3, 5, 7], sample_weight=[1, 1, 0, 0])
    assert metric.result() == weighted


def test_mean_takes_numbers_and_weights_by_example():
    metric = metrics.Mean()
    metric.update_state(3.0)
    metric.update_state(np.float32(5.0))
    assert metric.result() == 4.0
    metric.update_state(np.array([[1.0, 3.0], [100.0, 100.0]]), [1, 0])
    assert metric.result() == (3 + 5 + 1 + 3) / 4


def test_sums_are_exact_where_float32_would_stand_still():
    metric = metrics.Sum()
    metric.update_state(np.full(1, 2.0**24, np.float32))
    for _ in range(3):
        metric.update_state(np.ones(1, np.float32))
    assert metric.result() == 2**24 + 3


def test_tensors_are_measured_outside_the_graph():
    metric = metrics.MeanSquaredError()
    metric.update_state(np.zeros(2), Tensor(np.array([1.0, 3.0]), requires_grad=True))
    assert metric.result() == 5.0


def test_names_and_state_are_found_again_in_a_model_that_is_built_anew(store):
    for _ in range(2):
        with store.building():
            made = [metrics.Mean(), metrics.Accuracy(), metrics.Mean(), metrics.Mean(name="loss")]
            made[0].update_state([2.0])
    assert [m.name for m in made] == ["mean", "accuracy", "mean", "loss"]
    assert [v.name for v in made[0].variables] == ["mean/total", "mean/count"]
    assert [float(v.numpy()) for v in made[0].variables] == [4.0, 2.0]
    assert not any(v.saved or v.trainable for v in store.variables.values())


def test_only_equal_kinds_can_be_merged():
    with pytest.raises(ValueError, match="only metrics of the same class and options"):
        metrics.AUC(10).merge_state(metrics.AUC(20))


@pytest.mark.parametrize(
    ("y", "p"), [([0, 1, 1], [[0.2], [0.7], [0.1]]), ([[0], [1], [1]], [0.2, 0.7, 0.1])]
)
def test_a_column_counts_as_a_vector(y, p):
    for metric in (metrics.BinaryAccuracy(), metrics.Precision(), metrics.AUC()):
        metric.update_state(np.array(y), np.array(p))
    metric = metrics.BinaryAccuracy()
    metric.update_state(np.array(y), np.array(p))
    assert metric.result() == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("metric", "y", "p", "message"),
    [
        (metrics.Accuracy, [1, 2], [[1, 2], [1, 2]], r"accuracy: y_true has shape \(2,\)"),
        (metrics.SparseCategoricalAccuracy, [0, 3], SCORES, r"labels must be in \[0, 3\)"),
        (metrics.SparseCategoricalAccuracy, ONE_HOT, SCORES, "one-hot labels use"),
        (metrics.Precision, [0, 2], [0.1, 0.2], "precision: labels must be 0 or 1"),
        (metrics.Recall, [0, 1], [0.1, 1.2], r"recall: predictions must be in \[0, 1\]"),
        (metrics.AUC, [0, 1], [0.1, math.nan], r"auc: predictions must be in \[0, 1\].*sigmoid"),
    ],
)
def test_what_cannot_be_counted_is_refused(metric, y, p, message):
    with pytest.raises(ValueError, match=message):
        metric().update_state(np.array(y), np.array(p))


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"mean: sample_weight has shape \(3,\)"):
        metrics.Mean().update_state([1, 2], [1, 1, 1])


def test_top_k_counts_ties_as_hits_and_no_number_as_a_miss():
    scores = np.array([[0.5, 0.5, 0.5, 0.1], [math.nan] * 4])
    metric = metrics.SparseTopKCategoricalAccuracy(k=1)
    metric.update_state(np.array([2, 0]), scores)
    assert metric.result() == 0.5


def test_several_thresholds_give_an_array():
    y, p = np.array([0, 1, 1, 1]), np.array([0.3, 0.4, 0.6, 0.9])
    precision, recall = metrics.Precision([0.2, 0.5, 0.95]), metrics.Recall([0.2, 0.5, 0.95])
    precision.update_state(y, p)
    recall.update_state(y, p)
    np.testing.assert_allclose(precision.result(), [3 / 4, 1, 0])
    np.testing.assert_allclose(recall.result(), [1, 2 / 3, 0])


@pytest.mark.parametrize("thresholds", [1.5, [0.5, 0.2], [], [-0.1, 0.5]])
def test_thresholds_must_rise_within_the_range_of_predictions(thresholds):
    with pytest.raises(ValueError, match=r"thresholds must rise and lie in \[0, 1\]"):
        metrics.Precision(thresholds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_thresholds": 1}, "num_thresholds must be at least 2"),
        ({"curve": "DET"}, "curve must be 'ROC' or 'PR', it is 'DET'"),
        ({"summation_method": "left"}, "summation_method must be"),
    ],
)
def test_auc_refuses_what_it_does_not_know(options, message):
    with pytest.raises(ValueError, match=message):
        metrics.AUC(**options)


def test_auc_of_logits():
    y, z = np.array([0, 1, 1, 0]), np.array([-3.0, 2.0, -1.0, -0.5])
    from_logits, of_shares = metrics.AUC(from_logits=True), metrics.AUC()
    from_logits.update_state(y, z)
    of_shares.update_state(y, 1 / (1 + np.exp(-z)))
    assert from_logits.result() == of_shares.result() == 0.75


def test_get_knows_names_metrics_and_functions():
    found = metrics.get({"class_name": "Precision", "config": {"thresholds": [0.1, 0.9]}})
    assert found([0, 1], [0.5, 0.5]).tolist() == [0.5, 0]
    assert isinstance(metrics.get("mae"), metrics.MeanAbsoluteError)
    assert isinstance(metrics.get("SparseCategoricalAccuracy"), metrics.SparseCategoricalAccuracy)
    metric = metrics.Mean()
    assert metrics.get(metric) is metric
    own = metrics.get(losses.mean_absolute_error)
    own.update_state(np.zeros(2), np.array([1.0, 2.0]))
    assert (own.name, own.result()) == ("mean_absolute_error", 1.5)
    with pytest.raises(ValueError, match=r"no metric is called 'f2'; there are auc, acc.*f1_score"):
        metrics.get("f2")


def test_a_call_adds_a_batch_and_gives_the_figure_so_far():
    metric = metrics.Mean()
    assert (metric([1.0, 3.0]), metric(5.0)) == (2.0, 3.0)


def test_a_dtype_is_that_of_the_result_and_not_of_the_sums():
    metric = metrics.Mean("third", np.float32)
    result = metric([0.0, 0.0, 1.0])
    assert result.dtype == np.float32
    assert result == np.float32(1 / 3)
    assert metric.variables[0].dtype == np.float64
    assert metrics.Precision([0.1, 0.9], dtype="float16")([0, 1], [0.5, 0.5]).dtype == np.float16


def test_names_are_those_of_the_class_unless_they_are_given():
    assert metrics.TruePositives().name == "true_positives"
    assert metrics.MeanIoU(2).name == "mean_io_u"
    assert metrics.AUC(name="area").name == "area"


def test_the_mean_of_arrays_goes_element_by_element():
    metric = metrics.MeanTensor()
    assert metric.result() == 0.0
    metric.update_state([1.0, 2.0])
    metric.update_state([3.0, 8.0], sample_weight=[1, 0])
    np.testing.assert_array_equal(metric.result(), [2.0, 2.0])
    with pytest.raises(ValueError, match=r"must have the shape \(2,\).*they have \(3,\)"):
        metric.update_state([1.0, 2.0, 3.0])


def test_an_error_may_be_relative_to_what_is_given():
    metric = metrics.MeanRelativeError(normalizer=[1, 3, 2, 0])
    assert metric([1, 3, 2, 3], [2, 4, 6, 8]) == (1 + 1 / 3 + 2 + 0) / 4


MASK = np.array([[True, True, False], [True, False, False]])
MASKED = [
    (metrics.MeanSquaredError, np.zeros((2, 3, 1)), np.full((2, 3, 1), np.nan)),
    (metrics.BinaryAccuracy, np.zeros((2, 3)), np.full((2, 3), 0.2)),
    (metrics.SparseCategoricalCrossentropy, np.zeros((2, 3), int), np.full((2, 3, 4), 0.25)),
    (metrics.AUC, np.array([[0, 1, 1], [1, 0, 0]]), np.array([[0.1, 0.7, 0.2], [0.6, 0.9, 2.0]])),
    (lambda: metrics.MeanIoU(2), np.zeros((2, 3)), np.array([[0, 1, 1], [0, 1, 7]])),
]


@pytest.mark.parametrize(("make", "y", "p"), MASKED)
@pytest.mark.parametrize("weights", [None, np.array([2.0, 1.0])])
def test_what_a_mask_excludes_is_not_counted(make, y, p, weights):
    p = np.where(MASK.reshape(2, 3, *(1,) * (p.ndim - 2)), np.nan_to_num(p, nan=3.0), p)
    spread = None if weights is None else np.repeat(weights[:, None], 3, 1)[MASK]
    expected = make()(y[MASK], p[MASK], spread)
    assert make()(y, with_mask(Tensor(p), MASK), weights) == expected
    assert expected > 0


def test_an_ignored_class_counts_in_no_mean():
    metric = metrics.SparseCategoricalCrossentropy(ignore_class=-1)
    p = np.array([[0.5, 0.5], [0.1, 0.9], [0.25, 0.75]])
    assert metric([0, -1, 1], p) == pytest.approx((math.log(2) - math.log(0.75)) / 2)
    iou = metrics.MeanIoU(2, ignore_class=255)
    assert iou([0, 255, 1, 1], [0, 1, 1, 0]) == 0.5


@pytest.mark.parametrize(
    ("metric", "y", "p", "message"),
    [
        (metrics.MeanIoU(2), [0, 2], [0, 1], r"mean_io_u: labels must be in \[0, 2\)"),
        (metrics.MeanIoU(2), [0, 1], [0, 0.5], "predictions must be class numbers"),
        (metrics.F1Score(), [0, 1], [0.2, 0.5], r"predictions have the shape \(n, classes\)"),
        (metrics.F1Score(), [[2, 0]], [[0.2, 0.5]], "labels must be 0 or 1.*from 0 to 2"),
        (metrics.R2Score(), np.ones((1, 1, 1)), np.ones((1, 1, 1)), r"shape \(n,\) or"),
        (metrics.Precision(class_id=3), [[0, 1]], [[0.1, 0.2]], "class_id=3 calls for"),
        (metrics.AUC(multi_label=True), [0, 1], [0.1, 0.2], r"the shape \(n, labels\)"),
        (metrics.AUC(label_weights=[1, 2]), [[1]], [[0.5]], "with 2 labels; they have"),
    ],
)
def test_what_has_no_such_figure_is_refused(metric, y, p, message):
    with pytest.raises(ValueError, match=message):
        metric.update_state(np.array(y), np.array(p))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: metrics.SensitivityAtSpecificity(1.5), "specificity must be between 0 and 1"),
        (lambda: metrics.PrecisionAtRecall(0.5, 0), "num_thresholds must be a positive integer"),
        (lambda: metrics.Precision(top_k=0), "top_k must be a positive integer, it is 0"),
        (lambda: metrics.FBetaScore("binary"), "average must be one of .*, it is 'binary'"),
        (lambda: metrics.FBetaScore(beta=0), "beta must be positive"),
        (lambda: metrics.IoU(2, [2]), r"target_class_ids must be in \[0, 2\)"),
        (lambda: metrics.MeanIoU(1.5), "num_classes must be a positive integer"),
    ],
)
def test_options_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_constant_has_no_variance_to_explain():
    assert metrics.R2Score()([2.0, 2.0], np.array([2.0, 2.0])) == 1.0
    assert metrics.R2Score()([2.0, 2.0], np.array([2.0, 3.0])) == 0.0
    adjusted = metrics.R2Score(num_regressors=1)
    assert adjusted([1.0, 2.0, 3.0, 4.0], np.array([1.0, 2.0, 3.0, 5.0])) == pytest.approx(0.7)


def test_functions_of_metrics_measure_each_example():
    assert metrics.binary_accuracy([1, 0], [0.4, 0.2], threshold=0.3).tolist() == [1, 1]
    assert metrics.sparse_categorical_accuracy([1, 0], SCORES[:, :2]).tolist() == [1, 0]
    assert metrics.top_k_categorical_accuracy(ONE_HOT, SCORES, k=2).tolist() == [1, 1]


def test_weights_may_be_of_each_label_where_each_has_an_area():
    y = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    p = np.array([[0.1, 0.7], [0.4, 0.8], [0.9, 0.3], [0.6, 0.2]])
    weights = np.array([[1.0, 0], [2, 3], [1, 1], [5, 2]])
    together = metrics.AUC(multi_label=True)
    together.update_state(y, p, weights)
    alone = [metrics.AUC() for _ in range(2)]
    for label, each in enumerate(alone):
        each.update_state(y[:, label], p[:, label], weights[:, label])
    assert together.result() == pytest.approx(np.mean([each.result() for each in alone]))


class Total(metrics.Metric):
    """A metric of one's own that asks for plain arrays."""

    def __init__(self, name="total", **options):
        super().__init__(name, **options)
        self.sum = self.add_weight("sum")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.sum.assign_add(np.sum(np.asarray(y_pred, float)))

    def result(self):
        return self.sum


def test_a_metric_may_ask_for_arrays_of_what_the_loss_is_computed_from():
    total = Total()
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    assert total(y_true=x, y_pred=x * 2.0) == 6.0
    masked = with_mask(x * 1.0, np.array([True, False, True]))
    mean = metrics.Mean()
    assert mean(masked) == 1.0
    model = Sequential([layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[Total()])
    assert "total" in model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0).history


@pytest.mark.parametrize(
    ("normalizer", "mean"), [([1.0, 2.0], 0.5), ([[2.0, 4.0], [2.0, 4.0]], 0.25), (2.0, 0.375)]
)
def test_a_mean_relative_error_has_a_normalizer_for_each_column_or_value(normalizer, mean):
    error = metrics.MeanRelativeError(normalizer=normalizer)
    y_true, y_pred = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0, 4.0], [3.0, 4.0]])
    assert error(y_true, y_pred) == mean


def test_a_score_of_examples_that_weigh_nothing_is_zero():
    assert metrics.R2Score()(np.ones((3, 1)), np.ones((3, 1)), np.zeros(3)) == 0.0
