"""`paceline evaluate`: the evaluator of a job, as a program beside it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .mpirun import without_mpi_variables
from .placing import ALONE_VARIABLE
from .spec import ClusterError

_DESCRIPTION = """
Run a script that calls train_and_evaluate as the evaluator of the job which trains: it evaluates
each new checkpoint of model_dir until the run has ended, and may begin before, during or after
it. Nothing else is needed of the job, neither its cluster nor TF_CONFIG.
"""
_EPILOGUE = """
What follows the script is its own, as in training: 'paceline evaluate train.py --model-dir DIR'
gives --model-dir to a script that takes it. Before the script it is for one that does not: its
RunConfig and Estimator either name no directory or the same one.
"""
_NOT_OURS = (ALONE_VARIABLE, "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EPILOGUE
    add = parser.add_argument
    add("--model-dir", metavar="DIR", help="where the job saves, if the script does not say")
    add("-m", dest="is_module", action="store_true", help="the script is a module, as python -m")
    add("script", help="the script that trains")
    rest = add("arguments", nargs=argparse.REMAINDER, help="its arguments")
    rest.required = False  # argparse would ask for them, too, where the script is missing


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Carry out `paceline evaluate`: this process becomes the evaluator."""
    program = [arguments.script, *arguments.arguments]
    if arguments.is_module:
        program.insert(0, "-m")
    elif not Path(arguments.script).is_file():
        raise ClusterError(
            f"script is {arguments.script!r}, but there is no such file in {Path.cwd()}; "
            f"name a Python file, or a module after -m"
        )
    environ = evaluator_environment(os.environ, arguments.model_dir)
    # No process in between: signals reach the script, and its exit code is ours.
    os.execve(sys.executable, [sys.executable, *program], environ)


def evaluator_environment(environ: Mapping[str, str], model_dir: str | None) -> dict[str, str]:
    """The environment of a process that is an evaluator, whatever had started this one.

    Args:
        environ: That of this process.
        model_dir: Where the job saves; None where the script says so.
    """
    # A TF_CONFIG that lists no cluster means a job of one process; nobody calls this address.
    config: dict[str, object] = {
        "cluster": {"chief": ["localhost:1"]},
        "task": {"type": "evaluator", "index": 0},
    }
    if model_dir is not None:
        config["model_dir"] = model_dir
    kept = without_mpi_variables(environ)
    own = {name: value for name, value in kept.items() if name not in _NOT_OURS}
    return {**own, "TF_CONFIG": json.dumps(config)}
