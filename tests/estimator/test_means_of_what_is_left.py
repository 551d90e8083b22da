"""Means by weights, and of what masks or ignored classes leave: N replicas train as one does."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import losses, metrics, optimizers
from paceline.nn.masks import with_mask

from ..hooks import Losses
from .test_workers import dealt_out

NUM_EXAMPLES = 37
"""The last of the global batches of 12 has a single example, and most replicas have none."""


def model_fn(features, labels, mode, params):
    w = pl.get_variable("w", (3, 3))
    logits = features @ w
    labels = np.where(labels > 0, 2, np.where(labels > -1, 0, 1))
    kind, weights = params["kind"], None
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    if kind == "mask":
        logits = with_mask(logits, features[:, 0] > 0.3)
    elif kind == "ignored class":
        loss = losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=1)
    else:
        weights = np.maximum(features[:, 1], 0)
        loss = losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
    value = loss(labels, logits, weights)
    if mode == pl.ModeKeys.EVAL:
        mean = metrics.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=1 if kind == "ignored class" else None
        )
        mean.update_state(labels, logits, weights)
        return pl.EstimatorSpec(mode, loss=value, eval_metric_ops={"mean": mean})
    return pl.EstimatorSpec(mode, loss=value, train_op=optimizers.SGD(0.5).minimize(value))


def trained(on_workers, size, examples, kind, directory):
    """The losses of the steps, the weights after them, and an evaluation, by one worker's word."""

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy, tf_random_seed=1)
        estimator = pl.Estimator(model_fn, directory, config, params={"kind": kind})
        seen = Losses()
        estimator.train(lambda: dealt_out(examples, *size, index), hooks=[seen])
        found = estimator.evaluate(lambda: dealt_out(examples, *size, index))
        return seen.values, estimator.get_variable_value("w"), found["mean"]

    return on_workers(*size, work)[-1]


@pytest.mark.parametrize("size", [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("kind", ["mask", "ignored class", "weights"])
def test_means_of_what_is_left_are_those_of_the_global_batch(
    on_workers, tmp_path, examples, kind, size
):
    part = tuple(array[:NUM_EXAMPLES] for array in examples)
    expected = trained(on_workers, (1, 1), part, kind, tmp_path / "one")
    found = trained(on_workers, size, part, kind, tmp_path / "several")
    assert len(found[0]) == 4
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-5, atol=1e-7)
