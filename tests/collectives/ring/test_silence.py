"""When a member that gives no sign of life is lost, by a clock that the test sets."""

import pytest

from paceline.collectives import Member
from paceline.collectives.heartbeats import HEARTBEAT_SECS, AwakeClock
from paceline.collectives.ring._grpc import Stream
from paceline.collectives.ring.frames import Hello
from paceline.collectives.ring.roster import Roster

HELLO = Hello(
    purpose="join",
    job_id="job",
    size=3,
    members="00" * 16,
    rank=1,
    incarnation="00" * 16,
    host="00" * 16,
    is_loopback=True,
    links=("tcp",),
    nonce="00" * 16,
)
SILENCE_SECS = 20.0


class Time:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.secs = 100.0

    def __call__(self):
        return self.secs


@pytest.fixture
def time():
    return Time()


def pass_secs(time, clock, secs):
    """Let time pass while the process runs."""
    for _ in range(round(secs / HEARTBEAT_SECS)):
        time.secs += HEARTBEAT_SECS
        clock.tick()


def test_the_clock_goes_on_while_the_process_runs(time):
    clock = AwakeClock(time)
    began = clock.now()
    pass_secs(time, clock, 30)
    assert clock.now() - began == 30


def test_the_clock_stands_still_while_the_process_is_stopped(time):
    clock = AwakeClock(time)
    began = clock.now()
    time.secs += 3600
    assert clock.now() - began < 3
    clock.tick()
    assert clock.now() - began < 3


@pytest.fixture
def roster(time):
    """That of rank 0 of 3, to whom ranks 1 and 2 are connected."""
    members = [Member(rank, f"worker {rank}", f"host-{rank}:2222") for rank in range(3)]
    roster = Roster(members, 0)
    roster.clock = AwakeClock(time)
    for peer in roster.peers.values():
        roster.admit(peer, Stream(), HELLO, is_caller=False)
    return roster


def test_who_says_nothing_is_disconnected_and_who_heartbeats_is_not(roster, time):
    for _ in range(5):
        pass_secs(time, roster.clock, 5)
        roster.hear(roster.peers[1])
        roster.disconnect_silent(SILENCE_SECS)
    assert roster.peers[1].stream is not None
    assert roster.peers[2].stream is None
    assert roster.peers[2].problem == "it has been silent for 25 s"


def test_whoever_was_stopped_itself_takes_nobody_for_silent(roster, time):
    time.secs += 3600
    roster.clock.tick()
    roster.disconnect_silent(SILENCE_SECS)
    assert all(peer.stream is not None for peer in roster.peers.values())
