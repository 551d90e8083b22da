"""The stand-in for CuPy is as strict as CuPy: what it refuses, gives and counts."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices, softmax_cross_entropy
from paceline.nn.layers import Embedding
from paceline.strategies import OneDeviceStrategy, devices

from . import list_cupy_api, strict_cupy, strict_graphs
from . import strict_cuda as cuda
from .strict_cupy import StrictArray, counted, to_device


def in_package(**names: Any) -> Any:
    """Calls code as the package would: to tests an array is more obliging."""

    def call(expression: str) -> Any:
        globals_ = {"__builtins__": builtins, "np": np, **names}
        code = compile(expression, "/paceline/somewhere.py", "eval")
        return types.FunctionType(code, globals_)()

    return call


X = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "expression",
    [
        *("np.asarray(x)", "x + h", "h + x", "np.exp(x, out=h)", "np.where(x > 0, x, h)"),
        *("np.concatenate([x, h])", "x.__setitem__((0, slice(None)), h[0])", "x.__iadd__(h)"),
        *("np.ones(3, like=x)", "np.eye(3, like=x)", "np.full(3, 1, like=x)"),
        *("np.sum(x, where=x > 0)", "np.max(x, initial=0)", "np.add(x, 1, where=x > 0)"),
        *("np.clip(x, min=0, max=1)", "np.einsum_path('ij->i', x)", "np.spacing(x)"),
        *("x.setflags(write=False)", "x.flags.writeable", "x.ctypes", "np.ufunc.at(np.exp, x, 0)"),
        *("np.multiply.at(x, 0, 2.0)", "np.add.at(i, 0, 1)", "np.maximum.reduce(x)"),
    ],
)
def test_what_cupy_does_not_have_is_refused(expression: str) -> None:
    run = in_package(x=to_device(X), h=X, i=to_device(np.arange(3)))
    with pytest.raises((TypeError, ValueError, AttributeError, NotImplementedError)):
        run(expression)


@pytest.mark.parametrize(
    "expression",
    [
        *("np.exp(x)", "x * 2", "2 - x", "np.float32(2) * x", "x @ x.T", "np.sum(x, axis=0)"),
        *("x.mean(axis=1, keepdims=True)", "np.zeros(3, like=x)", "np.asarray(h, like=x)"),
        *("np.take(x, h[0].astype(int), axis=1)", "x[:, [2, 1]]", "np.linalg.norm(x)"),
        *("np.add.reduce(x)", "np.pad(x, 1)", "np.stack([x, x])", "np.argsort(x, axis=1)"),
        *("x.sum()", "x[0, 0]", "np.max(x)", "np.allclose(x, x)", "np.unique(x)[0]"),
    ],
)
def test_what_cupy_has_gives_arrays_of_the_device(expression: str) -> None:
    found = in_package(x=to_device(X), h=X)(expression)
    assert type(found) is StrictArray
    np.testing.assert_array_equal(found, in_package(x=X, h=X)(expression.replace(", like=x", "")))


def test_indices_beyond_an_array_wrap_round() -> None:
    x = to_device(np.arange(3))
    assert x[to_device([1, 3])].get().tolist() == [1, 0]
    assert np.take(x, to_device([4, -1])).get().tolist() == [1, 2]


def test_elementwise_results_are_in_c_order_whatever_the_operands_are() -> None:
    assert (to_device(X).T * 2).flags.c_contiguous
    assert np.exp(to_device(X.T)).flags.c_contiguous


def test_a_scatter_adds_in_another_order_than_numpy() -> None:
    values = np.float32([1, 1e8, -1e8])
    at, host = np.zeros(3, int), np.zeros(1, np.float32)
    device = to_device(host)
    np.add.at(host, at, values)
    np.add.at(device, to_device(at), to_device(values))
    assert host.tolist() != device.get().tolist()


@pytest.mark.parametrize(
    ("expression", "launches", "waits"),
    [
        ("np.exp(x)", 1, 0),
        ("x.T.reshape(6)[0]", 1, 0),
        ("x[0].reshape(3, 1).T", 0, 0),
        ("x.sum() + 1", 2, 0),
        ("float(x.sum())", 1, 1),
        ("bool(x[0, 0] > 0)", 1, 1),
        ("x[x > 0]", 2, 1),
        ("np.nonzero(x)", 1, 1),
        ("x.item() if x.size == 1 else x.get()", 0, 1),
    ],
)
def test_launches_and_waits_are_counted(expression: str, launches: int, waits: int) -> None:
    with counted() as counts:
        in_package(x=to_device(X))(expression)
    assert (len(counts.launches) > 0, len(counts.waits)) == (launches > 0, waits)


def test_who_reads_on_another_stream_has_to_wait() -> None:
    copy, x = cuda.Stream(non_blocking=True), to_device(X)
    with copy:
        y = x + 1
    with pytest.raises(RuntimeError, match="without waiting"):
        y * 2
    cuda.get_current_stream().wait_event(copy.record())
    np.testing.assert_array_equal(y * 2, (X + 1) * 2)


def test_an_array_of_another_card_is_refused() -> None:
    run = in_package(x=to_device(X, 1), device=cuda.Device)
    with pytest.raises(ValueError, match="same as the current device"):
        run("x + 1")
    with cuda.Device(1):
        np.testing.assert_array_equal(run("x + 1"), X + 1)


def test_rows_of_a_sparse_gradient_are_added_up_by_sorting() -> None:
    """Not by a scatter, whose order differs from run to run; with one wait for their number."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 3))
    rows = rng.integers(0, 7, 40)
    host = IndexedSlices(values, rows, (9, 3))
    device = IndexedSlices(to_device(values), to_device(rows), (9, 3))
    with counted() as counts:
        found = in_package(s=device)("s.unique().unique()")
    assert len(counts.waits) == 1
    assert not any(".at " in launch for launch in counts.launches)
    expected = host.unique()
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-12)
    np.testing.assert_allclose(device.to_dense(), host.to_dense(), rtol=1e-12)


def test_what_only_the_host_can_refuse_is_no_number_on_a_gpu(a_card: Any) -> None:
    """Looking at class numbers would be waiting; an index beyond an axis wraps round there."""
    losses = softmax_cross_entropy(to_device(np.ones((3, 4))), to_device(np.array([0, 4, -1])))
    assert np.isnan(losses.numpy()).tolist() == [False, True, True]
    rows = OneDeviceStrategy("GPU:0").run(lambda: Embedding(4, 2)(np.array([0, 4])))
    assert np.isnan(rows.numpy()).all(axis=1).tolist() == [False, True]


KNOW_CUPY = [Path(devices.__file__).with_name(name) for name in ("gpu.py", "graphs.py")]
NAMES = {
    node.attr
    for path in KNOW_CUPY
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Attribute)
}
"""What the modules that know CuPy ask of anything."""

KINDS = {
    **{name: getattr(cuda, name) for name in ("Device", "Stream", "Event")},
    **{name: getattr(cuda, name) for name in ("MemoryPointer", "UnownedMemory")},
    **{name: getattr(strict_graphs, name) for name in ("Graph", "MemoryPool")},
}


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def listed(name: str) -> list[str]:
    """The parameters that CuPy has."""
    return list(strict_cupy._signature(strict_cupy.API["cuda"][name]).parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_events_and_memory_are_asked_for_what_cupys_have(kind: str) -> None:
    """The stand-ins have more, which only the stand-in's other parts know."""
    ours = KINDS[kind]
    assert parameters(ours) == listed(f"cuda.{kind}")[: len(parameters(ours))]
    for name in {name for name in vars(ours) if not name.startswith("_")} & NAMES:
        if callable(member := vars(ours)[name]):  # of attributes CuPy's classes do not tell
            found = parameters(member)
            assert found == listed(f"cuda.{kind}.{name}")[: len(found)], name


def test_the_stand_ins_module_of_cuda_has_names_of_cupys() -> None:
    ours = vars(strict_cupy.module(1).cuda)
    names = {f"cuda.{name}" for name in ours} - {"cuda.runtime"}
    names |= {f"cuda.runtime.{name}" for name in vars(ours["runtime"])}
    assert names <= strict_cupy.API["cuda"].keys()


@pytest.mark.slow
def test_the_list_is_what_the_installed_cupy_answers() -> None:
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    pytest.importorskip("nvidia.nccl", exc_type=ImportError)
    if cupy.__version__ != strict_cupy.API["version"]:
        pytest.skip(f"the list is of CuPy {strict_cupy.API['version']}")
    assert list_cupy_api.in_lines(list_cupy_api.everything()) == list_cupy_api.API.read_text()
