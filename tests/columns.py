"""A wide and deep model of every kind of column, and what trains it."""

import numpy as np

import paceline as pl
from paceline import feature_column as fc
from paceline.estimator import DNNLinearCombinedClassifier

GLOBAL_BATCH = 12
NUM_EXAMPLES = 45
"""The last batch has 9 examples, so that of several replicas some have fewer, or none."""

_WORDS = ["a", "b", "c", "d"]


def examples(num_examples=NUM_EXAMPLES):
    """Features with text and padding, and labels."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 6, (num_examples, 3))
    ids[rng.random(ids.shape) < 0.3] = -1
    features = {
        "x": rng.normal(size=(num_examples, 2)).astype(np.float32),
        "word": np.array([*_WORDS, ""])[rng.integers(0, 5, num_examples)],
        "ids": ids,
        "weights": rng.uniform(0.5, 2, ids.shape).astype(np.float32),
        "importance": rng.integers(1, 3, num_examples).astype(np.float32),
    }
    return features, (features["x"].sum(axis=1) > 0).astype(np.int64)


def dealt_out(num_workers=1, num_replicas=1, index=0):
    """The examples of one worker: each global batch is dealt out to the replicas in order."""
    features, labels = examples()
    batch = GLOBAL_BATCH // (num_workers * num_replicas)
    mine = [k for k in range(len(labels)) if (k % GLOBAL_BATCH) // batch // num_replicas == index]
    own = {key: value[mine] for key, value in features.items()}
    return pl.Dataset.from_tensor_slices((own, labels[mine])).batch(batch)


def classifier(model_dir, strategy=None):
    x = fc.numeric_column("x", 2)
    word = fc.categorical_column_with_vocabulary_list("word", _WORDS)
    ids = fc.categorical_column_with_identity("ids", 6)
    weighted = fc.weighted_categorical_column(ids, "weights")
    hashed = fc.categorical_column_with_hash_bucket("word", 5)
    return DNNLinearCombinedClassifier(
        model_dir,
        linear_feature_columns=[
            x,
            weighted,
            fc.bucketized_column(x, [-0.5, 0.5]),
            fc.crossed_column(["word", "ids"], 20),
        ],
        dnn_feature_columns=[
            x,
            fc.indicator_column(word),
            fc.embedding_column(weighted, 3, "sqrtn", max_norm=0.5),
            *fc.shared_embeddings(
                [hashed, fc.categorical_column_with_hash_bucket("ids", 5, int)], 2
            ),
        ],
        dnn_optimizer=pl.nn.optimizers.Adam(0.01),
        dnn_hidden_units=[4],
        weight_column="importance",
        config=pl.RunConfig(train_distribute=strategy, eval_distribute=strategy, tf_random_seed=1),
    )


def require_close(found, expected):
    """Values of all variables, slots included, to rounding."""
    assert found.keys() == expected.keys()
    assert len([name for name in found if name.startswith(("linear/", "dnn/"))]) == 11
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-6, err_msg=name)
