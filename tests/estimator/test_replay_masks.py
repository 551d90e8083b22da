"""Steps without calls of `model_fn` where there are masks, weights of examples, and their means."""

from functools import partial

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import effect
from paceline.nn import layers, losses, optimizers
from paceline.nn.masks import mask_of

from .replays import CALLED_NO_MORE, assert_same, config, trained

STEPS = 8
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(0, 5, 20)
WORDS = RNG.integers(1, 9, (20, 4)) * (np.arange(4) < LENGTHS[:, None])
FEATURES = {
    "words": WORDS,
    "steps": (RNG.normal(size=(20, 4, 2)) * (WORDS > 0)[..., None]).astype(np.float32),
    "weights": RNG.random(20).astype(np.float32),
}
LABELS = RNG.integers(0, 3, 20)
TAGS = RNG.integers(0, 3, (20, 4))
SIGNS = RNG.choice([-1.0, 1.0], 20).astype(np.float32)

BY_WEIGHT = "mean_with_sample_weight"
crossentropy = losses.SparseCategoricalCrossentropy(from_logits=True)


def embedded(features):
    return layers.Embedding(9, 3, mask_zero=True)(features["words"])


def masked(features):
    return layers.Masking()(features["steps"])


def of_sequences(first, *then, loss=crossentropy, units=3):
    """A `model_fn` of layers behind one that makes a mask."""

    def logits_and_loss(features, labels):
        h = first(features)
        for make in then:
            h = make()(h)
        return loss(labels, layers.Dense(units)(h))

    return logits_and_loss


def attended(features, labels):
    h = embedded(features)
    h = layers.Attention()([h, h])
    h = layers.MultiHeadAttention(1, 2)(h, h, use_causal_mask=True)
    return crossentropy(labels, layers.Dense(3)(layers.GlobalAveragePooling1D()(h)))


def joined(features, labels):
    h = layers.Concatenate(axis=1)([embedded(features), layers.Dense(3)(masked(features))])
    return crossentropy(labels, layers.Dense(3)(layers.LSTM(2)(h)))


def shared_out(features, labels):
    h = masked(features)
    shares = layers.Softmax()(np.sum(h, -1), mask=h.mask)
    return crossentropy(labels, layers.Dense(3)(np.square(shares)))


def weighing(loss):
    def of_logits(features, labels):
        logits = layers.Dense(3)(layers.Flatten()(features["steps"]))
        return loss(labels, logits, sample_weight=features["weights"])

    return of_logits


def hinge(loss):
    def of_scores(features, labels):
        return loss(labels, layers.Dense(1)(layers.Flatten()(features["steps"]))[:, 0])

    return of_scores


def ctc(features, labels):
    return losses.CTC()(labels[:, :1] + 1, layers.Dense(4)(features["steps"]))


def unwanted_mean(features, labels):
    """What a mean adds up over replicas is added up, although nobody wants it."""
    h = layers.Dense(3)(embedded(features))
    losses.SparseCategoricalCrossentropy(from_logits=True)(labels, h)
    return np.mean(np.square(h))


MODELS = {
    "an LSTM": (of_sequences(embedded, lambda: layers.LSTM(4)), LABELS),
    "a GRU with dropout": (
        of_sequences(
            masked,
            lambda: partial(
                layers.GRU(4, return_sequences=True, dropout=0.2, recurrent_dropout=0.2),
                training=True,
            ),
            lambda: layers.SimpleRNN(3, go_backwards=True),
        ),
        LABELS,
    ),
    "both directions": (
        of_sequences(
            embedded,
            lambda: layers.Bidirectional(layers.LSTM(2, return_sequences=True)),
            lambda: layers.GlobalAveragePooling1D(),
        ),
        LABELS,
    ),
    "a cell": (of_sequences(embedded, lambda: layers.RNN(layers.LSTMCell(2))), LABELS),
    "a mean of what counts": (of_sequences(embedded, lambda: layers.Dense(3)), TAGS),
    "attention": (attended, LABELS),
    "several masks": (joined, LABELS),
    "softmax of what counts": (shared_out, LABELS),
    "weights": (weighing(crossentropy), LABELS),
    "a mean by weights": (
        weighing(losses.SparseCategoricalCrossentropy(from_logits=True, reduction=BY_WEIGHT)),
        LABELS,
    ),
    "a class that is ignored": (
        weighing(losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=1)),
        LABELS,
    ),
    "focal": (
        weighing(losses.CategoricalFocalCrossentropy(alpha=[0.1, 0.2, 0.3], from_logits=True)),
        np.eye(3, dtype=np.float32)[LABELS],
    ),
    "hinge": (hinge(losses.Hinge()), SIGNS),
    "squared hinge": (hinge(losses.SquaredHinge()), SIGNS),
    "huber": (hinge(losses.Huber(0.5)), SIGNS),
    "ctc": (ctc, TAGS),
    "a mean that nobody wants": (unwanted_mean, TAGS),
}
STRATEGIES = {
    "one replica": lambda: None,
    "two replicas": lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
}


def estimator(loss_of, directory, replays, strategy):
    def model_fn(features, labels, mode):
        loss = loss_of(features, labels)
        train_op = optimizers.Adam(0.1).minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return pl.Estimator(model_fn, directory, config(replays, strategy))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize(("loss_of", "labels"), MODELS.values(), ids=MODELS)
def test_losses_and_checkpoints_are_the_same_to_the_bit(
    tmp_path, caplog, loss_of, labels, strategy
):
    caplog.set_level("INFO", "paceline")
    found = [
        trained(estimator(loss_of, tmp_path / str(n), n, strategy()), (FEATURES, labels), STEPS)
        for n in (False, True)
    ]
    assert_same(*found)
    said = [r.getMessage() for r in caplog.records if "model_fn" in r.getMessage()]
    replayed = [message for message in said if CALLED_NO_MORE in message]
    assert len(replayed) == (1 if strategy() is None else 2), said


def test_a_mask_goes_with_its_tensor_to_metrics(tmp_path):
    seen = []

    @effect
    def note(h):
        seen.append(np.asarray(mask_of(h)).tolist())

    def model(features, labels):
        h = layers.Dense(3)(embedded(features))
        note(h)
        return crossentropy(labels, h)

    trained(estimator(model, tmp_path, True, None), (FEATURES, TAGS), STEPS)
    assert seen == [(WORDS[i % 20 : i % 20 + 5] > 0).tolist() for i in range(0, 5 * STEPS, 5)]


def look_at_mask(features, labels):
    h = embedded(features)
    return crossentropy(labels, layers.Dense(3)(h)) * (1.0 if h.mask[0, 0] else 2.0)


def another_mask(features, labels):
    h = embedded(features)
    counts = RNG.random((5, 4)) > 0.5
    return crossentropy(labels, layers.Dense(3)(layers.LSTM(2, return_sequences=True)(h, counts)))


REFUSED = {
    "a look at a mask": (look_at_mask, "__bool__ is called"),
    "a mask of random numbers": (another_mask, "beside takes an array"),
}


@pytest.mark.parametrize(("loss_of", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_stale_is_refused(tmp_path, caplog, loss_of, message):
    trained(estimator(loss_of, tmp_path, True, None), (FEATURES, TAGS), STEPS)
    assert "model_fn goes on being called in each step" in caplog.text
    assert message in caplog.text


@pytest.mark.parametrize(
    ("loss", "data"),
    [
        pytest.param(hinge(losses.Hinge()), SIGNS, marks=pytest.mark.host),  # no number on a card
        (ctc, TAGS),
    ],
)
def test_labels_are_checked_in_each_step(tmp_path, loss, data):
    labels = data.copy()
    labels[15:] = 7
    with pytest.raises(ValueError, match="labels"):
        trained(estimator(loss, tmp_path, True, None), (FEATURES, labels), STEPS)
