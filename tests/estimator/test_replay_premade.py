"""`RunConfig(replay_steps=True)` of premade models: steps without calls that are the same steps."""

import numpy as np
import pytest

import paceline as pl
from paceline import feature_column as fc

from ..hooks import Losses
from .replays import CALLED_NO_MORE, assert_same, config, trained

STEPS = 8
RNG = np.random.default_rng(0)
WORDS = np.array(["a", "bb", "ccc", "other", ""])
FEATURES = {
    "x": RNG.normal(size=20).astype(np.float32),
    "wide": RNG.normal(size=(20, 2)),
    "word": RNG.choice(WORDS, 20),
    "tags": RNG.choice(WORDS, (20, 3)),
    "number": RNG.integers(0, 4, 20),
    "weights_of_tags": RNG.random((20, 3)).astype(np.float32),
    "w": RNG.random(20),
}
CLASSES = RNG.integers(0, 3, 20)
NUMBERS = RNG.normal(size=20).astype(np.float32)


def normalized(values):
    """In float64, by a number of NumPy's, which an array takes for one and a tensor does not."""
    return (values.astype(np.float32) - np.float64(1 / 3)) / np.float64(0.7)


x, wide = fc.numeric_column("x"), fc.numeric_column("wide", 2, normalizer_fn=normalized)
buckets = fc.bucketized_column(x, [-0.5, 0.5])
word = fc.categorical_column_with_vocabulary_list("word", ["a", "bb", "ccc"], num_oov_buckets=1)
tags = fc.categorical_column_with_hash_bucket("tags", 7)
number = fc.categorical_column_with_identity("number", 4)
weighted = fc.weighted_categorical_column(tags, "weights_of_tags")
crossed = fc.crossed_column(["word", "number"], 11)
WIDE = [x, wide, buckets, word, number, weighted, crossed]
DEEP = [wide, buckets, fc.indicator_column(word), fc.embedding_column(tags, 3, max_norm=0.9)]
HEADS = [pl.estimator.RegressionHead(name="r"), pl.estimator.MultiClassHead(3, name="c")]

SUM = {"loss_reduction": "sum"}
MODELS = {
    "linear, classes": (pl.estimator.LinearClassifier, {"n_classes": 3}, CLASSES),
    "linear, words": (
        pl.estimator.LinearClassifier,
        {"n_classes": 4, "label_vocabulary": ["a", "bb", "ccc", "other"]},
        RNG.choice(WORDS[:4], 20),
    ),
    "linear, weights": (pl.estimator.LinearClassifier, {"weight_column": "w"}, CLASSES % 2),
    "linear, numbers": (pl.estimator.LinearRegressor, {"weight_column": "w", **SUM}, NUMBERS),
    "deep, classes": (
        pl.estimator.DNNClassifier,
        {"hidden_units": [4], "n_classes": 3, "dropout": 0.2, "batch_norm": True},
        CLASSES,
    ),
    "deep, numbers": (pl.estimator.DNNRegressor, {"hidden_units": [4]}, NUMBERS),
    "deep, several heads": (
        pl.estimator.DNNEstimator,
        {"hidden_units": [4], "head": pl.estimator.MultiHead(HEADS, [1.0, 0.5])},
        {"r": NUMBERS, "c": CLASSES},
    ),
    "deep, several classes": (
        pl.estimator.DNNEstimator,
        {"hidden_units": [4], "head": pl.estimator.MultiLabelHead(3)},
        RNG.integers(0, 2, (20, 3)),
    ),
    "deep, counts": (
        pl.estimator.DNNEstimator,
        {"hidden_units": [4], "head": pl.estimator.PoissonRegressionHead()},
        CLASSES,
    ),
    "deep, shares": (
        pl.estimator.DNNEstimator,
        {"hidden_units": [4], "head": pl.estimator.LogisticRegressionHead()},
        CLASSES / 2,
    ),
    "wide and deep": (pl.estimator.DNNLinearCombinedClassifier, {"n_classes": 3}, CLASSES),
    "baseline": (pl.estimator.BaselineClassifier, {"n_classes": 3}, CLASSES),
}


CALLED = {
    "boosted trees": (
        pl.estimator.BoostedTreesRegressor,
        {"feature_columns": [buckets], "n_batches_per_layer": 1, "n_trees": 2, "max_depth": 2},
        NUMBERS,
    ),
    "k-means": (
        pl.estimator.KMeansClustering,
        {"num_clusters": 2, "feature_columns": [wide]},
        NUMBERS,
    ),
}


def columns_of(kind):
    if kind is pl.estimator.DNNLinearCombinedClassifier:
        given = {"linear_feature_columns": WIDE, "dnn_feature_columns": DEEP}
        return {**given, "dnn_hidden_units": [4]}
    if kind is pl.estimator.BaselineClassifier:
        return {}
    return {"feature_columns": WIDE if "Linear" in kind.__name__ else DEEP}


STRATEGIES = {
    "one replica": lambda: None,
    "two replicas": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize(("kind", "arguments", "labels"), MODELS.values(), ids=MODELS)
def test_premade_models_are_the_same_to_the_bit(
    tmp_path, caplog, kind, arguments, labels, strategy
):
    caplog.set_level("INFO", "paceline")
    found = {}
    for replays in (False, True):
        options = {**columns_of(kind), **arguments, "config": config(replays, strategy())}
        found[replays] = trained(
            kind(model_dir=tmp_path / str(replays), **options), (FEATURES, labels), STEPS
        )
    assert_same(found[True], found[False])
    said = [r.getMessage() for r in caplog.records if "model_fn" in r.getMessage()]
    replayed = [m for m in said if CALLED_NO_MORE in m]
    assert len(replayed) == (1 if strategy() is None else 2), said


@pytest.mark.parametrize(("kind", "arguments", "labels"), CALLED.values(), ids=CALLED)
def test_others_go_on_being_called(tmp_path, caplog, kind, arguments, labels):
    found = [
        trained(
            kind(model_dir=tmp_path / str(n), **arguments, config=config(n)),
            (FEATURES, labels),
            STEPS,
        )
        for n in (False, True)
    ]
    assert_same(*found)
    assert "model_fn goes on being called in each step" in caplog.text


def test_a_head_that_a_model_fn_makes_is_the_same_each_time(tmp_path):
    calls = []

    def model_fn(features, labels, mode):
        calls.append(mode)
        head = pl.estimator.BinaryClassHead(weight_column="w", thresholds=[0.3])
        logits = pl.nn.layers.Dense(1)(fc.input_layer(features, [wide]))
        optimizer = pl.nn.optimizers.SGD(0.1)
        return head.create_estimator_spec(features, mode, logits, labels, optimizer)

    found = [
        trained(
            pl.Estimator(model_fn, tmp_path / str(n), config(n)), (FEATURES, CLASSES % 2), STEPS
        )
        for n in (False, True)
    ]
    assert_same(*found)
    assert len(calls) == STEPS + 3


def test_words_of_any_length_are_one_kind_of_batch(tmp_path, caplog):
    caplog.set_level("INFO", "paceline")
    words = np.array([f"{'w' * (i // 5)}{i % 3}" for i in range(20)])
    estimator = pl.estimator.LinearRegressor([tags], tmp_path, config=config(True))
    hook = Losses()

    def input_fn():
        batches = [
            ({"tags": words[i : i + 5].astype(f"U{i // 5 + 5}")}, NUMBERS[i : i + 5])
            for i in range(0, 20, 5)
        ]
        return pl.Dataset.from_generator(lambda: iter(batches)).repeat()

    estimator.train(input_fn, [hook], STEPS)
    assert sum("called no more" in r.getMessage() for r in caplog.records) == 1


@pytest.mark.parametrize(
    ("label", "message"), [(7, "must be in"), (0.5, "must be class numbers")], ids=str
)
def test_labels_are_checked_in_each_step(tmp_path, label, message):
    labels = np.append(CLASSES[:15].astype(np.float32), [label] * 5)
    estimator = pl.estimator.LinearClassifier([x], tmp_path, n_classes=3, config=config(True))

    def input_fn():
        return pl.Dataset.from_tensor_slices((FEATURES, labels)).batch(5)

    with pytest.raises(ValueError, match=message):
        estimator.train(input_fn)


def test_a_head_that_differs_from_call_to_call_is_refused(tmp_path, caplog):
    thresholds = iter(np.linspace(0.1, 0.9, 20))

    def model_fn(features, labels, mode):
        head = pl.estimator.RegressionHead(name=str(next(thresholds)))
        logits = pl.nn.layers.Dense(1)(fc.input_layer(features, [wide]))
        optimizer = pl.nn.optimizers.SGD(0.1)
        return head.create_estimator_spec(features, mode, logits, labels, optimizer)

    trained(pl.Estimator(model_fn, tmp_path, config(True)), (FEATURES, NUMBERS), STEPS)
    assert "goes on being called in each step" in caplog.text


def test_a_column_that_differs_from_call_to_call_is_refused(tmp_path, caplog):
    edges = iter(np.linspace(0.1, 0.9, 20))

    def model_fn(features, labels, mode):
        column = fc.bucketized_column(x, [0.0, float(next(edges))])
        logits = fc.linear_model(features, [column])
        loss = np.mean(np.square(logits[:, 0] - labels))
        train_op = pl.nn.optimizers.SGD(0.1).minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    trained(pl.Estimator(model_fn, tmp_path, config(True)), (FEATURES, NUMBERS), STEPS)
    assert "categories_of takes an object (BucketizedColumn) that is another" in caplog.text
