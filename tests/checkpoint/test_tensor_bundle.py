"""TensorFlow's checkpoints, read without TensorFlow; TensorFlow wrote them and what it reads."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import CheckpointError
from paceline.checkpoint.tensor_bundle import (
    is_tensor_bundle,
    latest_tensor_bundle,
    open_tensor_bundle,
)

pytestmark = pytest.mark.host

WRITTEN = Path(__file__).parents[1] / "peers" / "tensorflow_checkpoints"
NAMES = ["estimator", "partitioned", "keras"]
SUFFIXES = [".index", ".data-00000-of-00001"]


def expected(name):
    with np.load(WRITTEN / f"{name}.npz") as file:
        return {key.replace("|", "/"): file[key] for key in file.files}


def arrays_of(bundle):
    return {name: bundle.read(name) for name in bundle.names}


@pytest.mark.parametrize("name", NAMES)
def test_each_tensor_has_the_values_that_tensorflow_reads(name):
    bundle = open_tensor_bundle(WRITTEN / name)
    for key, value in expected(name).items():
        read = bundle.read(key)
        assert (read.dtype, read.shape) == (value.dtype, value.shape)
        assert np.array_equal(read, value)


def test_text_is_read_as_bytes():
    assert open_tensor_bundle(WRITTEN / "partitioned").read("words").tolist() == [
        b"a",
        b"",
        b"long word",
    ]


def test_a_variable_of_keras_goes_by_its_own_name_too():
    bundle = open_tensor_bundle(WRITTEN / "keras")
    assert {"hidden/kernel", "norm/moving_mean", "out/bias"} <= set(bundle.names)
    key = "layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    assert np.array_equal(bundle.read("hidden/kernel"), expected("keras")[key])


def test_shapes_and_dtypes_are_known_without_reading():
    bundle = open_tensor_bundle(WRITTEN / "partitioned")
    assert bundle.shapes["rows"] == (10, 3)
    assert bundle.dtypes["flags"] == np.bool_
    assert bundle.dtypes["words"].kind == "O"


@pytest.mark.parametrize(("name", "step"), [("estimator", 3), ("keras", 1), ("partitioned", 0)])
def test_the_step_is_that_of_the_checkpoint(name, step):
    assert open_tensor_bundle(WRITTEN / name).step == step


def test_what_is_read_may_be_written_to():
    array = open_tensor_bundle(WRITTEN / "estimator").read("dnn/logits/bias")
    array += 1


def test_a_prefix_may_end_with_index():
    assert open_tensor_bundle(WRITTEN / "keras.index").path == str(WRITTEN / "keras")


def test_the_newest_is_that_of_the_state_file(tmp_path):
    assert latest_tensor_bundle(tmp_path) is None
    for suffix in SUFFIXES:
        shutil.copy(WRITTEN / f"estimator{suffix}", tmp_path / f"model.ckpt-3{suffix}")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    found = latest_tensor_bundle(tmp_path)
    assert found == str(tmp_path / "model.ckpt-3")
    assert is_tensor_bundle(found)


def test_a_directory_that_was_moved_still_has_its_newest(tmp_path):
    for suffix in SUFFIXES:
        shutil.copy(WRITTEN / f"estimator{suffix}", tmp_path / f"model.ckpt-3{suffix}")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-3"\n')
    assert latest_tensor_bundle(tmp_path) == str(tmp_path / "model.ckpt-3")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(suffix, tmp_path):
    for other in SUFFIXES:
        shutil.copy(WRITTEN / f"keras{other}", tmp_path / f"piped{other}")
    (tmp_path / f"piped{suffix}").unlink()
    os.mkfifo(tmp_path / f"piped{suffix}")
    with pytest.raises(CheckpointError, match="not a regular file"):
        open_tensor_bundle(tmp_path / "piped").read("hidden/bias")


def test_a_tensor_that_is_not_there_is_refused_by_name():
    with pytest.raises(CheckpointError, match="no tensor 'dnn/kernel'"):
        open_tensor_bundle(WRITTEN / "estimator").read("dnn/kernel")


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing\.index"):
        open_tensor_bundle(tmp_path / "nothing")


def flipped(data, rng):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def cut(data, rng):
    return data[: rng.randrange(len(data))]


@pytest.mark.parametrize("damage", [flipped, cut])
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_refused_or_gives_the_same_values(name, suffix, damage, tmp_path):
    rng = random.Random(f"{name}{suffix}{damage.__name__}")
    whole = arrays_of(open_tensor_bundle(WRITTEN / name))
    for other in SUFFIXES:
        shutil.copy(WRITTEN / f"{name}{other}", tmp_path / f"damaged{other}")
    num_refused = 0
    for _ in range(60):
        data = bytearray((WRITTEN / f"{name}{suffix}").read_bytes())
        (tmp_path / f"damaged{suffix}").write_bytes(damage(data, rng))
        try:
            arrays = arrays_of(open_tensor_bundle(tmp_path / "damaged"))
        except CheckpointError:
            num_refused += 1
            continue
        assert arrays.keys() == whole.keys()
        assert all(np.array_equal(arrays[key], whole[key]) for key in whole)
    assert num_refused > 30
