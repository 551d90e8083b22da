"""What feature columns refuse, with the names of the column and the feature (ES-12)."""

import numpy as np
import pytest

from paceline import feature_column as fc

VOCABULARY = fc.categorical_column_with_vocabulary_list("word", ["a", "b"])
IDENTITY = fc.categorical_column_with_identity("id", 3)
HASHED = fc.categorical_column_with_hash_bucket("word", 5)
WEIGHTED = fc.weighted_categorical_column(IDENTITY, "weight")
NUMERIC = fc.numeric_column("x")


@pytest.mark.parametrize(
    ("column", "features", "message"),
    [
        (NUMERIC, {"y": [1.0]}, "column 'x' finds no feature 'x'; the features .* are 'y'"),
        (NUMERIC, np.ones(3), "column 'x' finds no feature 'x'; .* are a ndarray, no dict"),
        (VOCABULARY, {}, "column 'word' finds no feature 'word'; .* an empty dict"),
        (WEIGHTED, {"id": [1]}, "column 'id_weighted_by_weight' finds no feature 'weight'"),
        (NUMERIC, {"x": ["a"]}, "column 'x' takes numbers of dtype float32, feature 'x' has <U1"),
        (
            fc.numeric_column("x", dtype=np.int32),
            {"x": [1.5]},
            "column 'x' takes numbers of dtype int32, feature 'x' has float64",
        ),
        (NUMERIC, {"x": np.ones((4, 2))}, r"shape \(batch, 1\), .* it has \(4, 2\)"),
        (NUMERIC, {"x": np.float32(1)}, r"shape \(batch, 1\), .* it has \(\)"),
        (VOCABULARY, {"word": [1]}, "'word' takes text .*, feature 'word' has dtype int64"),
        (
            VOCABULARY,
            {"word": np.array(["a", 1], object)},
            r"'word' takes text .* has dtype object \(of int, str\)",
        ),
        (
            IDENTITY,
            {"id": [0.5]},
            "column 'id' takes whole numbers, feature 'id' has dtype float64",
        ),
        (IDENTITY, {"id": np.ones((1, 1, 1), int)}, r"shape \(batch,\) or \(batch, width\)"),
        (IDENTITY, {"id": [1, 3]}, r"column 'id' takes numbers in \[0, 3\), feature 'id' has 3"),
        (IDENTITY, {"id": [1, -2]}, r"column 'id' takes numbers in \[0, 3\), feature 'id' has -2"),
        (VOCABULARY, {"word": ["a", "ü"]}, "column 'word': feature 'word' has 'ü', which is none"),
        (
            WEIGHTED,
            {"id": [[1, 2]], "weight": [1.0]},
            r"weight' has shape \(1,\), and there are categories of shape \(1, 2\)",
        ),
        (WEIGHTED, {"id": [1], "weight": ["a"]}, "takes numbers as weights, feature 'weight'"),
        (fc.crossed_column(["x", "word"], 5), {"x": [1j], "word": ["a"]}, "'word_X_x' takes text"),
    ],
)
def test_es_12_features_that_do_not_fit_are_refused_by_column_and_key(column, features, message):
    if isinstance(features, dict):
        features = {key: np.asarray(value) for key, value in features.items()}
    read = column.read if column is NUMERIC or hasattr(column, "read") else column.categories
    with pytest.raises(ValueError, match=message):
        read(features)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: fc.numeric_column("x", dtype=str), ValueError, "must be a float or integer type"),
        (lambda: fc.numeric_column("x", 0), ValueError, "must be a positive integer, it is 0"),
        (lambda: fc.numeric_column(3), TypeError, "key must be the name of a feature, it is 3"),
        (lambda: fc.numeric_column("x", normalizer_fn=3), TypeError, "'x' is no function: 3"),
        (lambda: fc.numeric_column("x", 2, [1.0] * 3), ValueError, "default_value of column 'x'"),
        (lambda: fc.bucketized_column(NUMERIC, [2, 1]), ValueError, "in ascending order"),
        (lambda: fc.bucketized_column(NUMERIC, []), ValueError, "in ascending order"),
        (lambda: fc.bucketized_column(IDENTITY, [1]), ValueError, "must be a numeric_column"),
        (lambda: fc.categorical_column_with_identity("x", 0), ValueError, "num_buckets"),
        (
            lambda: fc.categorical_column_with_identity("x", 3, 3),
            ValueError,
            r"in \[0, 3\) or None",
        ),
        (
            lambda: fc.categorical_column_with_hash_bucket("x", 2, float),
            ValueError,
            "str or an int",
        ),
        (lambda: fc.categorical_column_with_vocabulary_list("x", []), ValueError, "list of words"),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", [0.5]),
            ValueError,
            "list of words",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", ["a", ""]),
            ValueError,
            "has '', ",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", ["a", "a"]),
            ValueError,
            "'a' twice",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", ["a"], default_value=1),
            ValueError,
            r"must be in \[-1, 1\), it is 1",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_list(
                "x", ["a"], default_value=0, num_oov_buckets=2
            ),
            ValueError,
            "give at most one of them",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", ["a"], dtype=int),
            ValueError,
            "holds \\|S1, its dtype is to be <class 'int'>",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_file("x", "/does/not/exist"),
            ValueError,
            "cannot read the vocabulary '/does/not/exist'",
        ),
        (lambda: fc.crossed_column(["a"], 5), ValueError, "two or more"),
        (
            lambda: fc.categorical_column_with_vocabulary_file(
                "a", "f", file_format="tfrecord_gzip"
            ),
            ValueError,
            "file_format must be None or 'text', got 'tfrecord_gzip'",
        ),
        (lambda: fc.crossed_column([HASHED, "a"], 5), TypeError, "name its feature 'word' instead"),
        (lambda: fc.crossed_column([WEIGHTED, "a"], 5), TypeError, "weights of a combination"),
        (lambda: fc.crossed_column([NUMERIC, "a"], 5), TypeError, "takes names of features and"),
        (lambda: fc.indicator_column(NUMERIC), TypeError, "indicator_column takes a categorical"),
        (
            lambda: fc.embedding_column(NUMERIC, 2),
            TypeError,
            "embedding_column takes a categorical",
        ),
        (lambda: fc.embedding_column(IDENTITY, 0), ValueError, "dimension must be a positive"),
        (lambda: fc.embedding_column(IDENTITY, 2, "max"), ValueError, "combiner must be one of"),
        (lambda: fc.embedding_column(IDENTITY, 2, max_norm=0), ValueError, "max_norm must be"),
        (lambda: fc.shared_embeddings([], 2), ValueError, "is empty"),
        (lambda: fc.shared_embeddings([IDENTITY, HASHED], 2), ValueError, "HashColumn of 5, Ident"),
        (lambda: fc.DenseFeatures([IDENTITY]), TypeError, "wrap a categorical one in indicator"),
        (lambda: fc.DenseFeatures([]), ValueError, "feature_columns is empty"),
        (lambda: fc.LinearModel(["x"]), TypeError, "make columns with the functions of"),
        (lambda: fc.LinearModel([NUMERIC, NUMERIC]), ValueError, "several columns called 'x'"),
        (lambda: fc.LinearModel([NUMERIC], sparse_combiner="max"), ValueError, "sparse_combiner"),
    ],
)
def test_columns_that_make_no_sense_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
