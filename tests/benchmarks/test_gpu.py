"""The benchmarks of GPUs run, small, on the stand-in for CuPy: no name in them is wrong."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ..devices import strict_cupy
from .loading import load

TORCH = {"mlp in torch", "cnn 64 in torch", "cnn 1024 in torch", "embedding in torch"}


@pytest.fixture
def gpu(a_card: Any, monkeypatch: Any) -> Any:
    monkeypatch.setitem(sys.modules, "cupy", strict_cupy.module(1))
    monkeypatch.setitem(sys.modules, "torch", None)  # with which there is nothing to do here
    return load("gpu")


@pytest.mark.filterwarnings("ignore:The input begins anew")
def test_everything_is_measured_small(gpu: Any, capsys: Any) -> None:
    found = gpu.main(["--small"])
    failed = {name: found[name]["error"] for name in gpu.MEASURES if "error" in found[name]}
    assert set(failed) == TORCH, failed
    assert all("torch" in error for error in failed.values())
    measured = [x for name in set(gpu.MEASURES) - TORCH for x in found[name].values()]
    assert all(isinstance(x, float) for x in measured)


def test_without_a_gpu_nothing_is_done_and_it_says_why(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit) as ended:
        load("gpu").main(["--why-not"])
    assert ended.value.code == 0
    assert "no CuPy" in capsys.readouterr().out
