"""Elementwise arithmetic is one kernel on a GPU, with the numbers that it gives on the host."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.autodiff import (
    at_once,
    cross_entropy,
    fused,
    fusion,
    gelu,
    indexed_slices,
    random_factors,
    random_normal,
    special,
)
from paceline.nn.optimizers.rules import RULES
from paceline.strategies import RuleStep

from . import strict_cupy
from .cupy_on_host import HostKernels
from .strict_cupy import StrictArray, counted, to_device

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3)).astype("f"), RNG.normal(size=3).astype("f")

ELEMENTWISE = [
    *({"name": name} for name, rule in RULES.items() if rule.is_elementwise),
    {"name": "sgd", "momentum": 0.9},
    {"name": "sgd", "momentum": 0.9, "nesterov": True},
    {"name": "adam", "amsgrad": True},
    {"name": "adam", "use_ema": True},
    {"name": "adam", "use_ema": True, "ema_overwrite_frequency": 2},
    {"name": "rmsprop", "centered": True, "momentum": 0.5},
    {"name": "ftrl", "l1_regularization_strength": 0.1, "learning_rate_power": -0.3},
    {"name": "ftrl", "l2_shrinkage_regularization_strength": 0.1, "beta": 0.2},
]


def arrays_of(rule: Any, dtype: str, size: int = 23) -> list[np.ndarray]:
    """A value, a gradient and the slots."""
    starts = [0.5 if start is None else start for start in rule.slots().values()]
    of_numbers = [RNG.normal(size=size) for _ in range(2)]
    return [np.array(x, dtype) for x in (*of_numbers, *(np.full(size, x) for x in starts))]


@pytest.mark.parametrize("dtype", ["f", "d", "e"])
@pytest.mark.parametrize("numbers", ELEMENTWISE, ids=str)
def test_an_update_by_any_elementwise_rule_is_one_kernel(
    numbers: dict[str, Any], dtype: str
) -> None:
    rule = RULES[numbers["name"]](**{k: v for k, v in numbers.items() if k != "name"})
    host = arrays_of(rule, dtype)
    device = [to_device(array) for array in host]
    with np.errstate(all="ignore"):
        for step in (1, 2, 3):
            how = RuleStep(rule, 0.1 / step, step)
            how.change(host[0], host[1], host[2:])
            with counted() as counts:
                how.change(device[0], device[1], device[2:])
            assert len(counts.launches) == 1, counts.launches
            assert not counts.waits + counts.uploads
    for one, other in zip(device, host, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("numbers", ELEMENTWISE, ids=str)
def test_an_update_that_a_card_decides_on_is_one_kernel_that_changes_all_or_no_bit(
    numbers: dict[str, Any],
) -> None:
    rule = RULES[numbers["name"]](**{k: v for k, v in numbers.items() if k != "name"})
    host = arrays_of(rule, "f")
    device = [to_device(array) for array in host]
    for step, is_made in enumerate((True, False, True), start=1):
        if is_made:
            RuleStep(rule, 0.1, step).change(host[0], host[1], host[2:])
        with counted() as counts:
            how = RuleStep(rule, 0.1, step, where=to_device(np.array(is_made)))
            how.change(device[0], device[1], device[2:])
        assert len(counts.launches) == 1, counts.launches
        assert not counts.waits + counts.uploads
        for one, other in zip(device, host, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def host_kernels(tmp_path_factory: Any) -> HostKernels:
    """CuPy's own kernels, where CuPy is installed, with a GPU or without one."""
    pytest.importorskip("cupy", exc_type=ImportError)
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    return HostKernels(compiler, Path(tmp_path_factory.mktemp("kernels")))


@pytest.mark.slow
@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("numbers", ELEMENTWISE, ids=str)
def test_what_cupy_makes_of_an_update_computes_the_same(
    numbers: dict[str, Any], decided: bool, host_kernels: HostKernels, monkeypatch: Any
) -> None:
    """The C++ that CuPy writes, compiled for the host.

    Powers differ from NumPy's in the last digit, and rules take differences of them: what counts is
    the largest number.
    """
    rule = RULES[numbers["name"]](**{k: v for k, v in numbers.items() if k != "name"})
    host = arrays_of(rule, "f")
    device = [to_device(array) for array in host]
    monkeypatch.setattr(fusion, "library", lambda array: host_kernels)
    made, left = (to_device(np.array(is_made)) if decided else None for is_made in (True, False))
    for step in (1, 2, 3):
        RuleStep(rule, 0.1 / step, step).change(host[0], host[1], host[2:])
        for where in (left, made) if decided else (made,):
            how = RuleStep(rule, 0.1 / step, step, where=where)
            how.change(device[0], device[1], device[2:])
    for one, other in zip(device, host, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-7 * np.abs(other).max())


def whole_numbers(*values: int) -> Any:
    return np.array(values).reshape(-1, 1)


IMAGES, OTHERS = RNG.normal(size=(2, 4, 3)).astype("f")
WINNERS = np.array([[0], [1], [2], [9]], "u1") + np.zeros((4, 3), "u1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (partial(at_once._best, 3), (IMAGES, WINNERS, OTHERS, IMAGES + 1)),
        (partial(at_once._put, 1), (IMAGES, WINNERS, OTHERS.copy(), OTHERS.copy())),
        (partial(at_once._add, 1), (IMAGES.copy(), OTHERS, WINNERS, OTHERS, WINNERS)),
        (cross_entropy._weights_and_label, (IMAGES, IMAGES[:, :1], whole_numbers(0, 1, 2, 3), Y)),
        (partial(cross_entropy._loss, 3), (IMAGES, OTHERS, whole_numbers(0, 1, 2, 3))),
        (indexed_slices._add_same, (IMAGES.copy(), OTHERS, OTHERS, WINNERS, WINNERS[::-1])),
        (lambda x: special.erf(x * 2.0), (IMAGES,)),
        (lambda x: special.erf(x * 2.0), (IMAGES.astype("d"),)),
    ],
    ids=str,
)
def test_what_cupy_makes_of_other_functions_computes_the_same(
    function: Any, arrays: Any, host_kernels: HostKernels, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fusion, "library", lambda array: host_kernels)
    host, device = [x.copy() for x in arrays], [to_device(x) for x in arrays]
    with np.errstate(all="ignore"):
        expected, found = function(*host), fused(function, *device)
    pairs = list(zip(host, device, strict=True))
    pairs += [(expected, found)] if isinstance(expected, np.ndarray) else []
    pairs += zip(expected, found, strict=True) if isinstance(expected, tuple) else []
    for one, other in pairs:
        assert other.dtype == one.dtype
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_what_cupy_makes_of_random_numbers_are_the_same_numbers(
    dtype: str, host_kernels: HostKernels, monkeypatch: Any
) -> None:
    like = to_device(np.zeros(1, dtype))
    runs = []
    for library in (fusion.library, lambda array: host_kernels):
        monkeypatch.setattr(fusion, "library", library)
        rngs = [np.random.default_rng(0) for _ in "ab"]
        runs.append(
            (
                random_factors(rngs[0], 0.3, (50, 20), like),
                random_normal(rngs[1], 2.0, (50, 20), like),
            )
        )
    (kept, normal), (by_cupy, normal_by_cupy) = runs
    np.testing.assert_array_equal(by_cupy, kept)
    np.testing.assert_allclose(normal_by_cupy, normal, rtol=1e-4, atol=1e-5)


def test_an_update_that_does_nothing_asks_for_nothing() -> None:
    """FTRL passes over a learning rate of zero, the start of a warm-up."""
    rule = RULES["ftrl"]()
    device = [to_device(array) for array in arrays_of(rule, "f")]
    with counted() as counts:
        RuleStep(rule, 0.0, 1).change(device[0], device[1], device[2:])
    assert not counts.launches


def _in_place(x: Any) -> None:
    x *= 2
    x[...] = np.sqrt(x * x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x + y, np.exp(x)),
        lambda x, y: np.where(x > y, x, -1.0),
        lambda x, y: np.clip(x, -1, 1).astype(np.float64) - y,
        lambda x, y: x.astype(np.float16) if x.dtype == np.float32 else x,
        lambda x, y: 1 - (x.copy() ** 2) / np.maximum(np.abs(y), 1),
    ],
)
def test_any_elementwise_function_gives_what_it_gives_on_the_host(function: Any) -> None:
    with counted() as counts:
        found = fused(function, to_device(X), to_device(Y))
    assert len(counts.launches) == 1
    expected = function(X, Y)
    assert type(found) is type(expected) or type(found) is StrictArray
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_bfloat16_is_not_fused_and_has_the_dtypes_that_it_has_on_the_host() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = X.astype(ml_dtypes.bfloat16)
    with counted() as counts:
        found = fused(lambda x: (x + x, np.exp(x * 2.0)), to_device(x))
    assert [y.dtype for y in found] == [(x + x).dtype, np.exp(x * 2.0).dtype]
    assert not [launch for launch in counts.launches if launch.startswith("fuse")]


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_bfloat16_is_one_kernel_in_float32_which_the_host_gives_too(
    approximate: bool,
) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = X.astype(ml_dtypes.bfloat16)
    with counted() as counts:
        found = gelu(to_device(x), approximate)
    names = [name.split()[0].split(":")[0] for name in counts.launches]
    assert names == ["astype", "fuse", "astype"]
    expected = gelu(x, approximate)
    assert found.dtype == expected.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0.02, atol=1e-3)


def test_numbers_are_arguments_of_one_kernel(monkeypatch: Any) -> None:
    made = []

    def fuse(kernel_name: str) -> Any:
        made.append(kernel_name)
        return lambda function: function

    monkeypatch.setattr(strict_cupy, "fuse", fuse)
    for rate in (0.125, 0.25, 0.5):
        found = fused(lambda x, rate=rate: np.cbrt(x * rate), to_device(Y))
        np.testing.assert_array_equal(found, np.cbrt(Y * rate))
    assert made == ["paceline_multiply_cbrt"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(),
        lambda x: x.shape,
        lambda x: np.float64(2) * x,
        lambda x: np.add.reduce(x),
        lambda x: np.cumsum(x),
        lambda x: x[0],
        lambda x: np.clip(x, 0, 1).dtype,
        lambda x: np.add(x, 1, dtype="d"),
        lambda x: np.modf(x),
        lambda x: x.__setitem__(0, 1),
        lambda x: x if x > 0 else -x,
    ],
)
def test_what_cannot_be_fused_is_refused(function: Any) -> None:
    with pytest.raises((TypeError, AttributeError, IndexError)):
        fused(function, to_device(Y))


def test_numbers_alone_would_widen_an_array_so_the_stand_in_does() -> None:
    """As `cupy.fuse` does; `fused` computes with numbers on the host and never meets it."""
    found = strict_cupy.fuse("f")(lambda x, a, b: x * (a + b))(to_device(Y), 0.5, 0.25)
    assert found.dtype == np.float64
    assert fused(lambda x: x * (0.5 + 0.25), to_device(Y)).dtype == np.float32
