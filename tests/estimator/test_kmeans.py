"""KMeansClustering (B1.canned): what scikit-learn gives, on every strategy."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

import paceline as pl
from paceline.estimator import KMeansClustering, export
from paceline.estimator.feature_column import numeric_column

from .places import ONE, PLACES, dataset_of

IRIS = load_iris().data
FIRST = IRIS[[0, 60, 120]]


def whole():
    return pl.Dataset.from_tensors(IRIS).repeat()


def in_batches():
    return pl.Dataset.from_tensor_slices(IRIS).batch(40)


def repeated():
    return pl.Dataset.from_tensor_slices(IRIS).shuffle(150, seed=1).repeat(20).batch(30)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_full_batches_are_lloyds_method_as_scikit_learn_has_it(tmp_path, steps):
    model = KMeansClustering(3, tmp_path, initial_clusters=FIRST, use_mini_batch=False)
    model.train(whole, steps=steps)
    expected = KMeans(3, init=FIRST, n_init=1, max_iter=steps, tol=0).fit(IRIS)
    np.testing.assert_allclose(model.cluster_centers(), expected.cluster_centers_, rtol=1e-12)
    assert model.score(in_batches) == pytest.approx(expected.inertia_, rel=1e-6)
    distances = np.stack(list(model.transform(in_batches)))
    np.testing.assert_allclose(np.sqrt(distances), expected.transform(IRIS), atol=1e-7)
    assert list(model.predict_cluster_index(in_batches)) == expected.predict(IRIS).tolist()


@pytest.mark.parametrize(("initial", "excess"), [("random", 0.05), ("kmeans_plus_plus", 0.01)])
def test_mini_batches_come_near_to_the_best_of_ten(tmp_path, initial, excess):
    expected = KMeans(3, n_init=10, random_state=0).fit(IRIS)
    model = KMeansClustering(3, tmp_path, initial_clusters=initial, seed=3).train(repeated)
    assert model.score(in_batches) < (1 + excess) * expected.inertia_


def test_an_export_tells_the_nearest_center(tmp_path):
    """Labels, which an input_fn may give, are left alone."""
    model = KMeansClustering(3, tmp_path / "model", initial_clusters=FIRST)
    model.train(lambda: pl.Dataset.from_tensor_slices((IRIS, IRIS[:, 0])).batch(50))
    receiver_fn = export.build_raw_serving_input_receiver_fn(pl.TensorSpec([None, 4], "float64"))
    path = model.export_saved_model(tmp_path / "exports", receiver_fn)
    loaded = pl.estimator.load(path, model_fn=model.model_fn)
    expected = list(model.predict_cluster_index(in_batches))
    assert loaded(IRIS)["output"].tolist() == expected
    assert sorted(loaded.signatures) == ["all_distances", "cluster_index", "serving_default"]


def test_a_center_is_the_mean_of_all_points_that_it_was_told(tmp_path):
    model = KMeansClustering(1, tmp_path, initial_clusters=[[9.0] * 4]).train(in_batches)
    np.testing.assert_allclose(model.cluster_centers()[0], IRIS.mean(axis=0), rtol=1e-12)
    assert sorted(model.evaluate(in_batches)) == ["global_step", "loss", "score"]
    assert sorted(next(model.predict(in_batches))) == ["all_distances", "cluster_index"]


def test_centers_stand_still_for_the_steps_of_an_iteration(tmp_path):
    model = KMeansClustering(
        3, tmp_path, initial_clusters=FIRST, mini_batch_steps_per_iteration=2, use_mini_batch=False
    )
    model.train(whole, steps=1)
    np.testing.assert_array_equal(model.cluster_centers(), FIRST)
    model.train(whole, steps=1)
    expected = KMeans(3, init=FIRST, n_init=1, max_iter=1, tol=0).fit(IRIS)
    np.testing.assert_allclose(model.cluster_centers(), expected.cluster_centers_, rtol=1e-12)


def test_small_batches_are_enough_to_choose_from(tmp_path):
    """The first batch has two points, for five centers."""
    model = KMeansClustering(5, tmp_path, seed=1)
    model.train(lambda: pl.Dataset.from_tensor_slices(IRIS).batch(2), steps=2)
    centers = model.cluster_centers()
    np.testing.assert_allclose(centers[4], 0)
    np.testing.assert_allclose(np.sort(centers[:4], axis=0), np.sort(IRIS[:4], axis=0))
    assert all(d[4] == np.inf for d in model.transform(in_batches))
    model.train(repeated)
    assert len({tuple(center) for center in model.cluster_centers()}) == 5


def test_centers_come_from_a_function_of_the_first_batch(tmp_path):
    model = KMeansClustering(
        2, tmp_path, initial_clusters=lambda points, k: points[:k], use_mini_batch=False
    )
    model.train(whole, steps=1)
    expected = KMeans(2, init=IRIS[:2], n_init=1, max_iter=1, tol=0).fit(IRIS)
    np.testing.assert_allclose(model.cluster_centers(), expected.cluster_centers_, rtol=1e-12)


def test_angles_do_not_know_how_long_a_point_is(tmp_path):
    rng = np.random.default_rng(0)
    angles = np.tile([0.2, 1.3], 50) + rng.normal(size=100) / 50
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1) * rng.uniform(1, 9, (100, 1))

    def input_fn():
        return pl.Dataset.from_tensor_slices(points).batch(20)

    model = KMeansClustering(2, tmp_path, "kmeans_plus_plus", "cosine", seed=0).train(input_fn)
    found = list(model.predict_cluster_index(input_fn))
    assert found == [found[0], 1 - found[0]] * 50
    assert model.score(input_fn) < 0.1


def test_training_ends_where_the_loss_stands_still(tmp_path):
    model = KMeansClustering(
        3, tmp_path, initial_clusters=FIRST, use_mini_batch=False, relative_tolerance=1e-6
    )
    model.train(whole, steps=100)
    assert model.get_variable_value("global_step") < 20
    expected = KMeans(3, init=FIRST, n_init=1, tol=0).fit(IRIS)
    np.testing.assert_allclose(model.cluster_centers(), expected.cluster_centers_, rtol=1e-12)


@pytest.mark.parametrize("columns", [None, [numeric_column("a"), numeric_column("b", 3)]])
def test_points_are_the_features_side_by_side(tmp_path, columns):
    def input_fn():
        features = {"b": IRIS[:, 1:].astype(np.float32), "a": IRIS[:, 0].astype(np.float32)}
        return pl.Dataset.from_tensors(features)

    model = KMeansClustering(1, tmp_path, feature_columns=columns, seed=1).train(input_fn)
    np.testing.assert_allclose(model.cluster_centers()[0], IRIS.mean(axis=0), rtol=1e-6)


def batches_of(worker, num_replicas):
    """The second worker's data end two steps after the first's; the last batch is smaller."""
    rng = np.random.default_rng([5, worker])
    for size in [4] * ((1 + 2 * worker) * num_replicas) + [3]:
        yield IRIS[rng.choice(150, size, replace=False)]


@pytest.mark.parametrize("keeps_all", [True, False], ids=["mini-batch", "full batch"])
@pytest.mark.parametrize("initial", ["random", "kmeans_plus_plus"])
@pytest.mark.parametrize("place", PLACES)
def test_es_21_centers_are_those_of_one_process(
    place, initial, keeps_all, on_workers, server_job, tmp_path
):
    place = PLACES[place]
    dealt = [list(batches_of(w, place.num_replicas)) for w in range(place.num_workers)]

    def centers(place, batches, model_dir):
        def make(config):
            options = {"use_mini_batch": keeps_all, "seed": 1, "config": config}
            return KMeansClustering(6, model_dir, initial, **options)

        def work(strategy, index):
            model = make(pl.RunConfig(train_distribute=strategy))
            model.train_and_report(lambda: dataset_of(batches[index]))

        place.run(on_workers, server_job, work, model_dir)
        return make(None).cluster_centers()

    one = centers(ONE, [place.global_batches(dealt)], tmp_path / "one")
    several = centers(place, dealt, tmp_path / "several")
    np.testing.assert_allclose(several, one, rtol=1e-10)


@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine"])
def test_centers_move_on_a_card(tmp_path, a_card, metric):
    def model(name, strategy):
        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
        options = {"distance_metric": metric, "seed": 1, "config": config}
        return KMeansClustering(3, tmp_path / name, **options).train(repeated)

    host, card = model("host", None), model("card", pl.OneDeviceStrategy("GPU:0"))
    np.testing.assert_allclose(card.cluster_centers(), host.cluster_centers(), rtol=1e-12)
    assert card.score(in_batches) == pytest.approx(host.score(in_batches), rel=1e-6)


REFUSED = {
    "method": ({"initial_clusters": "best"}, "'random' or 'kmeans_plus_plus', it is 'best'"),
    "metric": ({"distance_metric": "angle"}, "it is 'angle'"),
    "number": ({"num_clusters": 0}, "positive integer, it is 0"),
    "steps": ({"mini_batch_steps_per_iteration": 0.5}, "positive integer, it is 0.5"),
    "retries": ({"kmeans_plus_plus_num_retries": -1}, "≥ 0, it is -1"),
    "tolerance": ({"relative_tolerance": -1}, "≥ 0, it is -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(tmp_path, case):
    options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        KMeansClustering(**{"num_clusters": 3, "model_dir": tmp_path, **options})


def test_wrong_centers_and_points_are_refused_when_they_meet(tmp_path):
    model = KMeansClustering(3, tmp_path / "a", initial_clusters=FIRST[:, :2])
    with pytest.raises(ValueError, match=r"numbers of shape \(3, 4\).*float64 of shape \(3, 2\)"):
        model.train(whole, steps=1)
    words = KMeansClustering(3, tmp_path / "b")
    with pytest.raises(ValueError, match=r"points must be numbers.*feature 'x' holds <U1"):
        words.train(lambda: pl.Dataset.from_tensors(np.array([["a"], ["b"]])), steps=1)


def test_workers_that_meet_at_servers_only_are_refused(server_job, tmp_path):
    strategy = server_job(1, 2).strategy()
    model = KMeansClustering(3, tmp_path, config=pl.RunConfig(train_distribute=strategy))
    with pytest.raises(ValueError, match="has one worker, here are 2"):
        model.train_and_report(in_batches)
