"""Premade models over replicas and workers learn what one process learns of the same batches."""

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline import feature_column as fc

from ..columns import classifier, dealt_out, examples, require_close

CPUS = [f"CPU:{i}" for i in range(3)]


def values_in(model_dir):
    return checkpoint.load(checkpoint.latest_checkpoint(model_dir)).arrays()


@pytest.fixture(scope="module")
def of_one(tmp_path_factory):
    """The variables after two passes in one process, and what an evaluation says of them."""
    path = tmp_path_factory.mktemp("one")
    estimator = classifier(path).train(dealt_out).train(dealt_out)
    return values_in(path), estimator.evaluate(dealt_out)


def require_equal_metrics(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, err_msg=key)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.OneDeviceStrategy("CPU:0"),
        lambda: pl.MirroredStrategy(CPUS[:2]),
        lambda: pl.MirroredStrategy(CPUS),
        lambda: pl.CentralStorageStrategy(CPUS[:2]),
    ],
    ids=["one device", "2 replicas", "3 replicas", "central storage"],
)
def test_b1_canned_replicas_learn_what_one_process_learns(of_one, tmp_path, make):
    strategy = make()
    estimator = classifier(tmp_path, strategy)
    replicas = strategy.num_replicas_in_sync
    for _ in range(2):
        estimator.train(lambda: dealt_out(1, replicas))
    require_close(values_in(tmp_path), of_one[0])
    require_equal_metrics(estimator.evaluate(lambda: dealt_out(1, replicas)), of_one[1])


@pytest.mark.parametrize("size", [(2, 1), (2, 2)], ids=["2 workers", "2 workers of 2"])
def test_b1_canned_workers_learn_what_one_process_learns(of_one, on_workers, tmp_path, size):
    """Text, padded categories and rows of tables on each of them, and an uneven end."""

    def work(strategy, index):
        estimator = classifier(tmp_path, strategy)
        for _ in range(2):
            estimator.train(lambda: dealt_out(*size, index))
        return estimator.evaluate(lambda: dealt_out(*size, index))

    for found in on_workers(*size, work):
        require_equal_metrics(found, of_one[1])
    require_close(values_in(tmp_path), of_one[0])


def test_a_run_of_premade_models_that_was_cut_in_two_ends_like_the_whole(of_one, tmp_path):
    """Begun by one process, and gone on with by two replicas."""
    classifier(tmp_path).train(dealt_out)
    classifier(tmp_path, pl.MirroredStrategy(CPUS[:2])).train(lambda: dealt_out(1, 2))
    require_close(values_in(tmp_path), of_one[0])


def test_a_model_of_columns_computes_on_a_card(of_one, a_card, tmp_path):
    """Text stays on the host; what is looked up there meets tables and numbers on the card."""
    estimator = classifier(tmp_path, pl.OneDeviceStrategy("GPU:0"))
    estimator.train(dealt_out).train(dealt_out)
    require_close(values_in(tmp_path), of_one[0])
    require_equal_metrics(estimator.evaluate(dealt_out), of_one[1])


def test_columns_give_their_numbers_where_the_replica_computes(a_card):
    x = fc.numeric_column("x", 2)
    ids = fc.categorical_column_with_identity("ids", 6)
    columns = [x, fc.bucketized_column(x, [0.0]), fc.indicator_column(ids)]
    with pl.OneDeviceStrategy("GPU:0").scope() as strategy:
        layers = [fc.DenseFeatures(columns), fc.LinearModel([*columns, ids])]
        for layer in layers:
            found = strategy.run(lambda features, layer=layer: layer(features), (examples()[0],))
            assert isinstance(found.data, a_card)
