"""ST-44: which front end runs under which strategy, started how, and what is expected of each.

`docs/support-matrix.md` is made from the results of these tests, by `page.py`.
"""

from dataclasses import dataclass
from itertools import product

FRONT_ENDS = ("Estimator", "fit", "loop")
LAUNCHERS = ("alone", "launch", "mpirun", "TF_CONFIG")

LOCAL = ("Default", "OneDevice", "Mirrored", "CentralStorage", "TPU (simulated)")
STRATEGIES = (*LOCAL, "MultiWorkerMirrored", "ParameterServer")

NEEDS_SERVERS = "refused: it needs parameter servers"


@dataclass(frozen=True)
class Cell:
    """A front end under a strategy, started in one way."""

    front_end: str
    strategy: str
    launcher: str

    @property
    def id(self):
        return f"{self.front_end}-{self.strategy}-{self.launcher}"

    @property
    def num_workers(self):
        """How many processes train."""
        return 1 if self.launcher == "alone" or self.strategy in LOCAL else 2

    @property
    def expected(self):
        """What happens, in the words of the page."""
        if self.strategy == "ParameterServer":
            return NEEDS_SERVERS if self.launcher == "alone" else "2 workers, 1 ps"
        of_one = "1 replica" if self.strategy in ("Default", "OneDevice") else "2 replicas"
        return of_one if self.num_workers == 1 else f"{self.num_workers} workers of {of_one}"


CELLS = tuple(Cell(*place) for place in product(FRONT_ENDS, STRATEGIES, LAUNCHERS))
