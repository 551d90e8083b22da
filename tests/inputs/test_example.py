"""tf.train.Example: known values, round trips, and damage that is found out."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.inputs import FixedLenFeature, VarLenFeature, encode_example, parse_example

EXAMPLE_OF_TENSORFLOW = bytes.fromhex(
    # a: the integers 1 and -1, b: the float 0.5, c: the bytes "xyz"
    "0a33"
    "0a140a0161120f1a0d0a0b01ffffffffffffffffff01"
    "0a0d0a0162120812060a040000003f"
    "0a0c0a016312070a050a0378797a"
)


def test_a_message_with_all_three_kinds_is_parsed() -> None:
    features = {
        "a": FixedLenFeature((2,), np.int64),
        "b": FixedLenFeature((), np.float32),
        "c": FixedLenFeature((3,), np.uint8),
    }
    parsed = parse_example(EXAMPLE_OF_TENSORFLOW, features)
    assert {name: value.tolist() for name, value in parsed.items()} == {
        "a": [1, -1],
        "b": 0.5,
        "c": [120, 121, 122],
    }


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.lists(st.floats(width=32, allow_nan=False), max_size=20),
    st.lists(st.text(max_size=5).filter(lambda t: not t.endswith("\0")), max_size=5),
)
def test_what_is_encoded_is_parsed_again(
    integers: list[int], floats: list[float], texts: list[str]
) -> None:
    record = encode_example(
        {"i": np.array(integers, np.int64), "f": np.array(floats, np.float32), "t": texts}
    )
    found = parse_example(
        np.frombuffer(record, np.uint8),
        {"i": VarLenFeature(np.int64), "f": VarLenFeature(np.float32), "t": VarLenFeature(str)},
    )
    assert found["i"].tolist() == integers
    assert found["f"].tolist() == floats
    assert found["t"].tolist() == texts


def test_an_image_is_its_bytes() -> None:
    image = np.arange(6, dtype=np.uint8).reshape(2, 3)
    record = encode_example({"image": image.tobytes(), "label": 3, "name": "six"})
    found = parse_example(
        record,
        {
            "image": FixedLenFeature((2, 3), np.uint8),
            "label": FixedLenFeature((), np.int32),
            "name": FixedLenFeature((), str),
        },
    )
    assert np.array_equal(found["image"], image)
    assert (found["label"].dtype, found["label"], found["name"]) == (np.int32, 3, "six")


def test_unpacked_numbers_are_read_too() -> None:
    int64_list = bytes([0x08, 5, 0x08, 7])
    feature = bytes([0x1A, len(int64_list), *int64_list])
    entry = bytes([0x0A, 1, ord("n"), 0x12, len(feature), *feature])
    features = bytes([0x0A, len(entry), *entry])
    record = bytes([0x0A, len(features), *features])
    assert parse_example(record, {"n": VarLenFeature(np.int64)})["n"].tolist() == [5, 7]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (FixedLenFeature((3,), np.int64), r"'n' must have shape \(3,\), the record has 2 values"),
        (FixedLenFeature((2,), str), "'n' is to be of dtype <U0, the record has integers"),
    ],
)
def test_a_feature_that_does_not_fit_is_named(form: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_example(encode_example({"n": [1, 2]}), {"n": form})


def test_a_missing_feature_takes_its_default_or_is_named() -> None:
    form = FixedLenFeature((2,), np.float32, default_value=0.5)
    assert parse_example(encode_example({}), {"n": form})["n"].tolist() == [0.5, 0.5]
    assert parse_example(encode_example({}), {"n": VarLenFeature(int)})["n"].shape == (0,)
    with pytest.raises(ValueError, match="feature 'n' is missing and has no default_value"):
        parse_example(encode_example({"m": 1}), {"n": FixedLenFeature((), np.int64)})


@pytest.mark.parametrize(
    ("default", "form", "expected"),
    [
        ("", FixedLenFeature((), str), ""),
        ("none", FixedLenFeature((2,), str), ["none", "none"]),
        (0, FixedLenFeature((2,), np.int64), [0, 0]),
        (False, FixedLenFeature((), bool), False),
        ([1.5, 2.5], FixedLenFeature((2,), np.float32), [1.5, 2.5]),
        (np.zeros(2), FixedLenFeature((2,), np.float32), [0, 0]),
        (np.arange(2), FixedLenFeature((3, 2), np.int64), [[0, 1]] * 3),
        (None, FixedLenFeature((0, 2), np.float32), []),
    ],
)
def test_a_default_value_is_taken_as_it_is(
    default: Any, form: FixedLenFeature, expected: Any
) -> None:
    form = replace(form, default_value=default)
    found = parse_example(encode_example({"m": 1}), {"n": form})["n"]
    assert found.tolist() == expected
    assert (found.shape, found.dtype.kind) == (form.shape, np.dtype(form.dtype).kind)


@pytest.mark.parametrize(("feature", "first", "stop"), [("a", 2, 24), ("b", 24, 39), ("c", 39, 53)])
@given(st.integers(0, 70), st.integers(0, 255))
def test_a_damaged_feature_is_parsed_or_refused_and_leaves_the_others_alone(
    feature: str, first: int, stop: int, place: int, byte: int
) -> None:
    forms = {"a": VarLenFeature(np.int64), "b": VarLenFeature(np.float32), "c": VarLenFeature(str)}
    whole = parse_example(EXAMPLE_OF_TENSORFLOW, forms)
    record = bytearray(EXAMPLE_OF_TENSORFLOW)
    # Behind its tag and its length, which tell where the next one begins.
    record[first + 2 + place % (stop - first - 2)] = byte
    try:
        found = parse_example(bytes(record), forms)
    except ValueError:
        return
    others = [name for name in forms if name != feature]
    # The damaged one may have taken another's name, and counts as the last of that name.
    is_renamed = bytes(record[first + 4 : first + 5]) in [name.encode() for name in others]
    assert all(np.array_equal(found[n], whole[n]) for n in others) or is_renamed
    assert {name: found[name].dtype.kind for name in forms} == {"a": "i", "b": "f", "c": "U"}


@pytest.mark.parametrize("byte", [0x01, 0x41, 0x7F])
def test_a_changed_value_is_what_the_bytes_say(byte: int) -> None:
    record = bytearray(EXAMPLE_OF_TENSORFLOW)
    record[-1] = record[38] = byte
    found = parse_example(
        bytes(record), {"b": VarLenFeature(np.float32), "c": FixedLenFeature((1,), str)}
    )
    assert found["b"].tolist() == [struct.unpack("<f", bytes([0, 0, 0, byte]))[0]]
    assert str(found["c"][0]) == f"xy{chr(byte)}"


def test_a_text_that_ends_with_a_nul_is_refused_and_not_cut() -> None:
    with pytest.raises(ValueError, match="ends with a NUL"):
        parse_example(encode_example({"c": "xy\0"}), {"c": FixedLenFeature((), str)})


def test_what_is_no_feature_is_named() -> None:
    with pytest.raises(TypeError, match="feature 'n' must be bytes, text or numbers, got object"):
        encode_example({"n": object()})
