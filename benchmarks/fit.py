"""Milliseconds of a training step by `Model.fit` beside the Estimator's, in one run.

    python benchmarks/fit.py [--rounds 20] [--steps 25] [--models mlp cnn]

It is benchmarks/step.py with the Estimator, fit without callbacks and fit with a callback that
reads the logs of each batch, and takes the same arguments.
"""

from __future__ import annotations

import sys

import step

if __name__ == "__main__":
    step.main(["--ways", "estimator", "fit", "fit-logs", "--models", "mlp", "cnn", *sys.argv[1:]])
