"""The benchmarks of GPUs run, small, on the stand-in for CuPy: no name in them is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..devices import strict_cupy
from .loading import load


@pytest.fixture
def gpu(a_card: Any, monkeypatch: Any) -> Any:
    monkeypatch.setitem(sys.modules, "cupy", strict_cupy.module(1))
    monkeypatch.setitem(sys.modules, "torch", None)  # with which there is nothing to do here
    return load("gpu")


@pytest.mark.filterwarnings("ignore:The input begins anew")
def test_everything_is_measured_small(gpu: Any, capsys: Any, tmp_path: Path) -> None:
    figures = tmp_path / "gpu.json"
    found = gpu.main(["--small", "--json", str(figures)])
    assert json.loads(figures.read_text()) == found
    failed = {name: found[name]["error"] for name in gpu.MEASURES if "error" in found[name]}
    assert set(failed) == {n for n in gpu.MEASURES if n.endswith(("torch", "kernels"))}, failed
    assert all("torch" in error for error in failed.values())
    measured = [x for name in set(gpu.MEASURES) - set(failed) for x in found[name].values()]
    assert all(isinstance(x, float) for x in measured)
    printed = capsys.readouterr().out
    assert all(f"\n{text} " in printed for text, *_ in gpu.goals(found))


FOUND = {
    "mlp": {"device": 1.0, "host": 0.5},
    "mlp by hand": {"device": 0.8, "host": 0.4},
    "mlp in torch": {"device": 2.0, "host": 0.5},
    "embedding": {"error": "out of memory"},
    "bandwidth": {"fraction": 0.85},
}


@pytest.mark.parametrize(
    ("text", "at", "figure"),
    [
        ("Adam's update, of the bandwidth of a copy", "≥      0.8", "      0.85"),
        ("a step of mlp, of one by hand", "≤      1.1", "      1.25  missed"),
        ("a step of mlp, of PyTorch's", "≤        1", "      0.50"),
        ("a step of embedding, of PyTorch's", "≤        1", "         -"),
    ],
)
def test_what_was_wanted_stands_beside_what_was_found(text: str, at: str, figure: str) -> None:
    (line,) = (line for line in load("gpu").report(FOUND) if line.startswith(f"{text} "))
    assert line == f"{text:52}{at}{figure}"


def test_steps_stand_side_by_side() -> None:
    lines = list(load("gpu").report(FOUND))
    (mlp,) = (line for line in lines if line.startswith("mlp"))
    assert mlp.split() == ["mlp", "1.000", "0.500", "0.800", "0.400", "2.000", "0.500"]
    assert "embedding".ljust(12) + 6 * "         -" in lines


def derivative(function: Any, array: np.ndarray) -> np.ndarray:
    """By differences, in each of its elements."""
    found = np.zeros_like(array)
    for place in np.ndindex(*array.shape):
        kept = array[place]
        values = []
        for change in (1e-6, -1e-6):
            array[place] = kept + change
            values.append(function())
        array[place] = kept
        found[place] = (values[0] - values[1]) / 2e-6
    return found


@pytest.fixture
def by_hand(monkeypatch: Any) -> Any:
    """The loops by hand, with NumPy in the place of CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", np)
    return load("gpu_by_hand")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("convolution", (3, 2, 3)),
        ("convolution", (3, 2, 3, 2)),
        ("convolution", (1, 2, 3, 2)),
        ("normalization", (2,)),
        ("block", (2, 2, 1)),
        ("block", (2, 4, 2)),
    ],
)
def test_a_layer_by_hand_goes_back_by_its_derivative(
    name: str, arguments: Any, by_hand: Any
) -> None:
    x = np.random.default_rng(1).normal(size=(2, 4, 6, 2))
    layer = getattr(by_hand, name)(*arguments)
    y, back = layer(x)
    g = np.random.default_rng(2).normal(size=y.shape)
    expected = derivative(lambda: np.sum(layer(x)[0] * g), x)
    np.testing.assert_allclose(back(g), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("model", "arguments"), [("mlp", ()), ("cnn", (0,)), ("resnet", ())])
def test_steps_by_hand_descend(model: str, arguments: Any, by_hand: Any, monkeypatch: Any) -> None:
    loss, gradient = [], by_hand.logits_gradient

    def noted(z: Any, y: Any, examples: Any) -> Any:
        loss.append(np.mean(np.log(np.sum(np.exp(z), axis=1)) - z[examples, y]))
        return gradient(z, y, examples)

    monkeypatch.setattr(by_hand, "logits_gradient", noted)
    step = getattr(by_hand, model)(load("gpu_timing").SMALL, *arguments)
    for _ in range(30):
        step()
    assert loss[-1] < loss[0]


def test_without_a_gpu_nothing_is_done_and_it_says_why(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit) as ended:
        load("gpu").main(["--why-not"])
    assert ended.value.code == 0
    assert "no CuPy" in capsys.readouterr().out
