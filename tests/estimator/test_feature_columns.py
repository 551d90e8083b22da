"""Feature columns: what they make of a batch of features (ES-12)."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline import feature_column as fc
from paceline.estimator.feature_column.rows import combined_rows
from paceline.inputs import FixedLenFeature, VarLenFeature, encode_example, parse_example
from paceline.nn import initializers, optimizers
from paceline.strategies import VariableStore, current_store

PEERS = Path(__file__).parents[1] / "peers"

FEATURES = {
    "age": np.array([3.0, 17.0, 40.0]),
    "size": np.array([[1, 2], [3, 4], [5, 6]]),
    "word": np.array(["a", "b", "c"]),
    "words": np.array([["a", "b"], ["c", ""], ["", ""]]),
    "ids": np.array([[1, 2], [0, -1], [-1, -1]]),
    "weights": np.array([[1.0, 3.0], [0.5, 9.0], [9.0, 9.0]]),
}
IDS = fc.categorical_column_with_identity("ids", 3)
AGES = fc.bucketized_column(fc.numeric_column("age"), [17, 20])
WORDS = ["a", "b"]


@pytest.fixture
def model():
    """A call of a model, in which layers find their variables."""
    with VariableStore(seed=1).building():
        yield


def dense(column, features=FEATURES):
    return fc.input_layer(features, [column]).numpy().tolist()


def categories(column, features=FEATURES):
    """The numbers of its categories; what has none, a word that it leaves out too, as -1."""
    return np.maximum(column.categories(features).ids, -1).tolist()


def double(x):
    return x * 2


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (fc.numeric_column("age"), [[3], [17], [40]]),
        (fc.numeric_column("size", 2), [[1, 2], [3, 4], [5, 6]]),
        (fc.numeric_column("size", (2,), normalizer_fn=double), [[2, 4], [6, 8], [10, 12]]),
        (fc.numeric_column("size", 2, dtype=np.int64), [[1, 2], [3, 4], [5, 6]]),
        (AGES, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (
            fc.bucketized_column(fc.numeric_column("size", 2), [3.0]),
            [[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0, 1]],
        ),
        (fc.indicator_column(IDS), [[0, 1, 1], [1, 0, 0], [0, 0, 0]]),
        (
            fc.indicator_column(fc.weighted_categorical_column(IDS, "weights")),
            [[0, 1, 3], [0.5, 0, 0], [0, 0, 0]],
        ),
    ],
)
def test_es_12_dense_columns_give_floats_for_each_example(model, column, expected):
    found = fc.input_layer(FEATURES, [column])
    assert found.dtype == np.float32
    assert found.numpy().tolist() == expected
    assert column.num_elements == len(expected[0])


@pytest.mark.parametrize(
    ("shape", "of_feature"),
    [((2, 3), (4, 6)), (6, (4, 2, 3)), ((2, 3, 1), (4, 2, 3)), (1, (4, 1, 1)), (1, (4,))],
)
def test_a_numeric_column_takes_as_many_values_in_any_shape(shape, of_feature):
    """So does TensorFlow, whose normalizer_fn gets the feature in its own shape, too."""
    seen = []
    column = fc.numeric_column("x", shape, normalizer_fn=lambda x: seen.append(x.shape) or x)
    values = np.arange(np.prod(of_feature), dtype=np.float32)
    found = column.read({"x": values.reshape(of_feature)})
    assert np.asarray(found).tolist() == values.reshape(4, -1).tolist()
    assert seen == [of_feature if len(of_feature) > 1 else (4, 1)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (AGES, [[0], [1], [2]]),  # a boundary belongs to the bucket that it begins
        (fc.bucketized_column(fc.numeric_column("size", 2), [3.0]), [[0, 2], [1, 3], [1, 3]]),
        (IDS, [[1, 2], [0, -1], [-1, -1]]),
        (fc.categorical_column_with_identity("ids", 2, 0), [[1, 0], [0, -1], [-1, -1]]),
        (
            fc.categorical_column_with_vocabulary_list("word", WORDS, default_value=-1),
            [[0], [1], [-1]],
        ),
        (
            fc.categorical_column_with_vocabulary_list("word", WORDS, default_value=0),
            [[0], [1], [0]],
        ),
        # Fingerprint64("c") is 2 modulo 10
        (
            fc.categorical_column_with_vocabulary_list("words", WORDS, num_oov_buckets=10),
            [[0, 1], [4, -1], [-1, -1]],
        ),
        (
            fc.categorical_column_with_vocabulary_list("ids", [2, 1, 0]),
            [[1, 0], [2, -1], [-1, -1]],
        ),
        (fc.categorical_column_with_hash_bucket("word", 10), [[9], [2], [2]]),
    ],
)
def test_categorical_columns_give_numbers_and_none_for_padding(column, expected):
    assert categories(column) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["é", "a", ""],
        ["é".encode(), b"a", b""],
        np.array(["é", "a", ""], object),
        np.array(["é".encode(), "a", b""], object),
        np.array(["é", "a", ""], np.dtypes.StringDType()),
    ],
    ids=["str", "bytes", "objects", "mixed objects", "NumPy's strings of any width"],
)
def test_text_is_the_same_in_whatever_form(words):
    features = {"word": np.asarray(words)}
    of_list = fc.categorical_column_with_vocabulary_list("word", [b"a", "é".encode()])
    assert categories(of_list, features) == [[1], [0], [-1]]
    hashed = fc.categorical_column_with_hash_bucket("word", 1000)
    expected = categories(hashed, {"word": np.array(["é", "a", ""])})
    assert categories(hashed, features) == expected


def test_a_long_word_is_not_taken_for_the_short_one_that_it_begins_with():
    column = fc.categorical_column_with_vocabulary_list("word", ["b", "bc"], default_value=-1)
    assert categories(column, {"word": np.array(["bcd", "bc", "bcde", "a"])}) == [
        [-1],
        [1],
        [-1],
        [-1],
    ]


def test_a_vocabulary_file_has_a_word_a_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("b\na\nc\n")
    whole = fc.categorical_column_with_vocabulary_file("word", path)
    assert categories(whole) == [[1], [0], [2]]
    begun = fc.categorical_column_with_vocabulary_file("word", str(path), 2, default_value=-1)
    assert categories(begun) == [[1], [0], [-1]]
    path.write_text("2\n0\n1\n")
    numbers = fc.categorical_column_with_vocabulary_file("ids", path, dtype=np.int64)
    assert categories(numbers) == [[2, 0], [1, -1], [-1, -1]]


def test_fingerprints_are_farmhashs():
    """For words of each length at which the algorithm goes another way, and in between."""
    answers = json.loads((PEERS / "fingerprints.json").read_text())
    answers.pop("")  # as a feature it is no word
    column = fc.categorical_column_with_hash_bucket("word", 2**31 - 1)
    found = categories(column, {"word": np.array(list(answers))})
    assert found == [[fingerprint % (2**31 - 1)] for fingerprint in answers.values()]


@pytest.mark.parametrize(
    ("size", "hash_key", "expected"), [(100, None, 83), (100, 0xDECAFCAFFF, 31)]
)
def test_crosses_fall_into_tensorflows_buckets(size, hash_key, expected):
    """The answers are those of TensorFlow's own test of its operation, sparse_cross_hashed."""
    features = {f"f{i}": np.array([f"batch1-FC{i}-F1"]) for i in (1, 2, 3)}
    column = fc.crossed_column(["f1", "f2", "f3"], size, hash_key)
    assert categories(column, features) == [[expected]]


CROSSED = {
    "w": np.array([["x"], ["y"]]),
    "w2": np.array([["a"], ["b"]]),
    "n": np.array([[3], [5]]),
    "float": np.array([[1.5], [-2.7]], np.float32),
    "age": np.array([15.0, 40.0], np.float32),
    "flag": np.array([[True], [False]]),
}
KNOWN = fc.categorical_column_with_vocabulary_list("w", ["x"], default_value=-1)
IN_BUCKETS = fc.bucketized_column(fc.numeric_column("age"), [18.0, 30.0])
NUMBERED = fc.categorical_column_with_identity("n", 6)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["w", "w2"], [37, 590]),
        (["w2", "w"], [892, 805]),
        (["w", KNOWN], [43, 808]),
        ([KNOWN, "w"], [43, 808]),
        (["w", IN_BUCKETS], [43, 604]),
        ([IN_BUCKETS, "w"], [43, 604]),
        (["n", "w"], [419, 294]),
        (["w", "n"], [960, 621]),
        (["float", "w"], [859, 644]),
        (["w", "float"], [727, 712]),
        (["float", IN_BUCKETS], [963, 345]),
        (["flag", "w"], [859, 411]),
        (["n", "float"], [468, 608]),
        ([fc.crossed_column(["w", IN_BUCKETS], 10), "n", NUMBERED], [23, 136]),
        (["n", fc.crossed_column(["w", IN_BUCKETS], 10), KNOWN], [835, 309]),
    ],
)
def test_a_cross_of_columns_and_features_has_tensorflows_buckets(keys, expected):
    """TensorFlow 2.15.1's crossed_column in an indicator_column of dense features."""
    assert categories(fc.crossed_column(keys, 1000), CROSSED) == [[n] for n in expected]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_cross_takes_a_float_that_is_no_whole_number_as_the_smallest_one(dtype):
    """As TensorFlow 2.15.1 does on x86, here on each processor and without a warning."""
    strange = np.array([np.nan, np.inf, -np.inf, np.inf if dtype == "f2" else 1e30], dtype)
    features = {"float": strange, "w": np.array(["x"] * 4)}
    assert categories(fc.crossed_column(["float", "w"], 1000), features) == [[872]] * 4


def test_a_hash_key_of_0_is_the_default_as_in_tensorflow():
    keys = ["w", "w2"]
    assert fc.crossed_column(keys, 1000, 0) == fc.crossed_column(keys, 1000)


def test_a_cross_has_all_combinations_of_an_examples_categories():
    features = {"x": np.array([[1, 2], [1, -1]]), "y": np.array([[5, 6], [5, 6]])}
    found = fc.crossed_column(["x", "y"], 1000).categories(features).ids
    alone = [
        fc.crossed_column(["x", "y"], 1000).categories({"x": np.array([x]), "y": np.array([y])}).ids
        for x, y in [(1, 5), (1, 6), (2, 5), (2, 6)]
    ]
    assert found[0].tolist() == np.concatenate(alone).reshape(-1).tolist()
    assert found[1].tolist() == [*found[0, :2], -1, -1]


def test_crosses_of_crosses_are_crosses_of_all():
    nested = fc.crossed_column([fc.crossed_column([AGES, "word"], 9), "ids"], 100)
    flat = fc.crossed_column([AGES, "word", "ids"], 100)
    assert nested.name == flat.name == "age_bucketized_X_ids_X_word"
    assert categories(nested) == categories(flat)


def test_categories_are_the_same_in_another_process():
    code = """
from paceline import checkpoint
from paceline import feature_column as fc
from paceline.estimator.feature_column.rows import combined_rows
import numpy as np
features = {"word": np.array(["a", "Grüße", "x" * 99]), "n": np.array([1, -5, 2**40])}
hashed = fc.categorical_column_with_hash_bucket("word", 10**9)
columns = [hashed, fc.crossed_column(["word", "n"], 10**9)]
print([c.categories(features).ids.tolist() for c in columns])
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] != ""


ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [30.0, 40.0]], np.float32)
WEIGHTED = fc.weighted_categorical_column(IDS, "weights")


def embedding(column=IDS, **options):
    return fc.embedding_column(column, 2, initializer=initializers.Constant(ROWS), **options)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (embedding(), [[16.5, 22], [1, 2], [0, 0]]),
        (embedding(combiner="sum"), [[33, 44], [1, 2], [0, 0]]),
        (embedding(combiner="sqrtn"), [[33 / 2**0.5, 44 / 2**0.5], [1, 2], [0, 0]]),
        (embedding(WEIGHTED), [[93 / 4, 124 / 4], [1, 2], [0, 0]]),
        (embedding(WEIGHTED, combiner="sum"), [[93, 124], [0.5, 1], [0, 0]]),
        (embedding(WEIGHTED, combiner="sqrtn"), [[93 / 10**0.5, 124 / 10**0.5], [1, 2], [0, 0]]),
        (embedding(combiner="sum", max_norm=5), [[6, 8], [1, 2], [0, 0]]),
    ],
)
def test_embeddings_combine_the_rows_of_an_examples_categories(model, column, expected):
    np.testing.assert_allclose(dense(column), expected, rtol=1e-6)


@pytest.mark.parametrize("combiner", ["mean", "sum", "sqrtn"])
@pytest.mark.parametrize("max_norm", [None, 4.0])
@pytest.mark.parametrize("column", [IDS, WEIGHTED], ids=["", "weighted"])
def test_the_gradient_of_an_embedding_is_that_of_the_dense_product(combiner, max_norm, column):
    """The rows that were read get what they would get from a product with a matrix."""
    ids, weights = column.categories(FEATURES)
    factors = np.where(ids >= 0, 1.0 if weights is None else weights, 0.0)
    one_hot = np.zeros((3, 3))
    for example, place in zip(*np.nonzero(factors), strict=True):
        one_hot[example, ids[example, place]] += factors[example, place]
    totals = {
        "sum": np.ones(3),
        "mean": factors.sum(1),
        "sqrtn": np.sqrt(np.square(factors).sum(1)),
    }
    matrix = (one_hot / np.maximum(totals[combiner], 1e-9)[:, None]).astype(np.float32)
    pull = np.array([[1, 2], [3, 4], [5, 6]], np.float32)

    def sparse_loss(table):
        return np.sum(combined_rows(table, ids, weights, combiner, max_norm) * pull)

    def dense_loss(table):
        norms = np.sqrt(np.sum(np.square(table), axis=1, keepdims=True))
        short = table if max_norm is None else table * (max_norm / np.maximum(norms, max_norm))
        return np.sum((matrix @ short) * pull)

    found = gradient_of(sparse_loss)
    assert isinstance(found, pl.autodiff.IndexedSlices)
    assert set(found.indices.tolist()) == {0, 1, 2}
    total = found.add_to(np.zeros_like(ROWS))
    np.testing.assert_allclose(total, gradient_of(dense_loss), rtol=1e-5)


def gradient_of(loss):
    table = pl.Variable(ROWS, name="table")
    with pl.GradientTape() as tape:
        value = loss(table)
    return tape.gradient(value, table)


def test_a_row_that_only_pads_is_not_read():
    """Row 0 would be moved by optimizers with momentum, as if somebody had looked it up."""
    ids = np.array([[1, -1], [2, 1]])
    found = gradient_of(lambda table: np.sum(combined_rows(table, ids, None, "mean")))
    assert set(found.indices.tolist()) == {1, 2}


def test_columns_share_a_table(model):
    liked = fc.categorical_column_with_identity("liked", 3)
    columns = fc.shared_embeddings([IDS, liked], 2, initializer=initializers.Constant(ROWS))
    features = FEATURES | {"liked": np.array([0, 1, 2])}
    found = fc.input_layer(features, columns).numpy()
    assert [column.name for column in columns] == ["ids_shared_embedding", "liked_shared_embedding"]
    np.testing.assert_allclose(found, [[16.5, 22, 1, 2], [1, 2, 3, 4], [0, 0, 30, 40]])
    assert list(current_store().variables) == [
        "input_layer/ids_liked_shared_embedding/embedding_weights"
    ]


def test_an_embedding_begins_with_a_variable_of_a_checkpoint(model, tmp_path):
    path = checkpoint.save(tmp_path, 7, {"old/rows": ROWS})
    options = {"ckpt_to_load_from": path, "tensor_name_in_ckpt": "old/rows"}
    assert dense(fc.embedding_column(IDS, 2, "sum", **options))[0] == [33, 44]
    with pytest.raises(ValueError, match="embedding has shape \\(3, 5\\), and 'old/rows'"):
        dense(fc.embedding_column(IDS, 5, **options))
    with pytest.raises(ValueError, match="has no 'rows'; it has old/rows"):
        dense(fc.embedding_column(IDS, 4, ckpt_to_load_from=path, tensor_name_in_ckpt="rows"))
    with pytest.raises(ValueError, match="give both or neither"):
        fc.embedding_column(IDS, 2, ckpt_to_load_from=path)


def test_an_embedding_that_is_not_trainable_stays(model):
    fc.input_layer(FEATURES, [embedding(trainable=False)])
    (table,) = current_store().variables.values()
    assert not table.trainable


def test_columns_stand_in_the_order_of_their_names(model):
    columns = [fc.numeric_column("size", 2), fc.numeric_column("age")]
    assert fc.input_layer(FEATURES, columns).numpy().tolist()[0] == [3, 1, 2]


def test_a_linear_model_adds_up_all_columns_and_a_bias(model):
    columns = [AGES, IDS, fc.numeric_column("size", 2), fc.crossed_column([AGES, "word"], 5)]
    layer = fc.LinearModel(columns, units=2, name="m")
    assert layer(FEATURES).numpy().tolist() == [[0, 0]] * 3  # they begin at zero
    shapes = {name: v.shape for name, v in current_store().variables.items()}
    assert shapes == {
        "m/bias_weights": (2,),
        "m/age_bucketized/weights": (3, 2),
        "m/age_bucketized_X_word/weights": (5, 2),
        "m/ids/weights": (3, 2),
        "m/size/weights": (2, 2),
    }
    for name, variable in current_store().variables.items():
        variable.assign(
            np.full(variable.shape, {"m/size/weights": 10, "m/ids/weights": 100}.get(name, 1))
        )
    assert layer(FEATURES).numpy()[:, 0].tolist() == [233, 173, 113]


@pytest.mark.parametrize(("combiner", "expected"), [("sum", 2), ("mean", 1), ("sqrtn", 2**0.5)])
def test_a_linear_model_combines_categories(model, combiner, expected):
    layer = fc.LinearModel([IDS], sparse_combiner=combiner, name="m")
    layer(FEATURES)
    current_store().variables["m/ids/weights"].assign(np.ones((3, 1)))
    np.testing.assert_allclose(layer(FEATURES).numpy()[:, 0], [expected, 1, 0], rtol=1e-6)


def test_collections_of_weights_are_taken_and_do_nothing(model):
    found = fc.input_layer(FEATURES, [AGES], weight_collections=["a"], trainable=False)
    assert found.shape == (3, 3)
    assert fc.linear_model(FEATURES, [AGES], weight_collections=None).shape == (3, 1)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (fc.input_layer, "cols_to_vars"),
        (fc.input_layer, "cols_to_output_tensors"),
        (fc.linear_model, "cols_to_vars"),
    ],
)
def test_dicts_that_would_be_filled_with_what_a_column_has_are_refused(model, make, name):
    with pytest.raises(ValueError, match=f"{name} must be None: nothing is told of single"):
        make(FEATURES, [AGES], **{name: {}})


def test_the_example_spec_reads_what_columns_read():
    columns = [
        fc.indicator_column(fc.weighted_categorical_column(IDS, "weights")),
        fc.bucketized_column(fc.numeric_column("age", default_value=18.0), [20]),
        fc.crossed_column(["word", AGES], 10),
        fc.numeric_column("size", 2),
    ]
    with pytest.raises(ValueError, match="reads feature 'age' as"):  # with a default, and without
        fc.make_parse_example_spec(columns)
    spec = fc.make_parse_example_spec([columns[0], columns[1], columns[3]])
    assert spec["ids"] == VarLenFeature(np.int64)
    assert spec["weights"] == VarLenFeature(np.dtype(np.float32))
    assert isinstance(spec["age"], FixedLenFeature)
    record = encode_example({"ids": [1, 2], "weights": [1.0, 0.5], "size": [3.0, 4.0]})
    found = parse_example(record, spec)
    assert {key: value.tolist() for key, value in found.items()} == {
        "age": [18.0],
        "ids": [1, 2],
        "weights": [1.0, 0.5],
        "size": [3.0, 4.0],
    }


def test_the_example_spec_of_a_wide_and_a_deep_part_has_their_common_columns_once():
    image = fc.numeric_column("image", 2000, default_value=np.arange(2000.0))
    wide, deep = [AGES, IDS, image], [fc.indicator_column(IDS), image, AGES.source_column, image]
    spec = fc.make_parse_example_spec(wide + deep)
    assert sorted(spec) == ["age", "ids", "image"]
    # NumPy shows two so long arrays alike, and they differ all the same.
    other = fc.numeric_column("image", 2000, default_value=np.r_[0:1000, 0, 1001:2000])
    with pytest.raises(ValueError, match="reads feature 'image' as"):
        fc.make_parse_example_spec([image, other])


def test_parsed_examples_are_batched_with_padding(model):
    words = fc.categorical_column_with_vocabulary_list("words", WORDS)
    spec = fc.make_parse_example_spec([words, IDS])
    records = [
        encode_example({"words": ["a", "b"], "ids": [1]}),
        encode_example({"ids": [2, 0, 1]}),
    ]
    dataset = pl.Dataset.from_generator(lambda: (parse_example(r, spec) for r in records))
    (batch,) = dataset.padded_batch(2, padding_values={"words": "", "ids": -1})
    assert categories(words, batch) == [[0, 1], [-1, -1]]
    assert categories(IDS, batch) == [[1, -1, -1], [2, 0, 1]]


def test_a_model_fn_of_ones_own_uses_columns(tmp_path):
    """And trains an embedding by its rows, to what the indicator times a matrix learns."""
    names = np.array(["a", "b", "c", "a", "b", "c"])
    targets = np.array([[1.0], [2.0], [3.0]] * 2, np.float32)
    column = fc.categorical_column_with_vocabulary_list("name", ["a", "b", "c"])

    def model_fn(features, labels, mode):
        rows = fc.DenseFeatures(fc.embedding_column(column, 1))(features)
        loss = np.mean(np.square(rows - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.5).minimize(loss))

    estimator = pl.Estimator(model_fn, tmp_path)
    estimator.train(lambda: ({"name": names}, targets), steps=40)
    table = estimator.get_variable_value("dense_features/name_embedding/embedding_weights")
    np.testing.assert_allclose(table, targets[:3], atol=1e-4)
