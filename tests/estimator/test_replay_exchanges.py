"""Steps without calls of `model_fn` whose model meets the other replicas itself."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import layers, losses, optimizers

from .replays import CALLED_NO_MORE, assert_same, config, trained

STEPS = 10
RNG = np.random.default_rng(0)
X = RNG.normal(size=(17, 3)).astype(np.float32)  # in batches of 5, 5, 5, 2: at times one has none
Y = RNG.normal(size=17).astype(np.float32)


def context():
    return pl.get_replica_context()


def prediction(x):
    return layers.Dense(1)(x)[:, 0]


def error(x, y):
    return np.mean(np.square(prediction(x) - y))


def with_sync_batch_norm(x, y):
    h = layers.Dense(4)(x)
    for _ in range(2):
        h = layers.BatchNormalization(synchronized=True)(h, training=True)
    return error(h, y)


def with_a_sum(x, y):
    """A tensor, through which gradients flow to all."""
    total = context().all_reduce("SUM", np.sum(prediction(x)))
    return error(x, y) + 0.001 * np.square(total)


def with_a_mean_of_arrays(x, y):
    means = context().all_reduce("MEAN", {"x": np.mean(x, axis=0), "y": [np.mean(y)]})
    return error(x - means["x"], y - means["y"][0])


def with_the_number_of_all(x, y):
    number = context().all_reduce("SUM", np.float32(len(x)))
    return error(x, y) * (len(x) / number)


def with_a_merge_call(x, y):
    def merge(strategy, value):
        return strategy.reduce("MEAN", value, axis=None)

    return error(x, y) * np.exp(0.01 * context().merge_call(merge, (np.mean(y),)))


def with_an_exchange_that_nobody_wants(x, y):
    context().all_reduce("SUM", np.mean(prediction(x)))
    return error(x, y)


def with_a_mean_over_a_mask(x, y):
    h = layers.Dense(2)(layers.Masking()(np.reshape(x, (len(x), 3, 1))))
    return losses.MeanSquaredError()(np.zeros_like(h), h)


MODELS = [
    with_sync_batch_norm,
    with_a_sum,
    with_a_mean_of_arrays,
    with_the_number_of_all,
    with_a_merge_call,
    with_an_exchange_that_nobody_wants,
    with_a_mean_over_a_mask,
]
STRATEGIES = {
    "one replica": lambda: None,
    "two replicas": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
    "one copy": lambda: pl.CentralStorageStrategy(["CPU:0", "CPU:1", "CPU:2"]),
}


def estimator(loss_of, directory, replays, strategy):
    def model_fn(features, labels, mode):
        loss = loss_of(features, labels)
        train_op = optimizers.SGD(0.1).minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return pl.Estimator(model_fn, directory, config(replays, strategy))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("loss_of", MODELS, ids=lambda f: f.__name__)
def test_losses_and_checkpoints_are_the_same_to_the_bit(tmp_path, caplog, loss_of, strategy):
    caplog.set_level("INFO", "paceline")
    found = [
        trained(estimator(loss_of, tmp_path / str(n), n, strategy()), (X, Y), STEPS)
        for n in (False, True)
    ]
    assert_same(*found)
    said = [r.getMessage() for r in caplog.records if "model_fn" in r.getMessage()]
    assert any(CALLED_NO_MORE in message for message in said), said


def with_a_look(x, y):
    return error(x, y) * float(context().all_reduce("SUM", np.mean(x)))


def with_a_wide_number(x, y):
    return error(x, y) * (np.float64(2) / context().all_reduce("MEAN", np.float64(3)))


def with_all_rows(x, y):
    everyone = context().all_gather(prediction(x), 0)
    return error(x, y) + 0.01 * np.sum(everyone) / len(everyone)


def with_a_meeting(x, y):
    context().exchange("a meeting", None)
    return error(x, y)


def with_a_number_of_a_merge_call(x, y):
    return error(x, y) * context().merge_call(lambda strategy: strategy.num_replicas_in_sync)


def with_an_object_of_a_merge_call(x, y):
    class Found:
        value = 2.0

    return error(x, y) * context().merge_call(lambda strategy: Found()).value


def with_another_merge_call(x, y):
    seen = RNG.random()

    def merge(strategy, value):
        return strategy.reduce("MEAN", value, axis=None) * seen

    return error(x, y) * context().merge_call(merge, (np.mean(y),))


REFUSED = {
    with_a_look: "__float__ is called",
    with_a_wide_number: "its loss is float32 of arrays, and float64 of tensors",
    with_all_rows: "all_gather gives an array of shape (5,) and dtype float32, and may give",
    with_a_meeting: "exchange is called",
    with_a_number_of_a_merge_call: "merge_call gives int 1, from which anything may follow",
    with_an_object_of_a_merge_call: r"an object (Found) is given, in which there may be values",
    with_another_merge_call: "merge_call takes an object (function) that is another the next time",
}


ON_THE_HOST = {with_a_wide_number: pytest.mark.host}
"""Where a card has an array, the host has a number, whose dtype may give way."""


@pytest.mark.parametrize(
    ("loss_of", "message"),
    [
        pytest.param(*row, marks=ON_THE_HOST.get(row[0], ()), id=row[0].__name__)
        for row in REFUSED.items()
    ],
)
def test_what_would_be_stale_is_refused(tmp_path, caplog, loss_of, message):
    trained(estimator(loss_of, tmp_path, True, None), (X[:15], Y[:15]), STEPS)
    assert "model_fn goes on being called in each step" in caplog.text
    assert message in caplog.text
