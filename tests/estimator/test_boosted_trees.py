"""BoostedTrees (B1.canned): the trees of LightGBM, on every strategy, kept as plain arrays."""

import logging
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

import paceline as pl
from paceline import feature_column as fc
from paceline.estimator import (
    BoostedTreesClassifier,
    BoostedTreesEstimator,
    BoostedTreesRegressor,
    PoissonRegressionHead,
    RegressionHead,
    export,
)

from .places import ONE, PLACES, dataset_of

lightgbm = pytest.importorskip("lightgbm")

CANCER, MALIGNANT = load_breast_cancer(return_X_y=True)
CANCER = CANCER.astype(np.float32)
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2, len(MALIGNANT)).astype(np.float32)
COLUMNS = [fc.numeric_column("x", CANCER.shape[1])]


def batches(x, y, size=None, repeat=100, **more):
    def input_fn():
        data = pl.Dataset.from_tensor_slices(({"x": x, **more}, y))
        return data.batch(size or len(y)).repeat(repeat)

    return input_fn


def logits_of(model, x):
    found = model.predict(lambda: pl.Dataset.from_tensor_slices({"x": x}).batch(100))
    return np.stack([f.get("logits", f.get("predictions")) for f in found])


def by_lightgbm(x, y, weights, num_trees, **parameters):
    """The trees of LightGBM with its own loss."""
    usual = {
        "boost_from_average": False,
        "min_data_in_leaf": 1,
        "min_data_in_bin": 1,
        "max_bin": 100,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": 1,
        "verbose": -1,
    }
    booster = lightgbm.train(
        {**usual, **parameters}, lightgbm.Dataset(x, y, weight=weights), num_trees
    )
    return booster.predict(x, raw_score=True)


def test_trees_are_those_of_lightgbm_with_its_own_derivatives(tmp_path):
    model = BoostedTreesClassifier(
        COLUMNS, 1, tmp_path, n_trees=10, max_depth=4, learning_rate=0.3, weight_column="w"
    )
    model.train(batches(CANCER, MALIGNANT, w=WEIGHTS))
    expected = by_lightgbm(
        CANCER, MALIGNANT, WEIGHTS, 10, objective="binary", max_depth=4, learning_rate=0.3
    )
    np.testing.assert_allclose(logits_of(model, CANCER)[:, 0], expected, atol=1e-5)


def test_missing_values_go_where_lightgbm_sends_them(tmp_path):
    x, y = CANCER[:, :4].copy(), CANCER[:, 4] * 10 - 1
    x[::7, 0] = x[::5, 2] = np.nan
    model = BoostedTreesRegressor(
        [fc.numeric_column("x", 4)], 1, tmp_path, n_trees=10, max_depth=3, l2_regularization=2.0
    )
    model.train(batches(x, y))
    expected = by_lightgbm(x, y, None, 10, objective="l2", max_depth=3, num_leaves=8, lambda_l2=1.0)
    np.testing.assert_allclose(logits_of(model, x)[:, 0], expected, atol=1e-5)


def test_a_tree_without_splits_is_one_step_of_newtons_method(tmp_path):
    model = BoostedTreesRegressor(
        COLUMNS, 1, tmp_path, n_trees=2, learning_rate=0.5, l2_regularization=1e4
    )
    model.train(batches(CANCER, np.full(len(CANCER), 1.0)))
    step = 0.5 * 2 * len(CANCER) / (2 * len(CANCER) + 1e4)
    np.testing.assert_allclose(logits_of(model, CANCER), step + (1 - step) * step, rtol=1e-6)


def share(y, part):
    return np.arange(len(y)) % 3 == 0 if part == "test" else np.arange(len(y)) % 3 != 0


def test_two_classes_are_told_apart_as_well_as_by_scikit_learn(tmp_path):
    learn, test = share(MALIGNANT, "train"), share(MALIGNANT, "test")
    model = BoostedTreesClassifier(COLUMNS, 1, tmp_path, n_trees=60, max_depth=4)
    model.train(batches(CANCER[learn], MALIGNANT[learn]))
    peer = GradientBoostingClassifier(n_estimators=60, max_depth=4, random_state=0)
    expected = peer.fit(CANCER[learn], MALIGNANT[learn]).score(CANCER[test], MALIGNANT[test])
    found = model.evaluate(batches(CANCER[test], MALIGNANT[test], repeat=1))
    assert found["accuracy"] > expected - 0.02
    assert found["auc"] > 0.98
    assert found["global_step"] == 60  # training ends with the last tree


def test_three_classes_with_words_and_columns_of_categories(tmp_path):
    wine, cultivar = load_wine(return_X_y=True)
    words = np.array(["barolo", "grignolino", "barbera"])[cultivar]
    strength = np.where(wine[:, 0] > 13, "strong", "light")
    columns = [
        fc.numeric_column("x", 11),
        fc.bucketized_column(fc.numeric_column("color"), [3.0, 5.0, 8.0]),
        fc.indicator_column(
            fc.categorical_column_with_vocabulary_list("strength", ["light", "strong"])
        ),
    ]
    learn, test = share(cultivar, "train"), share(cultivar, "test")

    def data(which, repeat):
        features = {"color": wine[which, 9], "strength": strength[which]}
        return batches(wine[which][:, :11], words[which], None, repeat, **features)

    model = BoostedTreesClassifier(
        columns, 1, tmp_path, 3, None, ["barolo", "grignolino", "barbera"], n_trees=20, max_depth=3
    )
    model.train(data(learn, 100))
    assert model.evaluate(data(test, 1))["accuracy"] > 0.93
    names, importances = model.experimental_feature_importances(normalize=True)
    assert set(names) == {"x", "color_bucketized", "strength_indicator"}
    assert importances.sum() == pytest.approx(1)
    assert names[0] == "x"


def test_numbers_are_predicted_as_well_as_by_scikit_learn(tmp_path):
    x, y = load_diabetes(return_X_y=True)
    learn, test = share(y, "train"), share(y, "test")
    options = {"max_depth": 3, "learning_rate": 0.1, "min_node_weight": 40.0}
    model = BoostedTreesRegressor([fc.numeric_column("x", 10)], 1, tmp_path, n_trees=50, **options)
    mean = y[learn].mean()
    model.train(batches(x[learn], y[learn] - mean))
    peer = GradientBoostingRegressor(n_estimators=50, max_depth=3, random_state=0)
    predicted = peer.fit(x[learn], y[learn]).predict(x[test])
    expected = np.mean((predicted - y[test]) ** 2)
    found = model.evaluate(batches(x[test], y[test] - mean, repeat=1))
    assert found["average_loss"] < 1.02 * expected


def test_any_head_gives_the_derivatives(tmp_path):
    counts = np.random.default_rng(0).poisson(np.exp(CANCER[:, 0] / 10))
    model = BoostedTreesEstimator(
        COLUMNS, 1, PoissonRegressionHead(), tmp_path, n_trees=30, max_depth=3
    )
    model.train(batches(CANCER, counts))
    found = model.evaluate(batches(CANCER, counts, repeat=1))
    assert found["prediction/mean"] == pytest.approx(counts.mean(), rel=0.1)


def test_a_loss_without_curvature_is_followed_along_its_slope(tmp_path):
    def absolute(labels, logits):
        return np.abs(logits - labels)

    target = CANCER[:, 0] / 10
    model = BoostedTreesEstimator(
        COLUMNS, 1, RegressionHead(loss_fn=absolute), tmp_path, n_trees=40, max_depth=3
    )
    model.train(batches(CANCER, target))
    assert model.evaluate(batches(CANCER, target, repeat=1))["average_loss"] < 0.1 * target.mean()


def test_a_tree_of_several_batches_is_that_of_one(tmp_path):
    options = {"n_trees": 3, "max_depth": 3}
    one = BoostedTreesClassifier(COLUMNS, 1, tmp_path / "one", **options)
    six = BoostedTreesClassifier(COLUMNS, 6, tmp_path / "six", **options)
    one.train(batches(CANCER, MALIGNANT))
    six.train(batches(CANCER, MALIGNANT, 100))
    np.testing.assert_allclose(logits_of(six, CANCER), logits_of(one, CANCER), atol=1e-6)


def test_a_run_goes_on_with_the_trees_that_have_grown(tmp_path):
    options = {"n_trees": 4, "max_depth": 3}
    whole = BoostedTreesClassifier(COLUMNS, 2, tmp_path / "whole", **options)
    whole.train(batches(CANCER, MALIGNANT, 300))
    parts = BoostedTreesClassifier(COLUMNS, 2, tmp_path / "parts", **options)
    parts.train(batches(CANCER, MALIGNANT, 300), steps=4)
    parts.train(batches(CANCER, MALIGNANT, 300))
    np.testing.assert_array_equal(logits_of(parts, CANCER), logits_of(whole, CANCER))
    assert parts.train(batches(CANCER, MALIGNANT)).get_variable_value("global_step") == 9


def test_batches_that_have_made_no_tree_are_named(tmp_path, caplog):
    model = BoostedTreesClassifier(COLUMNS, 3, tmp_path, n_trees=4, max_depth=2)
    with caplog.at_level(logging.WARNING, "paceline"):
        model.train(batches(CANCER, MALIGNANT), steps=5)
    assert "The last 2 batch(es) have made no tree" in caplog.text
    assert "1 of 4 trees" in caplog.text


def batches_of(worker, num_replicas):
    """The second worker's data end two steps after the first's; the last batch is smaller."""
    rng = np.random.default_rng([5, worker])
    for size in [20] * ((2 + 2 * worker) * num_replicas) + [7]:
        rows = rng.choice(len(CANCER), size, replace=False)
        yield {"x": CANCER[rows], "w": WEIGHTS[rows]}, MALIGNANT[rows]


@pytest.mark.parametrize("place", PLACES)
def test_es_21_trees_are_those_of_one_process(place, on_workers, server_job, tmp_path):
    place = PLACES[place]
    dealt = [list(batches_of(w, place.num_replicas)) for w in range(place.num_workers)]

    def trees(place, dealt, model_dir):
        def make(config):
            return BoostedTreesClassifier(
                COLUMNS, 2, model_dir, weight_column="w", max_depth=3, n_trees=5, config=config
            )

        def work(strategy, index):
            model = make(pl.RunConfig(train_distribute=strategy))
            model.train_and_report(lambda: dataset_of(dealt[index]))

        place.run(on_workers, server_job, work, model_dir)
        names = ("feature", "threshold", "value", "num_trees")
        return {name: make(None).get_variable_value(f"boosted_trees/{name}") for name in names}

    one = trees(ONE, [place.global_batches(dealt)], tmp_path / "one")
    several = trees(place, dealt, tmp_path / "several")
    assert one["num_trees"] > 0
    for name, expected in one.items():
        np.testing.assert_array_equal(several[name], expected, err_msg=name)


def test_trees_grow_beside_a_card(tmp_path, a_card):
    def logits(name, strategy):
        config = pl.RunConfig(train_distribute=strategy)
        options = {"weight_column": "w", "max_depth": 3, "n_trees": 3, "config": config}
        model = BoostedTreesClassifier(COLUMNS, 1, tmp_path / name, **options)
        return logits_of(model.train(batches(CANCER, MALIGNANT, w=WEIGHTS)), CANCER)

    host, card = logits("host", None), logits("card", pl.OneDeviceStrategy("GPU:0"))
    np.testing.assert_array_equal(card, host)


def test_only_training_needs_lightgbm(tmp_path, monkeypatch):
    model = BoostedTreesClassifier(COLUMNS, 1, tmp_path, n_trees=2, max_depth=2)
    model.train(batches(CANCER, MALIGNANT))
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    again = BoostedTreesClassifier(COLUMNS, 1, tmp_path, n_trees=2, max_depth=2)
    assert again.evaluate(batches(CANCER, MALIGNANT, repeat=1))["accuracy"] > 0.8
    receiver_fn = export.build_raw_serving_input_receiver_fn({"x": pl.TensorSpec([None, 30])})
    path = again.export_saved_model(tmp_path / "exports", receiver_fn)
    loaded = pl.estimator.load(path, model_fn=again.model_fn)
    found = loaded.signatures["predict"](x=CANCER[:5])["logits"]
    np.testing.assert_allclose(found, logits_of(again, CANCER[:5]))
    with pytest.raises(ImportError, match=r"pip install 'paceline\[trees\]'"):
        again.train(batches(CANCER, MALIGNANT))


REFUSED = {
    "batches": ({"n_batches_per_layer": 0}, "n_batches_per_layer must be a positive integer"),
    "depth": ({"max_depth": 17}, "max_depth is at most 16"),
    "size": ({"max_depth": 16, "n_trees": 3000}, "3000 trees of max_depth=16 are too large"),
    "trees": ({"n_trees": 0}, "n_trees must be a positive integer, it is 0"),
    "rate": ({"learning_rate": -1}, "learning_rate must not be negative"),
    "pruning": ({"pruning_mode": "post"}, "'none' or 'pre', it is 'post'"),
    "complexity": ({"tree_complexity": 1.0}, "go together, they are 1.0 and 'none'"),
    "epsilon": ({"quantile_sketch_epsilon": 0}, r"in \(0, 0.5\], it is 0"),
    "bias": ({"center_bias": True}, "center_bias=True is not available"),
    "weights": ({"weight_column": "w"}, "given to the head"),
    "head": ({"head": "mse"}, "must be a Head"),
    "sum": ({"head": RegressionHead(loss_reduction="sum")}, "it has 'sum'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(tmp_path, case):
    options, message = REFUSED[case]
    given = {"n_batches_per_layer": 1, "head": RegressionHead(), "model_dir": tmp_path, **options}
    with pytest.raises((ValueError, TypeError), match=message):
        BoostedTreesEstimator(COLUMNS, **given)


def test_columns_that_learn_are_refused(tmp_path):
    row = fc.categorical_column_with_identity("x", 3)
    model = BoostedTreesRegressor([fc.embedding_column(row, 2)], 1, tmp_path)
    with pytest.raises(ValueError, match="columns that learn nothing themselves"):
        model.train(batches(np.array([0, 1, 2]), np.ones(3)))


def test_workers_that_meet_at_servers_only_are_refused(server_job, tmp_path):
    strategy = server_job(1, 2).strategy()
    config = pl.RunConfig(train_distribute=strategy)
    model = BoostedTreesClassifier(COLUMNS, 1, tmp_path, config=config)
    with pytest.raises(ValueError, match="has one worker, here are 2"):
        model.train_and_report(batches(CANCER, MALIGNANT))
