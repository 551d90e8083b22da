"""check_replicas: a model that several replicas train otherwise than one is refused (D-16)."""

import os

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import check_replicas
from paceline.nn import compute_average_loss, layers, losses, optimizers

X = np.random.default_rng(0).normal(size=(96, 3)).astype(np.float32)
Y = X.sum(axis=1)


def input_fn():
    return pl.Dataset.from_tensor_slices((X, Y)).shuffle(96).repeat().batch(8)


def mean(per_example):
    return np.mean(per_example)


def sum_(per_example):
    return np.sum(per_example)


def as_in_a_custom_loop(per_example):
    return compute_average_loss(per_example, global_batch_size=16)


@pytest.fixture
def estimator(tmp_path):
    def make(loss_of, replicas, params=None):
        def model_fn(features, labels, mode, params):
            per_example = losses.mean_squared_error(labels, layers.Dense(1)(features)[:, 0])
            loss = loss_of(per_example)
            rate = params.get("rate", 0.01)
            return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(rate).minimize(loss))

        strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
        config = pl.RunConfig(train_distribute=strategy)
        return pl.Estimator(model_fn, tmp_path / "model", config, params=params)

    return make


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("params", [None, {"rate": 0.1}])
def test_d_16_a_mean_over_the_examples_is_trained_alike(estimator, replicas, params):
    made = estimator(mean, replicas, params)
    found = check_replicas(made, input_fn, steps=4)
    assert len(found) == 4
    assert len(set(found)) == 4, "the model learns from step to step"
    assert not os.path.exists(made.model_dir), "nothing is kept"


@pytest.mark.parametrize("loss_of", [sum_, as_in_a_custom_loop])
def test_d_16_another_loss_is_refused_with_what_a_loss_has_to_be(estimator, loss_of):
    with pytest.raises(
        ValueError, match=r"loss of step 1 is .* on 2 replicas .*has to be the mean"
    ):
        check_replicas(estimator(loss_of, 2), input_fn)


def test_too_little_data_is_said(estimator):
    with pytest.raises(ValueError, match="let it give more data"):
        check_replicas(estimator(mean, 2), lambda: input_fn().take(1))


def test_several_workers_are_refused(on_workers, estimator):
    def work(strategy, index):
        made = pl.Estimator(
            lambda features: None, "unused", pl.RunConfig(train_distribute=strategy)
        )
        with pytest.raises(ValueError, match="several workers; check the model in one process"):
            check_replicas(made, input_fn)

    on_workers(2, 1, work)
