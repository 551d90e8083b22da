"""Write `tensorflow.json`: what TensorFlow gives for the expressions of `cases.py`.

    python tests/compat/make_tensorflow.py

needs TensorFlow, not paceline. `test_against_tensorflow.py` compares.
"""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from cases import CASES


def written(value):
    """Values with their dtype and shape, in lists where there are several."""
    if isinstance(value, list | tuple):
        return [written(item) for item in value]
    array = np.asarray(value)
    return [str(array.dtype), list(array.shape), array.reshape(-1).tolist()]


def stored(case):
    return written(eval(case, {"tf": tf}))


found = {case: stored(case) for case in CASES}
lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(value)}" for case, value in found.items())
version = json.dumps(tf.__version__)
path = Path(__file__).parent / "tensorflow.json"
path.write_text(f'{{"version": {version}, "values": {{\n{lines}\n}}}}\n')
