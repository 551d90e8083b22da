"""Names of TensorFlow 1 in `tf` itself; the values are TensorFlow 2.15.1's (`compat.v1`)."""

import numpy as np
import pytest

import paceline.compat.tf as tf
import paceline.compat.tf.compat.v1 as tf1

LINES = ["a,b, c;;d", " x y", ""]


@pytest.mark.parametrize(
    ("options", "indices", "values", "shape"),
    [
        ({}, [[0, 0], [0, 1], [1, 0], [1, 1]], ["a,b,", "c;;d", "x", "y"], [3, 2]),
        (
            {"delimiter": ",;"},
            [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0]],
            ["a", "b", " c", "d", " x y"],
            [3, 4],
        ),
        (
            {"sep": ", "},
            [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]],
            ["a", "b", "c;;d", "x", "y"],
            [3, 3],
        ),
    ],
)
def test_mb_24_texts_are_split_at_each_of_the_delimiters(options, indices, values, shape):
    found = tf.string_split(LINES, **options)
    assert found.indices.numpy().tolist() == indices
    assert found.values.numpy().tolist() == values
    assert found.dense_shape.numpy().tolist() == shape


def test_mb_24_parts_of_texts_become_a_padded_array():
    found = tf.sparse_tensor_to_dense(tf.string_split(["a b", "c"]), default_value="none")
    assert found.numpy().tolist() == [["a", "b"], ["c", "none"]]


def test_mb_24_texts_go_to_the_buckets_that_tensorflow_puts_them_in():
    assert tf.strings.to_hash_bucket_fast(["a", "bc", ""], 100).numpy().tolist() == [39, 79, 63]
    assert tf.string_to_hash_bucket_fast(["a", "bc"], 7).numpy().tolist() == [5, 6]


@pytest.mark.parametrize(
    ("x", "y", "expected"), [([7, -7], 2, [3, -4]), ([7.0, 1.0], 2.0, [3.5, 0.5])]
)
def test_mb_24_div_of_whole_numbers_rounds_down(x, y, expected):
    np.testing.assert_array_equal(tf.div(x, y), expected)


@pytest.mark.parametrize("module", [tf, tf1])
def test_mb_24_names_of_tensorflow_1_are_in_tf_and_in_compat_v1(module):
    assert module.decode_csv(["1,2"], [[0], [0]])[1].numpy().tolist() == [2]
    assert module.string_to_number(string_tensor=["1.5"]).numpy().tolist() == [1.5]
    assert module.dtypes.cast(1.5, module.dtypes.int32).dtype == np.int32
    assert isinstance(module.float32, module.DType)
    assert module.GraphKeys.GLOBAL_STEP == "global_step"
    assert module.VERSION == "2.15.0"
    assert module.random_uniform([2, 3], seed=1).shape == (2, 3)
    assert module.glorot_normal_initializer(dtype=module.float32) is not None
    key = module.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    assert (key, module.saved_model.tag_constants.SERVING) == ("serving_default", "serve")


def test_mb_24_adadelta_moves_as_tensorflow_1s():
    x = tf.Variable([1.0, -2.0])
    optimizer = tf.train.AdadeltaOptimizer(0.5)
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * x * [1.0, 3.0])
        optimizer.apply_gradients([(tape.gradient(loss, x), x)])
    np.testing.assert_allclose(x.numpy(), [0.99932164, -1.9993215], rtol=1e-6)


@pytest.mark.parametrize("axis", ["axis", "dim"])
def test_mb_24_the_cosine_distance_is_of_vectors_of_length_one(axis):
    labels, predictions = [[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8], [0.8, -0.6]]
    found = tf.losses.cosine_distance(labels, predictions, **{axis: 1})
    assert float(found) == pytest.approx(1.0)
    weighted = tf.losses.cosine_distance(labels, predictions, weights=[[2.0], [0.0]], **{axis: 1})
    assert float(weighted) == pytest.approx(0.8)


def test_mb_24_files_have_the_methods_of_gfile(tmp_path):
    folder = tmp_path / "a"
    tf.gfile.MkDir(dirname=folder)
    with tf.gfile.GFile(folder / "b.txt", "w") as file:
        file.write("one\ntwo\n")
        assert file.size() == 8
    with tf.gfile.FastGFile(folder / "b.txt") as file:
        file.seek(4)
        assert (file.read(3), list(file)) == ("two", ["\n"])
    tf.gfile.Copy(oldpath=folder / "b.txt", newpath=folder / "c.txt")
    assert tf.gfile.Stat(folder / "c.txt").length == 8
    assert [files for _, _, files in tf.gfile.Walk(tmp_path)][1] in (
        ["b.txt", "c.txt"],
        ["c.txt", "b.txt"],
    )
    tf.gfile.DeleteRecursively(folder)
    assert not tf.gfile.Exists(folder)


@pytest.mark.parametrize("kind", ["NONE", "GZIP"])
def test_mb_24_records_are_written_and_read_by_python_io(kind, tmp_path):
    compression = getattr(tf.python_io.TFRecordCompressionType, kind)
    options = tf.python_io.TFRecordOptions(compression)
    with tf.python_io.TFRecordWriter(tmp_path / "records", options) as writer:
        writer.write(b"one")
        writer.write(b"two\0")
    found = tf.python_io.tf_record_iterator(tmp_path / "records", options)
    assert list(found) == [b"one", b"two\0"]


def test_mb_24_the_cache_of_writers_gives_one_writer_for_a_directory(tmp_path):
    cache = tf.summary.FileWriterCache
    writer = cache.get(tmp_path)
    assert cache.get(str(tmp_path)) is writer
    cache.clear()
    assert cache.get(tmp_path) is not writer
    cache.clear()


class Assertions(tf.test.TestCase):
    def runTest(self):  # noqa: N802
        self.assertAllClose({"x": [1.0, 2.0]}, {"x": tf.constant([1.0, 2.0 + 1e-7])})
        self.assertAllEqual(self.evaluate(tf.constant([1, 2])), [1, 2])
        with pytest.raises(AssertionError):
            self.assertAllClose([1.0], [1.1])
