"""The command line: `paceline`, or `python -m paceline`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from . import __version__
from .checkpoint.inspect import add_inspect_arguments, run_inspect
from .cluster.check import add_check_arguments, run_check
from .cluster.doctor import add_doctor_arguments, run_doctor
from .cluster.evaluate import add_evaluate_arguments, run_evaluate
from .cluster.exit_codes import USAGE
from .cluster.launch import add_launch_arguments, run_launch
from .cluster.output import drop_unwritten
from .cluster.spec import ClusterError
from .observe import RemoteProgress
from .observe.report import add_report_arguments, run_report
from .observe.timeline import add_timeline_arguments, run_timeline
from .observe.watch import add_watch_arguments, run_watch

_COMMANDS = (
    (
        "launch",
        "start all tasks of a job on this machine",
        add_launch_arguments,
        partial(run_launch, draw_progress=RemoteProgress),
    ),
    ("evaluate", "evaluate beside a job that runs", add_evaluate_arguments, run_evaluate),
    ("check-cluster", "show the cluster and try its addresses", add_check_arguments, run_check),
    ("inspect", "show, verify and compare checkpoints", add_inspect_arguments, run_inspect),
    ("report", "a page of curves and times of a run", add_report_arguments, run_report),
    ("watch", "follow a run, on any machine", add_watch_arguments, run_watch),
    ("timeline", "join timelines of workers", add_timeline_arguments, run_timeline),
    ("doctor", "show which backends work here", add_doctor_arguments, run_doctor),
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="paceline",
        description="The Estimator way of distributed training, on NumPy and CuPy arrays.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28),
    )
    parser.add_argument("--version", action="version", version=f"paceline {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    for name, summary, add_arguments, run in _COMMANDS:
        command = commands.add_parser(name, help=summary)
        add_arguments(command)
        command.set_defaults(run=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command.

    Args:
        argv: The arguments after the program's name; by default those of this process.

    Returns:
        The exit code: 2 where the request itself is wrong.
    """
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except ClusterError as error:
        print(f"paceline {arguments.command}: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # Whoever read our output has gone; what is still to be flushed at exit goes nowhere.
        drop_unwritten()
        return 128 + 13
    return code


if __name__ == "__main__":
    sys.exit(main())
