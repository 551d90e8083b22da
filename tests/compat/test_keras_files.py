"""Files of Keras's cache: found, checked, and named where they are missing."""

import gzip
import hashlib
import struct

import numpy as np
import pytest

import paceline.compat.tf as tf


def test_mb_24_get_file_finds_a_file_of_the_cache_and_checks_it(tmp_path):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "a.csv").write_bytes(b"1,2")
    for kind in ("md5", "sha256"):
        found = tf.keras.utils.get_file(
            origin="https://example.org/a.csv",
            file_hash=hashlib.new(kind, b"1,2").hexdigest(),
            cache_dir=tmp_path,
        )
        assert found == str(tmp_path / "datasets" / "a.csv")
    with pytest.raises(ValueError, match="must have the md5"):
        tf.keras.utils.get_file("a.csv", md5_hash="0" * 32, cache_dir=tmp_path)


def test_mb_24_a_missing_file_is_named_with_its_place(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"datasets/b\.csv: nothing is downloaded"):
        tf.keras.utils.get_file("b.csv", "https://example.org/b.csv", cache_dir=tmp_path)


def test_mb_24_fashion_mnist_is_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".keras" / "datasets" / "fashion-mnist"
    folder.mkdir(parents=True)
    images = np.arange(2 * 28 * 28).astype(np.uint8).reshape(2, 28, 28)
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", np.uint8([3, 9]))):
            head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            with gzip.open(folder / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(head + array.tobytes())
    (x, y), (x_test, y_test) = tf.keras.datasets.fashion_mnist.load_data()
    np.testing.assert_array_equal(x, images)
    assert (y.tolist(), y.dtype, x_test.shape, y_test.shape) == (
        [3, 9],
        np.uint8,
        (2, 28, 28),
        (2,),
    )
