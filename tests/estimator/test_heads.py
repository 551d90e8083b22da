"""Heads: losses, predictions and metric keys of each (B10.canned_keys), and what they refuse."""

import itertools

import numpy as np
import pytest
from sklearn import metrics as sk

import paceline as pl
from paceline.estimator import (
    BinaryClassHead,
    Head,
    LogisticRegressionHead,
    MultiClassHead,
    MultiHead,
    MultiLabelHead,
    PoissonRegressionHead,
    RegressionHead,
)
from paceline.estimator.feature_column import numeric_column
from paceline.nn import layers, optimizers

rng = np.random.default_rng(0)
N = 500
Z1 = rng.normal(size=(N, 1)).astype(np.float32)
Z3 = rng.normal(size=(N, 3)).astype(np.float32)
BINARY = rng.integers(0, 2, N)
CLASSES = rng.integers(0, 3, N)
HOT = rng.integers(0, 2, (N, 3))
WEIGHTS = rng.uniform(0.1, 3, N).astype(np.float32)
WORDS = ["setosa", "versicolor", "virginica"]


def sigmoid(z):
    return 1 / (1 + np.exp(-z.astype(np.float64)))


def softmax(z):
    e = np.exp(z.astype(np.float64))
    return e / e.sum(axis=-1, keepdims=True)


def evaluated(head, logits, labels, features=None, batches=4, **more):
    """The metrics of an evaluation of several, unequal batches."""
    cuts = [0, *sorted(rng.choice(np.arange(1, N), batches - 1, replace=False)), N]
    metrics = None
    for start, stop in itertools.pairwise(cuts):
        part = slice(start, stop)
        of_part = {k: v[part] for k, v in (features or {}).items()}
        labels_of_part = (
            {k: v[part] for k, v in labels.items()} if isinstance(labels, dict) else labels[part]
        )
        metrics = metrics or head.metrics()
        head.update_metrics(metrics, of_part, logits[part], labels_of_part, **more)
    return {name: metric.result() for name, metric in metrics.items()}


BINARY_KEYS = {
    "accuracy",
    "accuracy_baseline",
    "auc",
    "auc_precision_recall",
    "average_loss",
    "label/mean",
    "precision",
    "prediction/mean",
    "recall",
}

KEYS = {
    "regression": (
        RegressionHead(),
        (Z1, BINARY),
        {"average_loss", "label/mean", "prediction/mean"},
        {"predictions"},
    ),
    "poisson": (
        PoissonRegressionHead(),
        (Z1, BINARY),
        {"average_loss", "label/mean", "prediction/mean"},
        {"predictions", "logits"},
    ),
    "logistic regression": (
        LogisticRegressionHead(name="a"),
        (Z1, BINARY),
        {"average_loss/a", "label/mean/a", "prediction/mean/a"},
        {"predictions", "logits"},
    ),
    "binary": (
        BinaryClassHead(thresholds=[0.25, 0.5]),
        (Z1, BINARY),
        BINARY_KEYS
        | {f"{m}/positive_threshold_0.25" for m in ("accuracy", "precision", "recall")}
        | {f"{m}/positive_threshold_0.5" for m in ("accuracy", "precision", "recall")},
        {
            *("logits", "logistic", "probabilities", "class_ids", "classes"),
            *("all_class_ids", "all_classes"),
        },
    ),
    "multi-class": (
        MultiClassHead(3),
        (Z3, CLASSES),
        {"average_loss", "accuracy"},
        {"logits", "probabilities", "class_ids", "classes", "all_class_ids", "all_classes"},
    ),
    "multi-label": (
        MultiLabelHead(
            3,
            thresholds=[0.5],
            label_vocabulary=WORDS,
            classes_for_class_based_metrics=["setosa", 2],
        ),
        (Z3, HOT),
        {
            *("average_loss", "auc", "auc_precision_recall"),
            *(f"{m}/positive_threshold_0.5" for m in ("accuracy", "precision", "recall")),
            *(f"{m}/setosa" for m in ("probability_mean", "auc", "auc_precision_recall")),
            *(f"{m}/virginica" for m in ("probability_mean", "auc", "auc_precision_recall")),
        },
        {"logits", "probabilities", "classes"},
    ),
    "multi-label by number": (
        MultiLabelHead(3, classes_for_class_based_metrics=[1]),
        (Z3, HOT),
        {
            *("average_loss", "auc", "auc_precision_recall"),
            *(f"{m}/class1" for m in ("probability_mean", "auc", "auc_precision_recall")),
        },
        {"logits", "probabilities", "classes"},
    ),
    "several": (
        MultiHead([RegressionHead(name="a"), MultiClassHead(3, name="b")]),
        (np.concatenate([Z1, Z3], axis=1), {"a": BINARY, "b": CLASSES}),
        {
            *("loss/a", "average_loss/a", "label/mean/a", "prediction/mean/a"),
            *("loss/b", "average_loss/b", "accuracy/b"),
        },
        {("a", "predictions")}
        | {("b", k) for k in ("logits", "probabilities", "class_ids", "classes")}
        | {("b", k) for k in ("all_class_ids", "all_classes")},
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_b10_canned_keys_of_metrics_and_predictions_are_those_of_tensorflow(case):
    head, (logits, labels), metrics, predictions = KEYS[case]
    assert set(evaluated(head, logits, labels)) == metrics
    assert set(head.predictions(logits)) == predictions
    assert {len(value) for value in head.predictions(logits).values()} == {N}


SIGNATURES = {
    "regression": {"regression": {"outputs"}, "predict": {"predictions"}},
    "binary": {
        "classification": {"scores", "classes"},
        "regression": {"outputs"},
        "predict": KEYS["binary"][3],
    },
    "multi-class": {"classification": {"scores", "classes"}, "predict": KEYS["multi-class"][3]},
    "multi-label": {"classification": {"scores", "classes"}, "predict": KEYS["multi-label"][3]},
    "several": {
        "a": {"outputs"},
        "a/regression": {"outputs"},
        "a/predict": {"predictions"},
        "b": {"scores", "classes"},
        "b/classification": {"scores", "classes"},
        "b/predict": KEYS["multi-class"][3],
        "predict": {"/".join(key) for key in KEYS["several"][3]},
    },
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_b5_an_exported_model_has_the_signatures_of_tensorflow(case):
    head, (logits, _), _, _ = KEYS[case]
    exported = head.create_estimator_spec({}, "infer", logits).export_outputs
    found = {name: set(output.outputs) for name, output in exported.items()}
    default = found.pop("serving_default")
    assert found == SIGNATURES[case]
    assert default == next(iter(SIGNATURES[case].values()))


SHARES = np.array([0.8, 0.4, 0.0, 1.0, 0.1], np.float32)
OF_SHARES = np.array([[0.5], [-0.3], [-1.0], [2.0], [-0.2]], np.float32)


def test_labels_that_are_probabilities_count_as_in_tensorflow():
    """What TensorFlow 2.15.1 answers."""
    found = evaluated(BinaryClassHead(thresholds=[0.3]), OF_SHARES, SHARES, batches=1)
    assert found == pytest.approx(
        {
            "average_loss": 0.46135217,
            "accuracy": 0.4,
            "accuracy_baseline": 0.54,
            "precision": 1.0,
            "recall": 0.5,
            "label/mean": 0.46,
            "prediction/mean": 0.52958429,
            "auc": 1.0,
            "auc_precision_recall": 1.0,
            "accuracy/positive_threshold_0.3": 0.4,
            "precision/positive_threshold_0.3": 1.0,
            "recall/positive_threshold_0.3": 1.0,
        }
    )
    some = MultiLabelHead(2).loss(np.array([[0.5, 1.0]]), np.array([[0.5, 0.2]], np.float32))
    assert some.item() == pytest.approx(0.6611079)


@pytest.mark.parametrize("head", [BinaryClassHead(), MultiLabelHead(2), LogisticRegressionHead()])
@pytest.mark.parametrize("label", [1.5, -0.1, np.nan])
def test_labels_that_are_no_probabilities_are_refused(head, label):
    logits = np.zeros((1, head.logits_dimension), np.float32)
    with pytest.raises(ValueError, match=r"labels must be in \[0, 1\]"):
        head.loss(np.full(logits.shape, label), logits)


def binary_by_sklearn(z, y, w):
    p, ids = sigmoid(z[:, 0]), z[:, 0] > 0
    ones = np.average(y, weights=w)
    return {
        "average_loss": sk.log_loss(y, p, sample_weight=w),
        "accuracy": sk.accuracy_score(y, ids, sample_weight=w),
        "precision": sk.precision_score(y, ids, sample_weight=w),
        "recall": sk.recall_score(y, ids, sample_weight=w),
        "label/mean": ones,
        "prediction/mean": np.average(p, weights=w),
        "accuracy_baseline": max(ones, 1 - ones),
        "accuracy/positive_threshold_0.3": sk.accuracy_score(y, p > 0.3, sample_weight=w),
        "precision/positive_threshold_0.3": sk.precision_score(y, p > 0.3, sample_weight=w),
        "recall/positive_threshold_0.3": sk.recall_score(y, p > 0.3, sample_weight=w),
    }


def regression_by_sklearn(z, y, w):
    return {
        "average_loss": sk.mean_squared_error(y, z, sample_weight=w),
        "label/mean": np.average(y, weights=w),
        "prediction/mean": np.average(z[:, 0], weights=w),
    }


def poisson_by_sklearn(z, y, w):
    return {"average_loss": np.average(np.exp(z[:, 0]) - y * z[:, 0], weights=w)}


def multi_class_by_sklearn(z, y, w):
    return {
        "average_loss": sk.log_loss(y, softmax(z), sample_weight=w),
        "accuracy": sk.accuracy_score(y, z.argmax(1), sample_weight=w),
    }


def multi_label_by_sklearn(z, y, w):
    p = sigmoid(z)
    each = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(axis=1)
    flat, of_each = y.ravel(), None if w is None else np.repeat(w, 3)
    return {
        "average_loss": np.average(each, weights=w),
        "accuracy/positive_threshold_0.3": sk.accuracy_score(
            flat, p.ravel() > 0.3, sample_weight=of_each
        ),
        "probability_mean/class1": np.average(p[:, 1], weights=w),
    }


PEERS = {
    "binary": (BinaryClassHead, {"thresholds": [0.3]}, Z1, BINARY, binary_by_sklearn),
    "regression": (RegressionHead, {}, Z1, rng.normal(size=N), regression_by_sklearn),
    "poisson": (
        PoissonRegressionHead,
        {"compute_full_loss": False},
        Z1,
        BINARY,
        poisson_by_sklearn,
    ),
    "multi-class": (MultiClassHead, {"n_classes": 3}, Z3, CLASSES, multi_class_by_sklearn),
    "multi-label": (
        MultiLabelHead,
        {"n_classes": 3, "thresholds": [0.3], "classes_for_class_based_metrics": [1]},
        Z3,
        HOT,
        multi_label_by_sklearn,
    ),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("case", PEERS)
def test_b10_metrics_are_those_of_sklearn_over_batches_of_any_size(case, weighted):
    make, arguments, logits, labels, by_sklearn = PEERS[case]
    head = make(weight_column="w" if weighted else None, **arguments)
    found = evaluated(head, logits, labels, {"w": WEIGHTS})
    for name, value in by_sklearn(logits, labels, WEIGHTS if weighted else None).items():
        assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_b10_areas_under_curves_are_those_of_sklearn_but_for_200_thresholds(weighted):
    w = WEIGHTS if weighted else None
    head = BinaryClassHead(weight_column="w" if weighted else None)
    found = evaluated(head, Z1, BINARY, {"w": WEIGHTS})
    p = sigmoid(Z1[:, 0])
    assert found["auc"] == pytest.approx(sk.roc_auc_score(BINARY, p, sample_weight=w), abs=2e-3)
    area = sk.average_precision_score(BINARY, p, sample_weight=w)
    assert found["auc_precision_recall"] == pytest.approx(area, abs=5e-3)


@pytest.mark.parametrize(
    ("head", "labels", "expected"),
    [
        (RegressionHead(weight_column="w"), BINARY, np.mean(WEIGHTS * (Z1[:, 0] - BINARY) ** 2)),
        (
            RegressionHead(weight_column="w", loss_reduction="sum"),
            BINARY,
            np.sum(WEIGHTS * (Z1[:, 0] - BINARY) ** 2),
        ),
        (
            RegressionHead(loss_fn=lambda labels, logits: abs(logits - labels)),
            BINARY,
            np.mean(abs(Z1[:, 0] - BINARY)),
        ),
    ],
    ids=["mean", "sum", "own"],
)
def test_weights_do_not_change_the_divisor_of_the_loss(head, labels, expected):
    loss = head.loss(labels, Z1, {"w": WEIGHTS}, regularization_losses=[np.float32(2), 1.0])
    assert loss.item() == pytest.approx(expected + 3, rel=1e-5)


def test_a_numeric_column_may_make_the_weights():
    halved = numeric_column("w", normalizer_fn=lambda w: w / 2)
    found, whole = (
        MultiClassHead(3, weight_column=column).loss(CLASSES, Z3, {"w": WEIGHTS}).item()
        for column in (halved, "w")
    )
    assert found == pytest.approx(whole / 2)


def test_the_full_poisson_loss_has_the_logarithm_of_the_labels_factorial():
    labels = np.array([0.0, 1.0, 7.0])
    full, short = (PoissonRegressionHead(compute_full_loss=c) for c in (True, False))
    more = [
        full.loss(labels[i : i + 1], [[0.0]]) - short.loss(labels[i : i + 1], [[0.0]])
        for i in range(3)
    ]
    expected = [0, 0, 7 * np.log(7) - 7 + 0.5 * np.log(14 * np.pi)]
    np.testing.assert_allclose([m.item() for m in more], expected, rtol=1e-6)


def test_predictions_of_classes_are_words_of_the_vocabulary():
    found = MultiClassHead(3, label_vocabulary=WORDS).predictions(np.eye(3, dtype=np.float32))
    assert found["classes"].tolist() == [[word] for word in WORDS]
    assert found["all_classes"].tolist() == [WORDS] * 3
    assert found["class_ids"].tolist() == [[0], [1], [2]]
    binary = BinaryClassHead(label_vocabulary=[b"no", "yes"]).predictions([[-1.0], [0.0], [1.0]])
    assert binary["classes"].tolist() == [["no"], ["no"], ["yes"]]
    np.testing.assert_allclose(np.sum(binary["probabilities"].numpy(), axis=1), 1)
    assert BinaryClassHead().predictions([[2.0]], ["classes"])["classes"].tolist() == [["1"]]


def test_labels_that_are_words_are_looked_up():
    words = np.array(WORDS)[CLASSES]
    plain, by_word = MultiClassHead(3), MultiClassHead(3, label_vocabulary=WORDS)
    expected = plain.loss(CLASSES, Z3).item()
    assert by_word.loss(words, Z3).item() == expected
    assert by_word.loss(words.astype("S")[:, None], Z3).item() == expected
    several = np.array([["setosa", "virginica"], ["", ""], ["versicolor", ""]])
    hot = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    head = MultiLabelHead(3, label_vocabulary=WORDS)
    assert head.loss(several, Z3[:3]).item() == head.loss(hot, Z3[:3]).item()


def test_the_loss_of_several_heads_is_their_weighted_sum():
    heads = [RegressionHead(name="a"), MultiClassHead(3, name="b")]
    both = MultiHead(heads, [0.5, 2.0])
    labels = {"a": BINARY, "b": CLASSES}
    parts = [heads[0].loss(BINARY, Z1).item(), heads[1].loss(CLASSES, Z3).item()]
    for logits in (np.concatenate([Z1, Z3], axis=1), {"a": Z1, "b": Z3}):
        assert both.loss(labels, logits).item() == pytest.approx(0.5 * parts[0] + 2 * parts[1])
    found = evaluated(both, np.concatenate([Z1, Z3], axis=1), labels)
    assert [found["loss/a"], found["loss/b"]] == pytest.approx(parts, rel=1e-6)
    assert (both.name, both.logits_dimension) == ("a_b", 4)


class AbsoluteHead(Head):
    """One of a user's own: the absolute error."""

    def loss(self, labels, logits, features=None, mode=None, regularization_losses=None):
        return np.mean(abs(logits - labels))

    def predictions(self, logits, keys=None):
        return {"value": logits}

    def metrics(self, regularization_losses=None):
        return {"error": pl.nn.metrics.Mean("error")}

    def update_metrics(
        self, eval_metrics, features, logits, labels, mode=None, regularization_losses=None
    ):
        eval_metrics["error"].update_state(abs(logits - labels))
        return eval_metrics


def trained(head, logits_of, labels, tmp_path):
    def model_fn(features, labels, mode):
        return head.create_estimator_spec(
            features, mode, logits_of(features), labels, optimizers.SGD(0.1)
        )

    def input_fn():
        return pl.Dataset.from_tensor_slices(({"x": Z3, "w": WEIGHTS}, labels)).batch(64)

    estimator = pl.Estimator(model_fn, tmp_path).train(input_fn)
    return estimator.evaluate(input_fn), list(estimator.predict(input_fn))


def test_a_head_of_ones_own_has_four_methods(tmp_path):
    results, predictions = trained(
        AbsoluteHead(None, 1),
        lambda features: layers.Dense(1)(features["x"]),
        Z3 @ np.array([[1.0], [2.0], [0.0]], np.float32),
        tmp_path,
    )
    assert results["error"] == pytest.approx(results["loss"])
    assert predictions[0]["value"].shape == (1,)


@pytest.mark.parametrize("case", ["binary", "multi-label", "several"])
def test_a_model_is_trained_evaluated_and_used(tmp_path, case):
    head, (_, labels), metrics, predictions = KEYS[case]
    results, examples = trained(
        head,
        lambda features: layers.Dense(head.logits_dimension)(features["x"]),
        labels,
        tmp_path,
    )
    assert set(results) == metrics | {"loss", "global_step"}
    assert len(examples) == N
    assert set(examples[0]) == predictions


LOGITS = np.zeros((4, 1), np.float32)
THREE = np.zeros((4, 3), np.float32)
ONES = np.ones(4)

REFUSED = {
    "no labels": (RegressionHead(), (None, LOGITS), r"let input_fn give pairs"),
    "a dict": (RegressionHead(), ({"a": ONES}, LOGITS), "a dict with 'a'.*MultiHead"),
    "logits": (RegressionHead(), (ONES, THREE), r"\(batch, 1\).*their shape is \(4, 3\)"),
    "shape": (RegressionHead(), (np.ones(3), LOGITS), r"shape \(3,\).*\(4, 1\) or \(4,\)"),
    "words": (RegressionHead(), (np.array(list("abcd")), LOGITS), "must be numbers.*'a'"),
    "negative": (PoissonRegressionHead(), (-ONES, LOGITS), "≥ 0, the smallest is -1"),
    "beyond": (LogisticRegressionHead(), (2 * ONES, LOGITS), r"in \[0, 1\].*to 2"),
    "binary": (BinaryClassHead(), (2 * ONES, LOGITS), r"in \[0, 1\].*they reach from 2.0 to 2.0"),
    "class": (MultiClassHead(3), ([0, 1, 2, 3], THREE), r"in \[0, 3\); 1 of 4.*is 3"),
    "half": (MultiClassHead(3), ([0, 1, 0.5, 2], THREE), r"class numbers in \[0, 3\).*float64"),
    "one-hot": (MultiClassHead(3), (THREE, THREE), r"labels have shape \(4, 3\)"),
    "a word": (
        MultiClassHead(3, label_vocabulary=WORDS),
        (["setosa", "rose", "lily", "setosa"], THREE),
        "2 label.s. are not in label_vocabulary: 'lily', 'rose'; it has 3 words: 'setosa'",
    ),
    "a number": (
        MultiClassHead(3, label_vocabulary=WORDS),
        ([0, 1, 2, 0], THREE),
        "must be words of label_vocabulary.*leave label_vocabulary out",
    ),
    "not words": (MultiClassHead(3), (WORDS + WORDS[:1], THREE), "pass label_vocabulary"),
    "not hot": (MultiLabelHead(3), (THREE + 2, THREE), r"in \[0, 1\]: 0, 1, or a share"),
    "weights": (
        RegressionHead(weight_column="w"),
        (ONES, LOGITS, {"x": ONES}),
        "'w' is no feature of the batch; input_fn gives x",
    ),
    "shape of weights": (
        BinaryClassHead(weight_column="w"),
        (ONES, LOGITS, {"w": THREE}),
        r"'w' has shape \(4, 3\).*of shape \(4,\) or \(4, 1\)",
    ),
    "words as weights": (
        BinaryClassHead(weight_column="w"),
        (ONES, LOGITS, {"w": np.array(list("abcd"))}),
        "must hold numbers",
    ),
    "labels of heads": (
        MultiHead([RegressionHead(name="a"), RegressionHead(name="b")]),
        ({"a": ONES}, np.zeros((4, 2), np.float32)),
        r"for each head, \['a', 'b'\]; input_fn gives \['a'\]",
    ),
    "own loss": (
        RegressionHead(loss_fn=lambda labels, logits: np.mean(logits)),
        (ONES, LOGITS),
        r"one loss for each example, of shape \(4, 1\), it gave \(\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_with_a_batch_is_said(case):
    head, arguments, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=message):
        head.loss(*arguments)


MISMADE = {
    "no reduction": (lambda: RegressionHead(loss_reduction="none"), "one for each example"),
    "by weights": (
        lambda: RegressionHead(loss_reduction="mean_with_sample_weight"),
        "must be 'sum_over_batch_size' or 'sum', it is",
    ),
    "unknown": (lambda: RegressionHead(loss_reduction="average"), "must be None or one of 'auto'"),
    "threshold": (lambda: BinaryClassHead(thresholds=[0.0]), r"in \(0, 1\), one is 0"),
    "two classes": (lambda: MultiClassHead(2), "use BinaryClassHead"),
    "one class": (lambda: MultiLabelHead(1), "at least 2, it is 1"),
    "half a class": (lambda: MultiClassHead(2.5), "positive integer, it is 2.5"),
    "words": (lambda: MultiClassHead(3, label_vocabulary=["a", "a", "b"]), "3, of which 2 differ"),
    "no words": (lambda: BinaryClassHead(label_vocabulary=[0, 1]), "list of words, it has 0"),
    "measured": (
        lambda: MultiLabelHead(3, classes_for_class_based_metrics=["a"]),
        r"must be in \[0, 3\), one is 'a'",
    ),
    "no heads": (lambda: MultiHead([]), "at least one head"),
    "names": (lambda: MultiHead([RegressionHead(), RegressionHead(name="b")]), "different names"),
    "head weights": (lambda: MultiHead([RegressionHead(name="b")], [1, 2]), "1 numbers ≥ 0"),
    "reductions": (
        lambda: MultiHead(
            [RegressionHead(name="a"), RegressionHead(name="b", loss_reduction="sum")]
        ),
        "one loss_reduction, they have",
    ),
    "loss": (lambda: RegressionHead(loss_fn=lambda a, b: 0), "must take labels and logits"),
    "weight column": (
        lambda: RegressionHead(weight_column=3),
        "a feature's name or a numeric_column, it is 3",
    ),
}


@pytest.mark.parametrize("case", MISMADE)
def test_a_head_that_cannot_be_is_refused(case):
    make, message = MISMADE[case]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("given", [{}, {"optimizer": optimizers.SGD(), "train_op_fn": print}])
def test_training_takes_an_optimizer_or_a_function(given):
    with pytest.raises(ValueError, match="either optimizer or train_op_fn, it was given"):
        RegressionHead().create_estimator_spec({}, "train", LOGITS, ONES, **given)


def test_predictions_of_several_heads_are_chosen_by_pairs(tmp_path):
    head = KEYS["several"][0]

    def model_fn(features, mode):
        return head.create_estimator_spec(features, mode, layers.Dense(4)(features))

    model = pl.Estimator(model_fn, tmp_path)
    chosen = {"input_fn": lambda: pl.Dataset.from_tensors(Z3), "allow_untrained": True}
    found = next(model.predict(predict_keys=[("a", "predictions"), ("b", "classes")], **chosen))
    assert found.keys() == {("a", "predictions"), ("b", "classes")}
    with pytest.raises(
        ValueError, match=r"names \('c', 'classes'\); the predictions are \('a', 'p"
    ):
        next(model.predict(predict_keys=[("c", "classes")], **chosen))


def test_a_prediction_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="'b'; there are 'predictions'"):
        RegressionHead().predictions(LOGITS, ["b"])
