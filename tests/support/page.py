"""Makes docs/support-matrix.md from the tests beside it: `python -m tests.support.page`."""

from pathlib import Path

import pytest

import paceline as pl

from ..conftest import ServerJobInProcess
from .cells import CELLS, FRONT_ENDS, LAUNCHERS, STRATEGIES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "support-matrix.md"
TEST = "tests/support/test_support.py::test_st_44_a_front_end_under_a_strategy_started_somehow"
CPUS = ["CPU:0", "CPU:1"]

BEGINNING = f"""# What runs where

Made by `python -m tests.support.page` from a run of the tests; `tests/project/` holds it to them.

Each cell is a case of `{TEST}`:
one small model ends with the weights that one process ends with in NumPy. A cell's case has the ID
"front end-strategy-launcher", such as `loop-Mirrored-mpirun`; `pytest "…[ID]"` runs it.

- *alone*: `python script.py`. *launch*: `paceline launch script.py`.
  *mpirun*: `mpirun -n N python -m mpi4py script.py`. *TF_CONFIG*: a process for each task, which
  finds its place in that variable.
- A loop of one's own gives its body to `nn.optimizers.train_or_serve` where it is to run in
  parameter servers' jobs too.
- Strategies of one machine are started as the only worker. In a job of several, Estimators refuse
  them (`test_es_16_workers_that_would_train_apart_are_refused`); a loop of one's own, which knows
  of no job, trains in each process apart.
"""

UPDATES = """
## In step, or each at its own pace

What strategies say of themselves, with two replicas or two trainers each: `is_synchronous`,
`num_replicas_in_sync`, `parameter_devices`.

| strategy | updates | by | replicas in sync | copies of a variable |
|---|---|---|---|---|
"""


def table(front_end, passed):
    """The cells of one front end: what was expected where its test has passed, else so."""
    lines = [f"\n## {front_end}\n", f"| strategy | {' | '.join(LAUNCHERS)} |"]
    lines.append("|---|" + "---|" * len(LAUNCHERS))
    for strategy in STRATEGIES:
        row = [c for c in CELLS if (c.front_end, c.strategy) == (front_end, strategy)]
        shown = [c.expected if c.id in passed else "**not tested**" for c in row]
        lines.append(f"| {strategy} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def row_of_updates(name, strategy):
    """ST-43: what a strategy says of itself."""
    extended = strategy.extended
    pace = "synchronous" if extended.is_synchronous else "asynchronous"
    by = "all-reduce" if extended.remote_storage is None else "parameter servers"
    copies = len(extended.parameter_devices) * extended.num_workers
    where = f"{copies}" if extended.remote_storage is None else "1, on the servers"
    return f"| {name} | {pace} | {by} | {strategy.num_replicas_in_sync} | {where} |"


def updates():
    """The rows of all strategies."""
    apart, in_step = (ServerJobInProcess(1, 2, max_staleness) for max_staleness in (None, 0))
    made = {
        "Default": pl.get_strategy(),
        "OneDevice": pl.OneDeviceStrategy("CPU:0"),
        "Mirrored": pl.MirroredStrategy(CPUS),
        "CentralStorage": pl.CentralStorageStrategy(CPUS),
        "TPU (simulated)": pl.TPUStrategy(simulate=2),
        "MultiWorkerMirrored": pl.MultiWorkerMirroredStrategy(devices=CPUS),
        "ParameterServer": apart.strategy(),
        "ParameterServer, max_staleness=0": in_step.strategy(),
    }
    try:
        return "\n".join(row_of_updates(*item) for item in made.items()) + "\n"
    finally:
        apart.close()
        in_step.close()


def render(passed):
    """The page.

    Args:
        passed: The IDs of the cells whose tests have passed.
    """
    tables = "".join(table(front_end, passed) for front_end in FRONT_ENDS)
    return BEGINNING + tables + UPDATES + updates()


class Passed:
    """A plugin of pytest that notes the cells whose tests have passed."""

    def __init__(self):
        self.cells = set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.cells.add(report.nodeid.partition("[")[2].removesuffix("]"))


def main():
    passed = Passed()
    pytest.main(["-q", str(ROOT / "tests" / "support")], [passed])
    PAGE.write_text(render(passed.cells), "utf-8")


if __name__ == "__main__":
    main()
