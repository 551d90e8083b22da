"""Every kind of strategy, and what one process is to be given to compute the same."""

from dataclasses import dataclass

import numpy as np

import paceline as pl
from paceline.estimator.saving import CheckpointShards
from paceline.inputs import nest
from paceline.strategies import VariableStore


@dataclass(frozen=True)
class Place:
    """Where a job runs: `make()` gives its strategy, or there are several workers."""

    num_replicas: int
    num_workers: int = 1
    make: object = None

    def run(self, on_workers, server_job, work, model_dir):
        if self.num_workers > 1:
            return on_workers(self.num_workers, self.num_replicas, work)
        with VariableStore().building():
            devices = [f"CPU:{i}" for i in range(self.num_replicas)]
            return [work(self.make(server_job, devices, model_dir), 0)]

    def global_batches(self, dealt):
        """The batches that all replicas have together in each step.

        Args:
            dealt: For each worker its batches, of which its replicas take one each in turn.
        """
        n = self.num_replicas
        num_steps = max(-(-len(batches) // n) for batches in dealt)
        steps = [
            [batch for batches in dealt for batch in batches[step * n : (step + 1) * n]]
            for step in range(num_steps)
        ]
        return [nest.map_structure(lambda *parts: np.concatenate(parts), *step) for step in steps]


ONE = Place(1, make=lambda server_job, devices, model_dir: None)
CARD = Place(1, make=lambda server_job, devices, model_dir: pl.OneDeviceStrategy("GPU:0"))
"""With the fixture `a_card`."""
PLACES = {
    "mirrored x 2": Place(
        2, make=lambda server_job, devices, model_dir: pl.MirroredStrategy(devices)
    ),
    "mirrored x 3": Place(
        3, make=lambda server_job, devices, model_dir: pl.MirroredStrategy(devices)
    ),
    "central storage x 2": Place(
        2, make=lambda server_job, devices, model_dir: pl.CentralStorageStrategy(devices)
    ),
    "2 workers": Place(1, num_workers=2),
    "2 workers x 2": Place(2, num_workers=2),
    "servers, 2 replicas": Place(
        2,
        make=lambda server_job, devices, model_dir: server_job(
            2, 1, storage=CheckpointShards(3, str(model_dir))
        ).strategy(num_replicas=len(devices)),
    ),
}


def dataset_of(batches):
    """A dataset of batches of any sizes."""
    return pl.Dataset.from_generator(lambda: iter(batches))
