"""`tf.data` as scripts of TensorFlow call it: datasets of files, and what writes them."""

import numpy as np
import pytest

import paceline.compat.tf as tf


def records(dataset):
    return [bytes(record) for record in dataset]


@pytest.fixture
def names(tmp_path):
    """Two TFRecord files of two records each."""
    paths = [str(tmp_path / name) for name in ("a.tfrecord", "b.tfrecord")]
    for path in paths:
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(path[-10:-9].encode())
            writer.write(b"end")
    return paths


@pytest.mark.parametrize(
    "spelled",
    [list, tf.constant, np.array, tf.data.Dataset.from_tensor_slices],
)
def test_names_of_record_files_are_a_list_a_tensor_or_a_dataset(names, spelled):
    dataset = tf.data.TFRecordDataset(filenames=spelled(names))
    assert records(dataset) == [b"a", b"end", b"b", b"end"]


@pytest.mark.parametrize("spelled", [str, str.encode, tf.constant, np.array])
def test_the_name_of_a_text_file_is_text_bytes_or_a_tensor(tmp_path, spelled):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    dataset = tf.data.TextLineDataset(spelled(str(tmp_path / "a.txt")))
    assert [str(line) for line in dataset] == ["one", "two"]


def test_record_files_are_read_with_tensorflow_s_hints(names):
    hints = {"compression_type": "", "buffer_size": 1 << 20, "num_parallel_reads": 2}
    assert records(tf.data.TFRecordDataset(names, **hints)) == [b"a", b"end", b"b", b"end"]


def test_packed_files_need_no_name_that_says_so(tmp_path):
    path = str(tmp_path / "packed")
    with tf.io.TFRecordWriter(path, options="GZIP") as writer:
        writer.write(b"record")
    assert records(tf.data.TFRecordDataset(path, compression_type="GZIP")) == [b"record"]
    with pytest.raises(ValueError, match="packed, record 0: the checksum"):
        records(tf.data.TFRecordDataset(path))


@pytest.mark.parametrize("kind", [tf.data.TFRecordDataset, tf.data.TextLineDataset])
def test_another_compression_is_refused_by_name(names, kind):
    with pytest.raises(ValueError, match=r'compression_type must be "GZIP".*got \'ZLIB\''):
        kind(names, compression_type="ZLIB")


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_the_experimental_writer_writes_a_dataset(tmp_path, compression):
    path = str(tmp_path / "out")
    dataset = tf.data.Dataset.from_tensor_slices(np.array(["ä", "b"]))
    tf.data.experimental.TFRecordWriter(path, compression).write(dataset)
    found = tf.data.TFRecordDataset(path, compression)
    assert records(found) == ["ä".encode(), b"b"]
    tf.data.experimental.TFRecordWriter(path + "2").write(found)
    assert records(tf.data.TFRecordDataset(path + "2")) == ["ä".encode(), b"b"]


def test_the_structure_of_a_dataset_is_that_of_its_iterator():
    dataset = tf.data.Dataset.range(3)
    expected = tf.TensorSpec((), tf.int64)
    for either in (dataset, iter(dataset)):
        assert tf.data.experimental.get_structure(dataset_or_iterator=either) == expected


@pytest.mark.parametrize("shape", [None, (), []])
def test_the_spec_of_a_dataset_is_that_of_one(shape):
    spec = tf.data.DatasetSpec(tf.TensorSpec((), tf.int64), dataset_shape=shape)
    assert spec == tf.data.Dataset.range(4).window(2).element_spec
    with pytest.raises(
        ValueError, match=r"dataset_shape must be \(\), for one dataset, got \(2,\)"
    ):
        tf.data.DatasetSpec(spec.element_spec, [2])


@pytest.mark.parametrize("log_warning", [True, False])
def test_errors_are_ignored_with_or_without_tensorflow_s_hint(log_warning, caplog):
    dataset = tf.data.Dataset.range(3).map(lambda n: 6 // int(n))
    for ignoring in (
        dataset.ignore_errors(log_warning=log_warning),
        dataset.apply(tf.data.experimental.ignore_errors(log_warning)),
    ):
        assert list(ignoring) == [6, 3]


class Frame(dict):
    """What pandas' DataFrame is here: columns by their names, and two dimensions."""

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.asarray(column, object) for column in self.values()], 1)


@pytest.mark.parametrize("is_frame", [True, False])
def test_a_data_frame_becomes_a_dict_of_its_columns(is_frame):
    columns = Frame(age=np.array([30.0, 40.0]), sex=np.array(["f", "m"]))
    y = Frame(target=np.array([0, 1])) if is_frame else np.array([0, 1])
    input_fn = tf.estimator.inputs.pandas_input_fn(x=columns, y=y, batch_size=2, shuffle=False)
    ((features, labels),) = input_fn()
    assert {name: column.tolist() for name, column in features.items()} == {
        "age": [30.0, 40.0],
        "sex": ["f", "m"],
    }
    assert (labels["target"] if is_frame else labels).tolist() == [0, 1]
