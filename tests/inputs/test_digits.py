"""IN-22: the tutorial's data source, offline."""

from __future__ import annotations

import gzip
import logging
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.inputs import TensorSpec, load

scikit_learn = pytest.mark.skipif(not find_spec("sklearn"), reason="needs scikit-learn")


def write_idx(path: Path, values: np.ndarray) -> None:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    content = header + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder: Path, num_labels: int = 3) -> None:
    write_idx(folder / "train-images-idx3-ubyte", np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256)
    write_idx(folder / "train-labels-idx1-ubyte", np.arange(num_labels))
    write_idx(folder / "t10k-images-idx3-ubyte.gz", np.full((2, 28, 28), 7))
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.array([9, 8]))


def test_in_22_load_gives_splits_and_info_as_tfds_does(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    datasets, info = load("mnist", data_dir=tmp_path, with_info=True, as_supervised=True)
    assert list(datasets) == ["train", "test"]
    image, label = next(iter(datasets["train"].skip(1)))
    assert (image.shape, image.dtype, int(image[0, 1, 0])) == ((28, 28, 1), np.uint8, 785 % 256)
    assert (label.dtype, int(label)) == (np.int64, 1)
    assert [int(label) for _, label in datasets["test"]] == [9, 8]
    assert {name: split.num_examples for name, split in info.splits.items()} == {
        "train": 3,
        "test": 2,
    }
    assert info.features["image"] == TensorSpec((28, 28, 1), np.dtype(np.uint8))
    assert info.features["label"].num_classes == 10


def test_in_22_one_split_several_or_dicts(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    test = load("mnist", data_dir=tmp_path, split="test")
    assert next(iter(test)).keys() == {"image", "label"}
    both = load("fashion_mnist", data_dir=tmp_path, split=["test", "train"])
    assert [dataset.cardinality() for dataset in both] == [2, 3]


@scikit_learn
def test_in_22_digits_come_with_scikit_learn() -> None:
    datasets, info = load("digits", with_info=True, as_supervised=True)
    assert [split.num_examples for split in info.splits.values()] == [1500, 297]
    (images, labels), *_ = datasets["train"].batch(1500)
    assert (images.shape, images.max()) == ((1500, 8, 8, 1), 16)
    assert set(labels.tolist()) == set(range(10))


@scikit_learn
def test_in_22_mnist_without_a_folder_is_the_digits_in_its_shape_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="paceline"):
        test = load("mnist", split="test", as_supervised=True)
    assert "instead of MNIST it gives the 1797 digits" in caplog.text
    (images, _), *_ = test.batch(297)
    assert (images.shape, images.dtype, images.max()) == ((297, 28, 28, 1), np.uint8, 255)
    ((small, _),) = load("digits", split="test", as_supervised=True).batch(297)
    assert np.array_equal(images[:, 2:-2:3, 2:-2:3], small.astype(int) * 255 // 16)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        ("cifar10", {}, ValueError, "name must be 'digits' or 'mnist' where no data_dir is given"),
        ("mnist", {"data_dir": "."}, FileNotFoundError, "has neither train-images-idx3-ubyte nor"),
        ("mnist", {"split": "train[:9]"}, ValueError, r"split must be one of \['train', 'test'\]"),
    ],
)
def test_what_cannot_be_loaded_is_named(
    name: str,
    arguments: dict[str, Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "split" in arguments:
        write_mnist(tmp_path)
        arguments = {"data_dir": tmp_path, **arguments}
    with pytest.raises(error, match=message):
        load(name, **arguments)


def test_images_and_labels_that_differ_in_number_are_named(tmp_path: Path) -> None:
    write_mnist(tmp_path, num_labels=4)
    with pytest.raises(ValueError, match=r"images-idx3-ubyte has 3 images but .*ubyte 4 labels"):
        load("mnist", data_dir=tmp_path)
