"""Write `keras_optimizers.npz`: where Keras's optimizers move a matrix, a vector and a scalar.

    KERAS_BACKEND=tensorflow python tests/peers/make_keras_optimizers.py

needs Keras 3 and NumPy, not paceline. `CASES` in this file is also what the tests run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
NUM_STEPS = 7
SHAPES = {"kernel": (4, 3), "bias": (3,), "factor": ()}
_OPTIONS: dict[str, Any] = {"learning_rate": 0.05}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "amsgrad": ("Adam", {"amsgrad": True, "beta_2": 0.5}),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
    "adamw amsgrad": ("AdamW", {"weight_decay": 0.1, "amsgrad": True, "beta_2": 0.5}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop centered": ("RMSprop", {"centered": True, "momentum": 0.5}),
    "ftrl": ("Ftrl", {"l1_regularization_strength": 0.1}),
    "adadelta": ("Adadelta", {}),
    "adadelta, rho 0.5": ("Adadelta", {"rho": 0.5, "learning_rate": 1.0}),
    "adamax": ("Adamax", {}),
    "nadam": ("Nadam", {}),
    "lion": ("Lion", {"learning_rate": 0.01}),
    "lamb": ("Lamb", {}),
    "adafactor": ("Adafactor", {}),
    "adafactor, absolute": ("Adafactor", {"relative_step": False, "clip_threshold": 0.5}),
    "weight decay": ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    "weight decay, nadam": ("Nadam", {"weight_decay": 0.1}),
    "average": ("Adam", {"use_ema": True, "ema_momentum": 0.8}),
    "average, overwriting": (
        "SGD",
        {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3},
    ),
    "accumulated": ("Adam", {"gradient_accumulation_steps": 3}),
    "accumulated, clipped": ("SGD", {"gradient_accumulation_steps": 2, "global_clipnorm": 0.5}),
    "clipped": ("Adam", {"clipnorm": 0.5}),
}


def options(case: str) -> dict[str, Any]:
    """The arguments of a case's optimizer."""
    return {**_OPTIONS, **CASES[case][1]}


def starts() -> list[np.ndarray]:
    """The variables at the beginning."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in SHAPES.values()]


def gradients() -> list[list[np.ndarray]]:
    """Those of each step."""
    rng = np.random.default_rng(1)
    shapes = SHAPES.values()
    return [[rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(NUM_STEPS)]


def main() -> None:
    import keras

    stored: dict[str, np.ndarray] = {"version": np.array(keras.__version__)}
    for case, (kind, _) in CASES.items():
        optimizer = getattr(keras.optimizers, kind)(**options(case))
        variables = [
            keras.Variable(start, name=name) for start, name in zip(starts(), SHAPES, strict=True)
        ]
        path = []
        optimizer.build(variables)
        for step in gradients():
            optimizer.apply([keras.ops.convert_to_tensor(g) for g in step], variables)
            path.append(np.concatenate([np.ravel(np.asarray(v)) for v in variables]))
        if optimizer.use_ema:
            optimizer.finalize_variable_values(variables)
            path.append(np.concatenate([np.ravel(np.asarray(v)) for v in variables]))
        stored[case] = np.stack(path)
    np.savez_compressed(HERE / "keras_optimizers.npz", **stored)


if __name__ == "__main__":
    main()
