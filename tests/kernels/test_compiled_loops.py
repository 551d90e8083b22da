"""Compiled loops give what NumPy gives, to the bit, and are asked for only where they pay."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from paceline import kernels
from paceline.autodiff import (
    IndexedSlices,
    Tensor,
    backward,
    conv2d,
    conv2d_relu_max_pool2d,
    dense,
    max_pool2d,
    relu,
)
from paceline.kernels import finding, loops
from paceline.nn.optimizers.rule import Rule
from paceline.nn.optimizers.rules import AdagradRule, AdamRule, RMSpropRule, SGDRule
from paceline.strategies import RuleStep

pytest.importorskip("numba", reason="compiled loops need the extra 'fast'")

DTYPES = [np.float32, np.float64]


class Case(NamedTuple):
    """`of_data`: the first array is data, without a gradient; sums may be made in another order."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    loops: set[str]
    options: Mapping[str, Any] = MappingProxyType({})
    of_data: bool = False


ROWS = np.array([[4, 0, 4], [1, 4, 0]])
ROWS.flags.writeable = False

CASES = {
    "pools of four": Case(
        conv2d_relu_max_pool2d,
        ((3, 9, 8, 1), (3, 3, 1, 8), (8,)),
        {"relu_max", "to_winner"},
    ),
    "pools of two, without bias": Case(
        conv2d_relu_max_pool2d,
        ((3, 9, 8, 5), (2, 2, 5, 3)),
        {"relu_max", "to_winner"},
        {"pool_size": (1, 2), "padding": "same"},
    ),
    "first layer": Case(
        conv2d_relu_max_pool2d,
        ((3, 9, 8, 2), (2, 2, 2, 16), (16,)),
        {"conv_relu_max", "conv_from_winner"},
        {"padding": "same", "strides": (2, 1)},
        of_data=True,
    ),
    "first layer of more products than are written out": Case(
        conv2d_relu_max_pool2d,
        ((3, 9, 8, 2), (3, 3, 2, 16)),
        {"relu_max", "to_winner"},
        of_data=True,
    ),
    "pools that overlap": Case(
        max_pool2d,
        ((3, 9, 8, 4),),
        {"max_pool", "add_to_winner"},
        {"pool_size": (3, 2), "strides": (2, 1), "padding": "same"},
    ),
    "pools side by side": Case(max_pool2d, ((3, 9, 8, 4),), {"max_pool", "add_to_winner"}),
    "convolution and relu": Case(
        conv2d,
        ((3, 9, 8, 5), (2, 2, 5, 3), (3,)),
        {"keep_positive"},
        {"activation": "relu"},
    ),
    "dense layer and relu": Case(
        dense, ((7, 5), (5, 6), (6,)), {"keep_positive"}, {"activation": "relu"}
    ),
    "relu": Case(relu, ((7, 5),), {"keep_positive"}),
    "rows of a table that occur again": Case(
        lambda table: np.take(table, ROWS, axis=0).sum(axis=-1) * 2, ((5, 3),), {"add_rows"}
    ),
}


def arrays_of(case: Case, dtype: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, shape).astype(dtype) / 4 for shape in case.shapes]


def results(case: Case, arrays: list[np.ndarray], g: Any = None) -> list[np.ndarray]:
    """The result and all gradients."""
    leaves = [Tensor(array, requires_grad=True) for array in arrays]
    if case.of_data:
        leaves[0] = Tensor(arrays[0])
    y = case.function(*leaves, **case.options)
    rng = np.random.default_rng(1)
    seed = rng.standard_normal(y.shape).astype(y.dtype)
    found = backward(y, seed)
    gradients = [found[leaf] for leaf in leaves if leaf.requires_grad]
    return [y.data, *(g.to_dense() if isinstance(g, IndexedSlices) else g for g in gradients)]


class Noting(dict):
    """The loops that were compiled so far; which of them were asked for since."""

    def __init__(self, loops: Mapping[Any, Any]) -> None:
        super().__init__(loops)
        self.names: set[str] = set()

    def __getitem__(self, key: Any) -> Any:
        self.names.add(key[0])
        return super().__getitem__(key)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the loops that were asked for."""
    noting = Noting(finding._loops)
    monkeypatch.setattr(finding, "_loops", noting)
    return noting.names


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_numpy_to_the_bit(name: str, dtype: Any, asked: set[str]) -> None:
    case = CASES[name]
    arrays = arrays_of(case, dtype)
    with kernels.compiled_from(math.inf):
        by_numpy = results(case, arrays)
    assert not asked
    with kernels.compiled_from(0):
        compiled = results(case, arrays)
    assert asked == case.loops
    for index, (got, expected) in enumerate(zip(compiled, by_numpy, strict=True)):
        assert got.dtype == expected.dtype
        digits = 10 * np.finfo(dtype).eps * abs(expected).max() if case.of_data and index else 0
        np.testing.assert_allclose(got, expected, rtol=0, atol=digits)


RULES: list[tuple[str, Rule]] = [
    ("sgd", SGDRule()),
    ("momentum", SGDRule(momentum=0.9)),
    ("nesterov", SGDRule(momentum=0.9, nesterov=True, weight_decay=0.1)),
    ("adam", AdamRule(use_ema=True)),
    ("adagrad", AdagradRule()),
    ("rmsprop", RMSpropRule()),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_updates_are_those_of_numpy_to_the_bit(
    name: str, rule: Rule, dtype: Any, asked: set[str]
) -> None:
    found = []
    for size in (math.inf, 0):
        rng = np.random.default_rng(0)
        value = rng.standard_normal(99).astype(dtype)
        slots = [np.full_like(value, initial or 0.0) for initial in rule.slots().values()]
        with kernels.compiled_from(size):
            for step in range(1, 4):
                gradient = rng.standard_normal(99).astype(dtype)
                rule.update(value, gradient, slots, 0.1, step)
        found.append([value, *slots])
    assert asked == {name}
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("rule", [rule for _, rule in RULES], ids=[name for name, _ in RULES])
def test_an_update_as_a_whole_has_the_bits_of_one_in_blocks(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    value, gradient = rng.standard_normal((2, 10**5)).astype(np.float32)
    found = []
    for size in (math.inf, 0):
        changed = [value.copy(), *(np.full_like(value, n or 0.0) for n in rule.slots().values())]
        with kernels.compiled_from(size):
            RuleStep(rule, 0.1, 1).change(changed[0], gradient, changed[1:])
            plain = not (rule.use_ema or rule.weight_decay)
            assert rule.is_one_pass(value, gradient, changed[1:]) == (plain and size == 0)
        found.append(changed)
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_number_and_what_is_infinite_come_out_as_in_numpy(name: str) -> None:
    case = CASES[name]
    arrays = arrays_of(case, np.float32)
    for step, value in ((29, np.nan), (11, np.inf), (13, -np.inf)):
        arrays[0].reshape(-1)[3::step] = value
    found = []
    for size in (0, math.inf):
        with kernels.compiled_from(size), np.errstate(all="ignore"):
            inputs = [Tensor(arrays[0], requires_grad=not case.of_data), *arrays[1:]]
            found.append(case.function(*inputs, **case.options).data)
    assert not np.isfinite(found[0]).all()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("row", [-1, 5])
def test_rows_outside_of_a_table_are_numpys_affair(row: int) -> None:
    slices = IndexedSlices(np.ones((2, 3)), np.array([0, row]), (5, 3))
    with kernels.compiled_from(0):
        if row < 0:
            assert slices.to_dense()[-1].tolist() == [1, 1, 1]
        else:
            with pytest.raises(IndexError):
                slices.to_dense()


@pytest.mark.parametrize("name", ["pools of four", "first layer"])
def test_replicas_in_threads_get_the_same_numbers_at_once(name: str) -> None:
    case = CASES[name]
    arrays = arrays_of(case, np.float32)
    with kernels.compiled_from(0), ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: results(case, arrays), range(16)))
    for one in found:
        for got, expected in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(got, expected)


def test_the_loops_are_plain_python_too() -> None:
    rng = np.random.default_rng(0)
    cells = rng.integers(-3, 4, (4, 2, 3, 5)).astype(np.float32)
    bias = np.arange(5, dtype=np.float32) - 2
    y = np.zeros((3, 6, 2, 5), np.float32)
    found = []
    with kernels.compiled_from(0):
        compiled_loop = kernels.compiled_loop("relu_max", cells, bias, y, constants=(4,))
    assert compiled_loop is not None
    for loop in (loops.relu_max(4), compiled_loop):
        y, winner = np.zeros((3, 6, 2, 5), np.float32), np.zeros((6, 2, 3, 5), np.uint8)
        loop(cells, bias, y, winner, 1)
        found.append((y, winner))
    for by_python, compiled in zip(*found, strict=True):
        np.testing.assert_array_equal(by_python, compiled)


def test_images_that_may_only_be_read_are_a_first_layers_input() -> None:
    case = CASES["first layer"]
    arrays = arrays_of(case, np.float32)
    with kernels.compiled_from(0):
        expected = results(case, arrays)
        for array in arrays:
            array.flags.writeable = False
        for got, before in zip(results(case, arrays), expected, strict=True):
            np.testing.assert_array_equal(got, before)


@pytest.mark.parametrize(
    "arrays",
    [
        (np.zeros(2**15 - 1, np.float32),),
        (np.zeros(2**15, np.float16),),
        (np.zeros(2**15, np.int64),),
        (np.zeros(2**15, np.float32), np.zeros(1, np.float64)),
        (np.zeros(2**15, np.float32), [0.0]),
        (np.ma.zeros(2**15),),
        (np.zeros(2**16, np.float32)[::2],),
        (np.zeros((2, 2**15), np.float32),),
    ],
    ids=[
        *("small", "half precision", "whole numbers", "two dtypes", "a list", "another class"),
        *("not contiguous", "two axes"),
    ],
)
def test_numpy_goes_on_by_itself_where_no_loop_fits(arrays: tuple[Any, ...]) -> None:
    fits = np.zeros(2**15, np.float32)
    given = [*arrays, fits][:2]
    assert kernels.compiled_loop("sgd", *given) is None
    assert kernels.compiled_loop("sgd", fits, fits) is not None


def test_a_loop_that_cannot_be_compiled_is_told_of_once_and_numpy_computes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(finding, "_loops", {})
    monkeypatch.setitem(sys.modules, "paceline.kernels.compiling", None)
    monkeypatch.delattr(kernels, "compiling", raising=False)
    case = CASES["pools of four"]
    arrays = arrays_of(case, np.float32)
    with kernels.compiled_from(0), caplog.at_level(logging.WARNING, "paceline"):
        first, again = results(case, arrays), results(case, arrays)
        assert "NumPy only" in kernels.describe()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2  # one for each of the two loops
    assert all("NumPy computes instead" in line for line in told)
    for got, expected in zip(first, again, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_where_nothing_can_be_written_loops_are_compiled_for_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba.core.caching import CacheImpl

    from paceline.kernels import compiling

    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    g = np.array([1, 2, 3], np.float32)
    compiling.compile_loop("keep_positive", "f", ())(g, np.float32([1, 0, -1]))
    assert g.tolist() == [1, 0, 0]
    assert "NUMBA_CACHE_DIR" in compiling.cache_directory()


def test_a_convolution_is_compiled_with_the_widest_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.caching import CacheImpl

    from paceline.kernels import compiling

    monkeypatch.setattr(CacheImpl, "_locator_classes", [])  # of what is cached no text is left
    loop: Any = compiling.compile_loop("conv_relu_max", "f", (1, 1, 1, 1, 1, 1, 1, 16))
    (text,) = loop.inspect_llvm().values()
    assert '"prefer-vector-width"="512"' in text
