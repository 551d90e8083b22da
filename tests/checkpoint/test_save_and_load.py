"""What is saved comes back: every dtype, shape, layout and name, and the JSON beside them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from paceline.checkpoint import CheckpointError, list_checkpoints, load, save
from paceline.checkpoint.shard import read_header

DTYPES = ["bool", "float16", "float32", "float64"] + [
    f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)
]

many_examples_in_one_directory = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
characters = st.characters(codec="utf-8")
names = st.text(characters, min_size=1).filter(lambda name: name != "__metadata__")
arrays = hnp.arrays(
    dtype=st.sampled_from(DTYPES), shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(characters),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc/"), inner),
    max_leaves=10,
)


def same_bytes(found: np.ndarray, expected: np.ndarray) -> bool:
    return (found.dtype, found.shape, found.tobytes()) == (
        expected.dtype.newbyteorder("="),
        expected.shape,
        expected.astype(expected.dtype.newbyteorder("=")).tobytes(),
    )


@many_examples_in_one_directory
@given(tensors=st.dictionaries(names, arrays, max_size=4))
def test_any_mapping_of_names_to_arrays_comes_back_bit_for_bit(
    tmp_path: Path, tensors: dict[str, np.ndarray]
) -> None:
    checkpoint = load(save(tmp_path, 1, tensors))
    assert checkpoint.names == tuple(tensors)
    found = checkpoint.arrays()
    assert list(found) == list(tensors)
    for name, array in tensors.items():
        assert same_bytes(found[name], array)
        assert same_bytes(checkpoint.read(name), array)


@many_examples_in_one_directory
@given(tensors=st.dictionaries(names, arrays, max_size=4))
def test_the_safetensors_library_reads_what_is_saved_and_arrays_are_aligned(
    tmp_path: Path, tensors: dict[str, np.ndarray]
) -> None:
    shard = os.path.join(save(tmp_path, 1, tensors), "data-00000-of-00001.safetensors")
    found = load_file(shard)
    places = read_header(shard).places
    assert found.keys() == places.keys() == tensors.keys()
    for name, array in tensors.items():
        assert same_bytes(found[name], array)
        assert places[name].offset_bytes % array.itemsize == 0


@many_examples_in_one_directory
@given(state=st.dictionaries(st.text("abc/"), json_values, max_size=4))
def test_any_json_comes_back_as_it_was(tmp_path: Path, state: dict[str, object]) -> None:
    assert load(save(tmp_path, 1, {}, state=state)).state == state


def test_random_generators_fit_into_the_state(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    path = save(tmp_path, 1, {}, state={"random": generator.bit_generator.state})
    expected = generator.random()
    resumed = np.random.default_rng()
    resumed.bit_generator.state = load(path).state["random"]
    assert resumed.random() == expected


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.arange(12.0).reshape(3, 4).T, id="transposed"),
        pytest.param(np.asfortranarray(np.arange(12.0).reshape(3, 4)), id="Fortran order"),
        pytest.param(np.arange(24)[::-2], id="negative stride"),
        pytest.param(np.broadcast_to(np.float32(3), (2, 3)), id="broadcast, read-only"),
        pytest.param(np.arange(5, dtype=">i4"), id="big-endian"),
        pytest.param(np.array(2.5), id="scalar array"),
        pytest.param(np.float32(2.5), id="NumPy scalar"),
        pytest.param(np.zeros((0, 3), np.float16), id="empty"),
        pytest.param(np.array([np.nan, -0.0, np.inf]), id="special values"),
    ],
)
def test_every_layout_is_saved_by_value(tmp_path: Path, array: np.ndarray) -> None:
    found = load(save(tmp_path, 1, {"x": array})).read("x")
    assert same_bytes(found, np.asarray(array))


def test_loaded_arrays_are_writable_and_independent(tmp_path: Path) -> None:
    checkpoint = load(save(tmp_path, 1, {"x": np.zeros(3)}))
    first = checkpoint.arrays()["x"]
    first += 1
    assert checkpoint.read("x").tolist() == [0, 0, 0]


def test_a_checkpoint_tells_what_it_holds_without_reading_tensors(tmp_path: Path) -> None:
    tensors: dict[str, np.ndarray | np.generic] = {
        "dense/kernel": np.zeros((2, 3), np.float32),
        "step": np.int64(4),
    }
    checkpoint = load(save(tmp_path, 4, tensors, state={"position": 17}))
    assert checkpoint.path == str(tmp_path / "model.ckpt-4")
    assert checkpoint.step == 4
    assert checkpoint.state == {"position": 17}
    assert checkpoint.names == ("dense/kernel", "step")
    assert checkpoint.shapes == {"dense/kernel": (2, 3), "step": ()}
    assert checkpoint.dtypes == {"dense/kernel": np.float32, "step": np.int64}
    assert repr(checkpoint).endswith("model.ckpt-4', step=4, 2 tensors)")
    with pytest.raises(AttributeError):
        checkpoint.step = 5  # type: ignore[misc]


def test_an_unknown_tensor_is_answered_with_the_nearest_names(tmp_path: Path) -> None:
    checkpoint = load(save(tmp_path, 1, {"dense/kernel": np.zeros(1), "other": np.zeros(1)}))
    with pytest.raises(CheckpointError, match=r"no tensor 'dense/kernels'; .*'dense/kernel'"):
        checkpoint.read("dense/kernels")


def test_a_checkpoint_loads_from_a_path_or_a_string_with_or_without_slash(tmp_path: Path) -> None:
    path = save(str(tmp_path), np.int64(10), {})
    assert path == str(tmp_path / "model.ckpt-10")
    for form in (path, Path(path), path + os.sep):
        assert load(form).step == 10


def test_a_checkpoint_copied_elsewhere_under_any_name_loads(tmp_path: Path) -> None:
    save(tmp_path, 10, {"x": np.ones(2)})
    (tmp_path / "model.ckpt-10").rename(tmp_path / "best")
    assert load(tmp_path / "best").read("x").tolist() == [1, 1]


def test_ck_04_names_are_exact(tmp_path: Path) -> None:
    save(tmp_path, 10, {"x": np.ones(2)})
    visible = sorted(
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*")
        if not path.name.startswith(".")
    )
    assert visible == [
        "checkpoint",
        "model.ckpt-10",
        "model.ckpt-10/data-00000-of-00001.safetensors",
        "model.ckpt-10/manifest.json",
    ]


def test_files_get_the_permissions_that_the_user_chose(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = Path(save(tmp_path / "new", 1, {"x": np.ones(2)}))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o640}


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 1, {"x": np.zeros(2)}, state={"old": True})
    checkpoint = load(save(tmp_path, 1, {"y": np.ones(2)}))
    assert checkpoint.names == ("y",)
    assert checkpoint.state == {}
    assert [step for _, step in list_checkpoints(tmp_path)] == [1]


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({"x": np.array(["a"])}, TypeError, "tensor 'x' has dtype <U1"),
        ({"x": np.array([None])}, TypeError, "tensor 'x' has dtype object"),
        ({"x": np.zeros(1, complex)}, TypeError, "dtype complex128.*one of bool, float16"),
        ({"x": [1.0]}, TypeError, "tensor 'x' must be a NumPy array .*; got list"),
        ({"": np.zeros(1)}, ValueError, "a tensor's name must be .* not empty"),
        ({"__metadata__": np.zeros(1)}, ValueError, "__metadata__"),
        ({"\udc80": np.zeros(1)}, ValueError, "a tensor's name"),
        ({3: np.zeros(1)}, ValueError, "got 3"),
    ],
)
def test_arrays_that_cannot_be_saved_are_refused_before_anything_is_written(
    tmp_path: Path, tensors: dict[str, np.ndarray], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        save(tmp_path / "new", 1, tensors)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"a": {"b": [0, np.int64(3)]}}, r"state\['a'\]\['b'\]\[1\] must be JSON"),
        ({"a": (1, 2)}, r"state\['a'\] .*got tuple"),
        ({"a": {1: 2}}, r"state\['a'\] .*string keys"),
        ({"a": float("nan")}, r"state\['a'\] .*finite"),
        ({"a": "\udc80"}, r"state\['a'\]"),
        ({"a": np.zeros(2)}, r"state\['a'\] .*save it as an array"),
    ],
)
def test_state_that_would_not_come_back_equal_is_refused_by_its_path(
    tmp_path: Path, state: dict[str, object], where: str
) -> None:
    with pytest.raises(TypeError, match=where):
        save(tmp_path / "new", 1, {}, state=state)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("step", "error"),
    [(-1, ValueError), (True, ValueError), (10**18, ValueError), (1.0, TypeError)],
)
def test_a_step_is_a_natural_number(tmp_path: Path, step: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        save(tmp_path, step, {})
