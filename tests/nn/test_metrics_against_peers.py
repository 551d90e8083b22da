"""Metrics against Keras, whose answers are stored, and against scikit-learn, over replicas too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sk

from paceline.nn import metrics
from paceline.strategies import PerReplica

STORED = json.loads((Path(__file__).parents[1] / "peers" / "keras_metrics.json").read_text("utf-8"))
DATA = {
    name: {key: np.array(value) for key, value in each.items()}
    for name, each in STORED["data"].items()
}
CASES = pytest.mark.parametrize(
    "case", STORED["cases"], ids=lambda case: f"{case['name']} {case['arguments']}"
)
CLOSE = {"rtol": 5e-7, "atol": 1e-8}  # Keras adds small numbers to divisors


def parts_of(case, cuts):
    """Labels, predictions and weights of a case, cut up."""
    return [np.split(DATA[case["of"]][key], cuts) for key in "ypw"]


@CASES
@pytest.mark.parametrize("weighted", [False, True])
def test_a_metric_is_keras_own_whatever_the_batches(case, weighted):
    metric = getattr(metrics, case["name"])(**case["arguments"])
    for y, p, w in zip(*parts_of(case, [4, 4, 9]), strict=True):
        metric.update_state(y, p, w if weighted else None)
    np.testing.assert_allclose(metric.result(), case["results"][weighted], **CLOSE)


@CASES
def test_mb_20_replicas_of_two_workers_measure_what_one_does_the_last_of_them_nothing(
    case, on_workers
):
    parts = parts_of(case, [2, 9, len(DATA[case["of"]]["y"])])

    def work(strategy, index):
        with strategy.scope():
            metric = getattr(metrics, case["name"])(**case["arguments"])
        mine = slice(2 * index, 2 * index + 2)
        results = strategy.run(metric, tuple(PerReplica(part[mine]) for part in parts))
        with strategy.scope():
            return *results.values, metric.result()

    for result in sum(on_workers(2, 2, work), ()):
        np.testing.assert_allclose(result, case["results"][True], **CLOSE)


@CASES
def test_state_is_merged_and_forgotten(case):
    make = getattr(metrics, case["name"])
    each = [make(**case["arguments"]) for _ in range(3)]
    for metric, y, p, w in zip(each[1:], *parts_of(case, [5]), strict=True):
        metric.update_state(y, p, w)
    each[0].merge_state(each[1:])
    np.testing.assert_allclose(each[0].result(), case["results"][True], **CLOSE)
    each[0].reset_states()
    assert not np.any(each[0].result())


def test_negative_weights_are_cut_to_zero_under_a_precision_recall_curve_as_in_keras():
    metric, data = metrics.AUC(20, "PR"), DATA["binary"]
    metric.update_state(data["y"], data["p"], STORED["negative weights"]["w"])
    assert metric.result() == pytest.approx(STORED["negative weights"]["result"], rel=1e-7)


@pytest.mark.parametrize("average", [None, "micro", "macro", "weighted"])
@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_f_scores_are_those_of_scikit_learn(average, beta):
    y, p, w = (DATA["classes"][key] for key in "ypw")
    metric = metrics.FBetaScore(average, beta)
    metric.update_state(np.eye(3)[y], p, w)
    expected = sk.fbeta_score(y, p.argmax(-1), beta=beta, average=average, sample_weight=w)
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-12)


def test_other_scores_are_those_of_scikit_learn():
    y, p, w = (DATA["numbers"][key] for key in "ypw")
    for how in ("uniform_average", "variance_weighted"):
        name = how if how == "uniform_average" else f"{how}_average"
        metric = metrics.R2Score(name)
        expected = sk.r2_score(y, p, sample_weight=w, multioutput=how)
        assert metric(y, p, w) == pytest.approx(expected, rel=1e-9)
    y, p, w = (DATA["guesses"][key] for key in "ypw")
    expected = sk.jaccard_score(y, p, average="macro", sample_weight=w)
    assert metrics.MeanIoU(3)(y, p, w) == pytest.approx(expected, rel=1e-12)
    y, p, w = (DATA["labels"][key] for key in "ypw")
    metric = metrics.AUC(5000, multi_label=True)
    expected = sk.roc_auc_score(y, p, average="macro", sample_weight=w)
    assert metric(y, p, w) == pytest.approx(expected, rel=1e-3)
    y, p = (DATA["binary"][key] for key in "yp")
    (tn, fp), (fn, tp) = sk.confusion_matrix(y, p > 0.5)
    for name, expected in {"True": (tp, tn), "False": (fp, fn)}.items():
        found = [getattr(metrics, f"{name}{kind}")()(y, p) for kind in ("Positives", "Negatives")]
        assert found == list(expected)
