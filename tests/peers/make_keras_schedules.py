"""Write `keras_schedules.json`: the learning rates that Keras's schedules give.

    python tests/peers/make_keras_schedules.py

needs Keras (on TensorFlow), not paceline. A case is a class, its arguments, and its rates by step.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras

keras.config.set_floatx("float64")
STEPS = [0, 1, 2, 5, 9, 10, 11, 15, 20, 29, 30, 31, 69, 70, 100]
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("ExponentialDecay", [0.5, 10, 0.7], {}),
    ("InverseTimeDecay", [0.5, 10, 0.7], {}),
    ("InverseTimeDecay", [0.5, 10, 0.7, True], {}),
    ("PiecewiseConstantDecay", [[5, 20], [0.5, 0.1, 0.05]], {}),
    ("PolynomialDecay", [0.5, 10, 0.1, 2.0], {}),
    ("PolynomialDecay", [0.5, 10, 0.1, 2.0, True], {}),
    ("CosineDecay", [0.5, 30, 0.1], {}),
    ("CosineDecay", [0.1, 30, 0.1], {"warmup_target": 0.5, "warmup_steps": 10}),
    ("CosineDecayRestarts", [0.5, 10], {}),
    ("CosineDecayRestarts", [0.5, 10, 1.0, 0.8, 0.1], {}),
    ("CosineDecayRestarts", [0.5, 10, 1.5, 0.9], {"name": "waves"}),
]

stored = [
    {
        "name": name,
        "arguments": arguments,
        "options": options,
        "rates": {
            step: float(getattr(keras.optimizers.schedules, name)(*arguments, **options)(step))
            for step in STEPS
        },
    }
    for name, arguments, options in CASES
]
path = Path(__file__).parent / "keras_schedules.json"
path.write_text(json.dumps({"version": keras.__version__, "cases": stored}) + "\n", "utf-8")
