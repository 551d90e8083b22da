"""Every push counts once on each server, in whatever order things happen between processes."""

from random import Random

import pytest

from paceline.strategies.parameter_server import requests
from paceline.strategies.parameter_server import servers as all_servers

from .simulation import SimulatedJob, World, chosen_by
from .test_pushes import IN_BOTH_WAYS, Counting

NUM_STEPS = 3


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch):
    """Servers answer at once that they wait for somebody: nothing else could happen meanwhile."""
    for module in (requests, all_servers):
        monkeypatch.setattr(module, "ASK_AGAIN_SECS", 0.0)


@IN_BOTH_WAYS
@pytest.mark.parametrize(
    ("num_trainers", "num_faults", "orders"),
    [
        pytest.param(2, 1, range(100), id="one cut"),
        pytest.param(2, 4, range(100), id="four cuts"),
        pytest.param(3, 4, range(1_000), id="any", marks=pytest.mark.slow),
    ],
)
def test_every_push_counts_once_in_any_order(max_staleness, num_trainers, num_faults, orders):
    """Of whatever a trainer asks or is answered, from its first JOIN on."""
    for seed in orders:
        world = World(chosen_by(Random(seed), fault_rate=0.1), num_faults)
        job = SimulatedJob(world, 2, num_trainers, max_staleness)

        def train(rank, job=job):
            strategy = job.strategy(rank)
            counting = Counting(strategy)
            for _ in range(NUM_STEPS):
                counting.add(1.0 + rank)
            assert strategy.extended.figures["dropped_steps"] == 0
            return counting.values

        found = world.run(*(lambda rank=rank: train(rank) for rank in range(num_trainers)))
        pushed = NUM_STEPS * sum(range(1, num_trainers + 1))
        if max_staleness == 0:
            mean = pushed / num_trainers
            assert found == [[mean, mean]] * num_trainers, f"order {seed}"
        else:  # whoever came last at a server sees all there
            assert [max(each) for each in zip(*found, strict=True)] == [pushed] * 2, f"order {seed}"


@pytest.mark.parametrize("num_faults", [0, 1, 4])
def test_with_overlap_a_push_counts_once_or_is_lost_with_its_connection(num_faults):
    """It cannot be sent again, for its arrays belong to the next step by then."""
    for seed in range(100):
        world = World(chosen_by(Random(seed), fault_rate=0.1), num_faults)
        job = SimulatedJob(world, 2, 2, max_staleness=None, overlaps=True)

        def train(rank, job=job):
            strategy = job.strategy(rank)
            counting = Counting(strategy)
            for _ in range(NUM_STEPS):
                counting.add(1.0)
            strategy.extended.remote_storage.come_to_rest()
            return counting.values

        found = world.run(*(lambda rank=rank: train(rank) for rank in range(2)))
        most = [max(each) for each in zip(*found, strict=True)]
        assert all(2 * NUM_STEPS - num_faults <= n <= 2 * NUM_STEPS for n in most), f"order {seed}"
