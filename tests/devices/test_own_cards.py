"""Workers of one machine divide the cards that they see (on the stand-in; workers are threads)."""

from __future__ import annotations

import pytest

from paceline.collectives import Communicator
from paceline.strategies import Device
from paceline.strategies.workers.own_cards import own_share
from paceline.strategies.workers.workers import Workers

from . import strict_cupy
from .exchanges import on_threads


def cards(*indexes: int) -> list[Device]:
    return [Device("GPU", i) for i in indexes]


@pytest.mark.parametrize(
    ("seen", "chosen", "own"),
    [
        # what each worker sees, who was told, what each takes
        ([(0, 1), (0, 1)], (), [(0,), (1,)]),
        ([(0, 1, 2, 3)] * 2, (), [(0, 1), (2, 3)]),
        ([(0, 1, 2, 3)] * 3, (), [(0,), (1,), (2,)]),
        ([(0,)] * 2, (), [(0,)] * 2),
        ([(0, 1)] * 3, (), [(0, 1)] * 3),
        ([(0,), (1,)], (), [(0,), (1,)]),
        ([(0, 1), (2, 3)], (), [(0, 1), (2, 3)]),
        ([(0, 1), (0, 1), (2, 3)], (), [(0,), (1,), (2, 3)]),
        ([(0, 1), (0, 1)], (0, 1), [(0, 1), (0, 1)]),
        ([(0, 1), (0, 1)], (0,), [(0, 1), (0, 1)]),
    ],
)
def test_what_several_workers_see_is_divided_in_their_order(seen, chosen, own, caplog):
    def body(communicator: Communicator) -> tuple[int, ...]:
        rank = communicator.rank
        found = own_share(cards(*seen[rank]), Workers(communicator), rank in chosen)
        return tuple(device.index for device in found)

    caplog.set_level("INFO", logger="paceline")
    with strict_cupy.cards(4):
        assert on_threads(len(seen), body) == own
    changed = sum(before != after for before, after in zip(seen, own, strict=True))
    assert len(caplog.records) == changed


def test_the_host_is_not_divided():
    def body(communicator: Communicator) -> list[Device]:
        return list(own_share([Device("CPU", 0)], Workers(communicator), are_chosen=False))

    assert on_threads(2, body) == [[Device("CPU", 0)]] * 2
