"""Heads on every strategy: what one process gives with the global batches (B10, ES-21).

Workers' data end at different steps, with a smaller batch, and examples have weights.
"""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import (
    BinaryClassHead,
    LogisticRegressionHead,
    MultiClassHead,
    MultiHead,
    MultiLabelHead,
    PoissonRegressionHead,
    RegressionHead,
)
from paceline.nn import layers, optimizers

from .places import CARD, ONE, PLACES, dataset_of

WORDS = ["red", "green", "blue"]


def real(rng, n):
    return rng.normal(size=(n, 2))


def binary(rng, n):
    return rng.integers(0, 2, (n, 1))


def words(rng, n):
    return rng.choice(WORDS, n)


def hot(rng, n):
    return rng.integers(0, 2, (n, 3))


def both(rng, n):
    return {"a": real(rng, n)[:, :1], "b": words(rng, n)}


CASES = {
    "regression": (lambda **more: RegressionHead(2, **more), real),
    "poisson": (PoissonRegressionHead, binary),
    "logistic regression": (LogisticRegressionHead, binary),
    "binary": (lambda **more: BinaryClassHead(thresholds=[0.4], **more), binary),
    "multi-class": (lambda **more: MultiClassHead(3, label_vocabulary=WORDS, **more), words),
    "multi-label": (
        lambda **more: MultiLabelHead(3, classes_for_class_based_metrics=[1], **more),
        hot,
    ),
    "several": (
        lambda **more: MultiHead(
            [
                RegressionHead(name="a", **more),
                MultiClassHead(3, label_vocabulary=WORDS, name="b", **more),
            ],
            [0.5, 2.0],
        ),
        both,
    ),
}


def batches_of(worker, num_replicas, labels):
    """The second worker's data end two steps after the first's; the last batch is smaller."""
    rng = np.random.default_rng([3, worker])
    for size in [4] * ((1 + 2 * worker) * num_replicas) + [3]:
        x = rng.normal(size=(size, 3)).astype(np.float32)
        w = rng.uniform(0.2, 3, size).astype(np.float32)
        yield {"x": x, "w": w}, labels(rng, size)


def run(place, head, batches, on_workers, server_job, directory):
    """The weights, and what each worker says of an evaluation."""

    def model_fn(features, labels, mode):
        logits = layers.Dense(head.logits_dimension, kernel_initializer="zeros")(features["x"])
        return head.create_estimator_spec(features, mode, logits, labels, optimizers.SGD(0.01))

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(model_fn, directory, config)
        estimator.train_and_report(lambda: dataset_of(batches[index]))

    def evaluation(strategy, index):
        config = pl.RunConfig(eval_distribute=strategy)
        estimator = pl.Estimator(model_fn, directory, config)
        return estimator.evaluate(lambda: dataset_of(batches[index]))

    place.run(on_workers, server_job, work, directory)
    results = [] if place is SERVERS else place.run(on_workers, server_job, evaluation, directory)
    return pl.Estimator(model_fn, directory).get_variable_value("dense/kernel"), results


SERVERS = PLACES["servers, 2 replicas"]


@pytest.mark.parametrize(
    ("case", "reduction"),
    [
        *((case, "sum_over_batch_size") for case in CASES),
        ("multi-label", "sum"),
        ("several", "sum"),
    ],
)
@pytest.mark.parametrize("place", PLACES)
def test_es_21_training_and_metrics_are_those_of_one_process(
    place, case, reduction, on_workers, server_job, tmp_path
):
    (make, labels), place = CASES[case], PLACES[place]
    head = make(weight_column="w", loss_reduction=reduction)
    dealt = [list(batches_of(w, place.num_replicas, labels)) for w in range(place.num_workers)]
    together = [place.global_batches(dealt)]
    one = run(ONE, head, together, on_workers, server_job, tmp_path / "one")
    several = run(place, head, dealt, on_workers, server_job, tmp_path / "several")
    np.testing.assert_allclose(several[0], one[0], rtol=1e-5, atol=1e-6)
    for found in several[1]:
        assert found == pytest.approx(one[1][0], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_heads_compute_on_a_card(case, a_card, on_workers, server_job, tmp_path):
    """Words stay on the host; what is looked up there meets logits on the card."""
    make, labels = CASES[case]
    head = make(weight_column="w", loss_reduction="sum")
    batches = [list(batches_of(0, 1, labels))]
    one = run(ONE, head, batches, on_workers, server_job, tmp_path / "one")
    card = run(CARD, head, batches, on_workers, server_job, tmp_path / "card")
    np.testing.assert_allclose(card[0], one[0], rtol=1e-5, atol=1e-6)
    assert card[1] == [pytest.approx(one[1][0], rel=1e-5, abs=1e-6)]
    with pl.OneDeviceStrategy("GPU:0").scope() as strategy:
        logits = a_card(np.ones((2, head.logits_dimension), np.float32))
        spec = strategy.run(lambda: head.create_estimator_spec({}, "infer", logits))
    assert {len(value) for value in spec.predictions.values()} == {2}


def test_workers_that_meet_at_servers_only_cannot_add_up(server_job):
    strategy = server_job(1, 2, max_staleness=0).strategy()
    head = RegressionHead(loss_reduction="sum")
    with pytest.raises(ValueError, match="none knows how many examples the others have"):
        strategy.run(lambda: head.loss([1.0], np.zeros((1, 1), np.float32)))
