"""What the tests of `inputs` share: saving at every element, and no leaked thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.inputs import nest


def _as_plain(structure: Any) -> Any:
    """Values, shapes and dtypes in a form that `==` compares and pytest prints well."""
    return nest.map_structure(
        lambda leaf: leaf if leaf is None else (str(leaf.dtype), leaf.shape, leaf.tolist()),
        structure,
    )


def _assert_same_elements(found: Any, expected: Any) -> None:
    assert [_as_plain(e) for e in found] == [_as_plain(e) for e in expected]


def _assert_resumes_from_every_element(make: Callable[[], Any]) -> None:
    """Saves before each element, restores into a new iterator of a new dataset, compares the rest.

    The state makes the round trip through JSON, and is restored into an unused iterator as well as
    into one that stands elsewhere.
    """
    iterator = iter(make())
    states, elements = [iterator.get_state()], []
    for element in iterator:
        elements.append(element)
        states.append(iterator.get_state())
    used = iter(make())
    for position, state in enumerate(states):
        saved = json.loads(json.dumps(state))
        fresh = iter(make())
        for resumed in (fresh, used):
            resumed.set_state(saved)
            assert json.loads(json.dumps(resumed.get_state())) == saved
        _assert_same_elements(list(fresh), elements[position:])
        _assert_same_elements(list(used)[:2], elements[position : position + 2])
    used.close()


@pytest.fixture(scope="session")
def assert_resumes_from_every_element() -> Callable[[Callable[[], Any]], None]:
    return _assert_resumes_from_every_element


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Stricter than the suite's fixture of this name: neither waits nor collects garbage."""
    before = threading.enumerate()
    yield
    assert threading.enumerate() == before


@pytest.fixture
def images() -> np.ndarray:
    return np.arange(10 * 4, dtype=np.float32).reshape(10, 2, 2, 1)
