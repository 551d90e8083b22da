"""A map that only parses is made batch by batch, and gives what it gives one by one."""

import json
from collections import namedtuple

import numpy as np
import pytest

import paceline.compat.tf as tf
from paceline import Dataset
from paceline.inputs import nest, text_lines

NAMES = ["a", "b", "label"]
DEFAULTS = [[0], [1.5], ["none"]]
Pair = namedtuple("Pair", "x y")


def decoded(line):
    return tf.io.decode_csv(line, DEFAULTS)


def features_and_label(line):
    features = dict(zip(NAMES, decoded(line), strict=True))
    label = features.pop("label")
    return features, label


def skipping_bad_lines(line):
    try:
        return tuple(decoded(line))
    except ValueError:
        return np.int32(-1), np.float32(-1), "bad"


KNOWN = {
    "a pair": features_and_label,
    "a tuple": lambda line: tuple(decoded(line)),
    "one column": lambda line: decoded(line)[1],
    "a column twice": lambda line: (decoded(line)[0], decoded(line)[0]),
    "a namedtuple": lambda line: Pair(*decoded(line)[:2]),
    "bad lines replaced": skipping_bad_lines,
}


def with_size(line):
    features, label = features_and_label(line)
    return {**features, "c": features["a"] * 2}, label


def by_value(line):
    a, b, _ = decoded(line)
    return (a, b) if a > 1 else (a, -b)


def catching(line):
    a, b, _ = decoded(line)
    try:
        return a, b + 1
    except Exception:
        return a, b


def by_type(line):
    a, b, _ = decoded(line)
    return (a, b) if isinstance(a, tf.Tensor) else (b, a)


UNKNOWN = {
    "arithmetic": with_size,
    "a branch": by_value,
    "a caught error": catching,
    "a type": by_type,
    "a conversion": lambda line: (decoded(line)[0], tf.cast(decoded(line)[1], tf.float64)),
    "an array": lambda line: np.asarray(decoded(line)[0]),
    "a list": lambda line: decoded(line)[:1],
    "a constant": lambda line: (decoded(line)[0], 1),
    "its own text": lambda line: (decoded(line)[0], line),
    "identity of text": lambda line: decoded(line)[0] if str(line) else 0,
}

LINES = ["1,2.5,x", "2,,", ",3,long text", '4,5,"q,r"', "5,6,y", "-6,7,", "7,1e3,z"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "lines.csv"
    path.write_text("\n".join(LINES) + "\n")
    return path


def outcomes(dataset, restore_from=None):
    """Each element or error in turn, with the state after it."""
    iterator = iter(dataset)
    if restore_from is not None:
        iterator.set_state(restore_from)
    found = []
    while True:
        try:
            element = next(iterator)
        except StopIteration:
            return found
        except Exception as error:
            element = repr(error), error.__notes__
        found.append((element, json.loads(json.dumps(iterator.get_state()["elements"]))))


def assert_same(found, expected):
    assert len(found) == len(expected)
    for (element, state), (other, other_state) in zip(found, expected, strict=True):
        assert state == other_state
        for leaf, other_leaf in zip(nest.flatten(element), nest.flatten(other), strict=True):
            assert type(leaf) is type(other_leaf)
            if isinstance(leaf, np.ndarray):
                assert leaf.dtype == other_leaf.dtype
                np.testing.assert_array_equal(leaf, other_leaf)
            else:
                assert leaf == other_leaf


def one_by_one(function):
    """The same function, which nothing is known of: it looks at the line."""
    return lambda line: function(line) if len(line) < 10**6 else None


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("function", [*KNOWN.values(), *UNKNOWN.values()], ids=[*KNOWN, *UNKNOWN])
def test_batches_and_states_are_those_of_single_elements(path, function, size, drop):
    lines = text_lines(path).repeat(2)
    found = outcomes(lines.map(function).batch(size, drop))
    assert_same(found, outcomes(lines.map(one_by_one(function)).batch(size, drop)))


@pytest.mark.parametrize("bad", ["x,1,y", "1,2", '1,"2'])
@pytest.mark.parametrize("function", KNOWN.values(), ids=KNOWN)
@pytest.mark.parametrize("index", [0, 1, 3, 6])
def test_errors_name_their_line_and_leave_the_same_state(path, function, bad, index):
    lines = LINES.copy()
    lines[index] = bad
    path.write_text("\n".join(lines))
    dataset = text_lines(path)
    expected = outcomes(dataset.map(one_by_one(function)).batch(2))
    assert_same(outcomes(dataset.map(function).batch(2)), expected)


def test_a_line_that_is_no_utf8_is_an_error_at_its_place(path):
    path.write_bytes(b"1,2,a\n2,3,b\n3,4,c\n4,\xff,d\n5,6,e\n")
    lines = text_lines(path)
    expected = outcomes(lines.map(one_by_one(features_and_label)).batch(2))
    assert_same(outcomes(lines.map(features_and_label).batch(2)), expected)


def test_each_state_goes_on_with_the_rest(path):
    dataset = text_lines(path).map(features_and_label).batch(2)
    whole = outcomes(dataset)
    iterator = iter(dataset)
    for index in range(len(whole)):
        next(iterator)
        assert_same(outcomes(dataset, iterator.get_state()), whole[index + 1 :])


def test_lines_in_memory_are_parsed_in_the_order_of_a_shuffle():
    lines = Dataset.from_tensor_slices(LINES).shuffle(7, seed=1).repeat(2)
    found = outcomes(lines.map(features_and_label).shard(2, 1).batch(3))
    assert_same(found, outcomes(lines.map(one_by_one(features_and_label)).shard(2, 1).batch(3)))


@pytest.mark.parametrize("function", KNOWN.values(), ids=KNOWN)
def test_a_function_that_only_parses_is_called_for_the_first_batch(path, function):
    calls = []

    def counted(line):
        calls.append(line)
        return function(line)

    dataset = text_lines(path).map(counted).batch(2)
    assert len(list(dataset)) == 4
    assert len(calls) == 3  # and once for a placeholder
    list(dataset)
    assert len(calls) == 3


@pytest.mark.parametrize("function", UNKNOWN.values(), ids=UNKNOWN)
def test_a_function_that_uses_a_field_is_called_for_each_element(path, function):
    calls = []

    def counted(line):
        calls.append(line)
        return function(line)

    list(text_lines(path).map(counted).batch(2))
    assert len(calls) == len(LINES) + 1


def test_a_function_without_a_parser_is_called_for_elements_only(path):
    seen = []
    list(text_lines(path).map(lambda line: seen.append(line) or line).batch(2))
    assert seen == LINES


def test_components_of_a_batch_share_no_memory(path):
    for left, right in text_lines(path).map(KNOWN["a column twice"]).batch(2):
        assert not np.shares_memory(left, right)
        left[:] = 0  # and they can be written to
