"""Learn which words belong together, with the vectors of words on parameter servers.

    paceline launch --workers 2 --ps 2 examples/word_embeddings.py   # vectors on parameter servers
    python examples/word_embeddings.py                               # one process

Two tables have a vector for each word: one for words that are looked at, one for words that stand
beside them. Pairs that were seen shall have a large product, pairs with words drawn at random a
small one (Mikolov et al. 2013, "Distributed representations of words and phrases and their
compositionality"). A step reads and changes some hundreds of rows, and only these travel.
The sentences are made up: words of one subject, among others that fit everywhere. At the end the
words nearest to some are shown; 9 in 10 of all nearest words are of the same subject.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import numpy as np

import paceline as pl
from paceline.nn import layers, losses, optimizers

SUBJECTS = {
    "fruit": "apple pear plum cherry grape lemon orange peach melon fig",
    "metals": "iron copper zinc silver gold nickel lead tin cobalt platinum",
    "animals": "horse cow sheep goat dog cat hen pig duck goose",
    "instruments": "violin flute oboe harp piano drum horn lute cello organ",
    "weather": "rain snow hail storm fog frost thunder wind drizzle sleet",
}
FILLERS = ["the", "a", "of", "and", "in", "some", "many", "very", "with", "under"]
WORDS = [*" ".join(SUBJECTS.values()).split(), *FILLERS]
NUM_SUBJECT_WORDS = len(WORDS) - len(FILLERS)
WIDTH, WINDOW, NUM_NEGATIVES, LENGTH = 16, 2, 4, 12


def pairs(index):
    """Pairs of one sentence: looked at (n,), beside it (n, 1 + negatives), the true one first."""
    rng = np.random.default_rng([7, int(index)])
    subject = rng.integers(len(SUBJECTS))
    of_subject = 10 * subject + rng.integers(0, 10, LENGTH)
    fillers = rng.integers(NUM_SUBJECT_WORDS, len(WORDS), LENGTH)
    sentence = np.where(rng.random(LENGTH) < 0.6, of_subject, fillers)
    places = [
        (i, j) for i in range(LENGTH) for j in range(LENGTH) if i != j and abs(i - j) <= WINDOW
    ]
    looked_at, beside = sentence[np.array(places)].T
    negatives = rng.integers(0, len(WORDS), (len(places), NUM_NEGATIVES))
    return {"word": looked_at, "beside": np.column_stack([beside, negatives])}


def model_fn(features, labels, mode):
    looked_at = layers.Embedding(len(WORDS), WIDTH, name="words")(features["word"])
    if mode == pl.ModeKeys.PREDICT:
        return pl.EstimatorSpec(mode, predictions={"vector": looked_at})
    beside = layers.Embedding(len(WORDS), WIDTH, "zeros", name="context")(features["beside"])
    logits = np.einsum("nd,nkd->nk", looked_at, beside)
    was_seen = np.zeros(logits.shape, np.float32)
    was_seen[:, 0] = 1
    loss = np.mean(losses.binary_crossentropy(was_seen, logits, from_logits=True))
    train_op = optimizers.Adagrad(0.3, initial_accumulator_value=1e-8, sparse="lazy").minimize(loss)
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(input_context):
    """Sentences without end; each worker has its own."""
    sentences = pl.Dataset.range(1 << 40)
    num, index = input_context.num_input_pipelines, input_context.input_pipeline_id
    return sentences.shard(num, index).map(pairs).unbatch().batch(512)


def nearest(vectors):
    """For each word of a subject the other words, the nearest first, by the angle."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    units = units[:NUM_SUBJECT_WORDS]
    likeness = units @ units.T
    np.fill_diagonal(likeness, -np.inf)
    return np.argsort(-likeness, axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model-dir", help="where checkpoints go; a new directory by default")
    parser.add_argument("--steps", type=int, default=400, help="the global step to train to")
    args = parser.parse_args()

    num_servers = pl.cluster.resolve(os.environ).cluster_spec().num_tasks("ps")
    strategy = pl.ParameterServerStrategy() if num_servers else None
    config = pl.RunConfig(
        model_dir=args.model_dir or tempfile.mkdtemp(),
        train_distribute=strategy,
        log_step_count_steps=100,
        tf_random_seed=1,
    )
    estimator = pl.Estimator(model_fn, config=config)
    # There is nothing to evaluate but the vectors, which are looked at below.
    pl.train_and_evaluate(estimator, pl.TrainSpec(input_fn, args.steps), pl.EvalSpec(one_of_each))
    if not config.is_chief:
        return
    found = nearest(np.stack([p["vector"] for p in estimator.predict(one_of_each)]))
    for word in ("apple", "gold", "cat", "harp", "snow"):
        others = [WORDS[other] for other in found[WORDS.index(word)][:5]]
        print(f"{word:6} {' '.join(others)}")
    same = found[:, :5] // 10 == np.arange(NUM_SUBJECT_WORDS)[:, None] // 10
    print(f"of the same subject: {same.mean():.2f}")


def one_of_each():
    words = np.arange(len(WORDS))
    beside = np.zeros((len(WORDS), 1 + NUM_NEGATIVES), np.int64)
    return pl.Dataset.from_tensor_slices({"word": words, "beside": beside}).batch(len(WORDS))


if __name__ == "__main__":
    main()
