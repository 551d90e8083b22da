"""Examples that are parsed together are what each of them is alone, and fail as it does."""

import numpy as np
import pytest

import paceline.compat.tf as tf
from paceline.inputs import FixedLenFeature, VarLenFeature, encode_example, nest, parse_example
from paceline.inputs import tf_records as read_records
from paceline.inputs.example_columns import parse_examples
from paceline.inputs.tfrecord import TFRecordWriter

FORMS = {
    "x": FixedLenFeature((), np.float32),
    "n": FixedLenFeature((), np.int64),
    "many": FixedLenFeature((3, 20), np.float32),
    "wide": FixedLenFeature((3,), np.int64),
    "as_float": FixedLenFeature((), np.float64),
    "missing": FixedLenFeature((), np.float32, 7.0),
    "text": FixedLenFeature((), str),
    "raw": FixedLenFeature((4,), np.uint8),
    "any": VarLenFeature(np.int64),
}


def record(rng, **changes):
    features = {
        "x": rng.normal(),
        "n": int(rng.integers(-(2**62), 2**62)),
        "many": rng.normal(size=(3, 20)),
        "wide": rng.integers(-300, 300, 3),
        "as_float": int(rng.integers(0, 200)),
        "text": "ü" * int(rng.integers(0, 150)) + "x",
        "raw": bytes(rng.integers(0, 256, 4, np.uint8)),
        "any": [1, 2],
        "not wanted": "z" * 130,
    }
    return encode_example(features | changes)


def one_by_one(records):
    rows = [parse_example(record, FORMS) for record in records]
    return {name: np.stack([row[name] for row in rows]) for name in FORMS}


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name in found:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name])


def outcome(parse, *args):
    try:
        return parse(*args)
    except Exception as error:
        return {"error": np.array(repr(error))}


def assert_same_outcome(records):
    assert_same(outcome(parse_examples, records, FORMS), outcome(one_by_one, records))


@pytest.mark.parametrize("seed", range(20))
def test_features_are_those_of_single_records(seed):
    rng = np.random.default_rng(seed)
    records = [record(rng) for _ in range(7)]
    assert_same(parse_examples(records, FORMS), one_by_one(records))


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_record_has_its_own_error(seed):
    rng = np.random.default_rng(seed)
    damaged = bytearray(record(rng))
    if seed % 2:
        damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
    else:
        del damaged[int(rng.integers(len(damaged))) :]
    records = [record(rng), bytes(damaged), record(rng)]
    assert_same_outcome(records)


@pytest.mark.parametrize(
    "change", [{"x": 1}, {"x": [1.0, 2.0]}, {"n": 1.5}, {"text": [1]}, {"any": [1]}]
)
def test_a_feature_of_another_form_has_the_error_of_its_record(change):
    rng = np.random.default_rng(0)
    records = [record(rng), record(rng, **change)]
    assert_same_outcome(records)


def test_a_map_of_records_is_parsed_by_batches(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "data.tfrecord"
    with TFRecordWriter(path) as writer:
        for _ in range(7):
            writer.write(record(rng))
    calls = []

    def parse(record):
        calls.append(record)
        features = tf.io.parse_single_example(record, FORMS)
        return features, features.pop("n")

    batches = list(read_records(path).map(parse).batch(2))
    assert len(calls) == 3  # for the first batch, and a placeholder
    singles = list(read_records(path).map(lambda r: parse(r) if len(r) else None).batch(2))
    for batch, single in zip(batches, singles, strict=True):
        for leaf, other in zip(nest.flatten(batch), nest.flatten(single), strict=True):
            assert leaf.dtype == other.dtype
            np.testing.assert_array_equal(leaf, other)
