"""When an end of a session that gives no sign of life is lost, by a clock that the test sets."""

import pytest

from paceline.collectives.heartbeats import HEARTBEAT_SECS, AwakeClock
from paceline.collectives.members import Member
from paceline.collectives.session import Identity, Session, SessionHandler
from paceline.collectives.session.grpc_link import DataStreams
from paceline.collectives.session.grpc_stream import Stream
from paceline.collectives.session.handshake import AuthenticatedStream
from paceline.collectives.session.links import LinkEnds

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


class Endings(SessionHandler):
    """Notes how sessions end."""

    def __init__(self):
        self.texts = []

    def admit(self, session):
        raise AssertionError

    receive = turned_away = admit

    def ended(self, session):
        self.texts.append(session.ended)


@pytest.fixture
def clock(time):
    return AwakeClock(time)


@pytest.fixture
def endings():
    return Endings()


@pytest.fixture
def session(clock, endings):
    """With worker 1, at the end that worker 1 has called."""
    peer = Member(1, "worker 1", "host-1:2222")
    hello = Identity(me=peer, job_id="job", token="", links=("tcp",)).hello()
    stream = AuthenticatedStream(Stream(), iter(()), b"key", is_caller=False)
    ends = LinkEnds(
        caller=1, caller_ip="10.0.0.1", ip="10.0.0.2", called=None, streams=DataStreams()
    )
    return Session(stream, peer, hello, endings, clock, ("tcp",), ends, lambda *_: None)


def test_who_heartbeats_is_not_lost_and_who_says_nothing_is(session, clock, time, endings):
    for _ in range(4):
        pass_secs(time, clock, 5)
        session.keep_alive(SILENCE_SECS)
    assert (session.ended, session.lost(), endings.texts) == ("", None, [])
    pass_secs(time, clock, 5)
    session.keep_alive(SILENCE_SECS)
    assert session.lost() == (1, "it has been silent for 25 s")
    assert endings.texts == ["it has been silent for 25 s"]


def test_whoever_was_stopped_itself_takes_nobody_for_silent(session, clock, time, endings):
    time.secs += 3600
    clock.tick()
    session.keep_alive(SILENCE_SECS)
    assert session.lost() is None


def test_an_end_that_was_lost_is_told_about_once(session, endings):
    session.cancel("it has been silent for 25 s")
    session.listen()
    assert endings.texts == ["it has been silent for 25 s"]
