"""Nested structures."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

from paceline.inputs import nest

Point = namedtuple("Point", ["x", "y"])


@pytest.mark.parametrize(
    ("structure", "leaves", "paths"),
    [
        (5, [5], [""]),
        (None, [None], [""]),
        ((1, 2), [1, 2], ["[0]", "[1]"]),
        ([1, [2, 3]], [1, 2, 3], ["[0]", "[1][0]", "[1][1]"]),
        ({"b": 1, "a": (2, None)}, [1, 2, None], ["['b']", "['a'][0]", "['a'][1]"]),
        (Point(1, {"k": 2}), [1, 2], [".x", ".y['k']"]),
        ((), [], []),
        ({}, [], []),
    ],
)
def test_flatten_and_paths_walk_a_structure_in_the_same_order(
    structure: Any, leaves: list[Any], paths: list[str]
) -> None:
    assert nest.flatten(structure) == leaves
    assert nest.paths(structure) == paths


def test_paths_begin_with_the_root() -> None:
    assert nest.paths({"image": 1}, "features") == ["features['image']"]


@pytest.mark.parametrize(
    "structure",
    [
        3,
        (1, 2),
        [1, (2, 3)],
        {"b": 1, "a": [2]},
        Point(1, Point(2, 3)),
        OrderedDict(b=1, a=2),
        defaultdict(list, k=1),
        (),
        {},
    ],
)
def test_map_structure_keeps_the_structure(structure: Any) -> None:
    same = nest.map_structure(lambda leaf: leaf, structure)
    assert same == structure
    assert type(same) is type(structure)
    doubled = nest.map_structure(lambda a, b: a + b, structure, structure)
    assert nest.flatten(doubled) == [2 * leaf for leaf in nest.flatten(structure)]
    assert type(doubled) is type(structure)


def test_map_structure_does_not_touch_its_argument() -> None:
    original = defaultdict(list, k=1)
    nest.map_structure(lambda leaf: leaf + 1, original)
    assert original == {"k": 1}


def test_map_structure_matches_dicts_by_key() -> None:
    assert nest.map_structure(lambda a, b: a - b, {"a": 5, "b": 7}, {"b": 1, "a": 2}) == {
        "a": 3,
        "b": 6,
    }


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ((1, 2), (1, 2, 3), "at the top: the first has a tuple of 2, another has a tuple of 3"),
        ({"a": 1}, {"b": 1}, r"keys \['a'\], another has a dict with the keys \['b'\]"),
        ((1, {"a": 2}), (1, {"a": (2,)}), r"at \[1\]\['a'\]: the first has a leaf"),
        ((1, (2,)), (1, 2), r"at \[1\]: the first has a tuple of 1, another has a leaf \(int\)"),
        ([1], (1,), "the first has a list of 1, another has a tuple of 1"),
        (Point(1, 2), (1, 2), "the first has a Point of 2, another has a tuple of 2"),
    ],
)
def test_map_structure_names_the_place_of_a_difference(
    first: Any, other: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        nest.map_structure(lambda a, b: a, first, other)


@pytest.mark.parametrize(
    ("structure", "size"),
    [
        (np.zeros((4, 2)), 4),
        (np.zeros(0), 0),
        ((np.zeros((3, 2)), np.zeros(3)), 3),
        (({"a": np.zeros(5), "b": np.zeros((5, 1))}, np.zeros(5)), 5),
        (Point(np.zeros(2), None), 2),
        ([np.zeros(2), [np.zeros(2)]], 2),
    ],
)
def test_batch_size_is_the_common_leading_dimension(structure: Any, size: int) -> None:
    assert nest.batch_size(structure) == size


@pytest.mark.parametrize(
    ("structure", "names", "message"),
    [
        (
            ({"image": np.zeros(3)}, np.zeros(4)),
            ("features", "labels"),
            r"features\['image'\] has 3 examples but labels has 4\. Give all arrays",
        ),
        ((np.zeros(3), np.zeros(4)), (), r"batch\[0\] has 3 examples but batch\[1\] has 4"),
        ({"a": np.zeros(3), "b": np.float32(1)}, ("features",), r"features\['b'\] has no leading"),
        (1.5, (), r"batch has no leading dimension \(it is a single float\)"),
        (((np.zeros(3), np.zeros(2)), np.zeros(3)), (), r"batch\[0\]\[1\] has 2"),
        ((None, None), (), "holds no array"),
        ({}, (), "holds no array"),
    ],
)
def test_batch_size_names_what_disagrees(
    structure: Any, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        nest.batch_size(structure, names)
