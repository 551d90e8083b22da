"""What all links share: how they are waited for."""

import threading
import time

import pytest

from paceline.collectives.in_process import in_process_link_pair
from paceline.collectives.link import wait_for_links

LIMIT_SECS = 20.0


@pytest.mark.parametrize("moved", ["to_send", "to_receive"])
def test_a_wait_for_two_links_ends_when_either_gets_further(moved):
    """A ring sends to one neighbour and receives from the other one."""
    full, its_end = in_process_link_pair(capacity_bytes=1)
    empty, other_end = in_process_link_pair()
    full.try_send(memoryview(b"x"))
    assert full.try_send(memoryview(b"y")) == 0
    assert empty.try_peek(1) is None
    assert its_end.try_peek(1) is not None
    events = {"to_send": lambda: its_end.release(1), "to_receive": lambda: other_end.try_send(b"z")}
    event = threading.Timer(0.05, events[moved])
    event.start()
    started = time.monotonic()
    while not full.try_send(memoryview(b"y")) and empty.try_peek(1) is None:
        wait_for_links(LIMIT_SECS, full, empty)
    event.join()
    assert time.monotonic() - started < LIMIT_SECS


def test_closing_a_link_ends_a_wait_for_two():
    links = [in_process_link_pair()[0] for _ in range(2)]
    closing = threading.Timer(0.05, links[1].close)
    closing.start()
    started = time.monotonic()
    wait_for_links(LIMIT_SECS, *links)
    closing.join()
    assert time.monotonic() - started < LIMIT_SECS
