"""Large arrays lie in memory that trainer and server share, where they can; nobody sees which."""

import gc
from contextlib import closing, contextmanager
from mmap import mmap

import numpy as np
import pytest

from paceline.collectives import Member
from paceline.collectives.parameter_server import Message, ServerLost, connect, serve
from paceline.collectives.parameter_server.frames import ArrayEntry
from paceline.collectives.parameter_server.places import MEMORY_BYTES, Places
from paceline.collectives.sealed_memory import OfferedMemory, unavailable
from paceline.collectives.session import FrameError

pytestmark = pytest.mark.skipif(bool(unavailable()), reason="no such memory on this platform")
FLOAT32 = np.dtype(np.float32)
CLIENT = Member(1, "worker 1")
LARGE = 40_000


@pytest.fixture
def connected(server_member, options, record):
    """A connection to a server that doubles arrays, and which of them were in shared memory."""

    @contextmanager
    def make(**terms):
        server, were_shared = server_member(), []

        def double(client, request):
            were_shared.append([isinstance(array.base, mmap) for array in request.arrays])
            return Message(request.verb, request.body, [array * 2 for array in request.arrays])

        terms = {**options, "links": ["shm"], **terms}
        with (
            closing(serve(server, record.handler(double), **terms)),
            closing(connect(server, CLIENT, **terms)) as connection,
        ):
            connection.ask(Message(1))  # with its reply the server says whether it has the memory
            yield connection, were_shared

    return make


def doubled(connection, *arrays):
    """What comes of arrays, and the places where it should be."""
    places = [connection.empty(array.shape, array.dtype) for array in arrays]
    for place in places:
        place.fill(7)
    return connection.ask(Message(2, b"", arrays), places).arrays, places


def test_large_gradients_are_used_and_values_put_where_they_lie(connected):
    with connected() as (connection, were_shared):
        for start in range(3):
            gradients = [np.arange(start, start + n, dtype=FLOAT32) for n in (LARGE, 3, 2 * LARGE)]
            values, places = doubled(connection, *gradients)
            for value, place, gradient in zip(values, places, gradients, strict=True):
                assert place.tobytes() == value.tobytes() == (2 * gradient).tobytes()
        assert were_shared[1:] == [[True, False, True]] * 3


@pytest.mark.parametrize(
    "array",
    [
        np.arange(LARGE),
        np.ones(LARGE, bool),
        np.ones(LARGE, np.complex64),
        np.ones(3, FLOAT32),
        np.ones((0, LARGE), FLOAT32),
        np.float64(3).reshape(()),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_what_is_looked_through_before_it_is_used_and_what_is_small_travels(connected, array):
    with connected() as (connection, were_shared):
        (value,), _ = doubled(connection, array)
        assert value.tobytes() == (array * 2).tobytes()
        assert were_shared[1:] == [[False]]


def test_a_reply_of_another_shape_than_its_place_comes_all_the_same(connected):
    with connected() as (connection, _):
        place = connection.empty((LARGE,), FLOAT32)
        place.fill(7)
        (value,) = connection.ask(Message(2, b"", [np.ones(2 * LARGE, FLOAT32)]), [place]).arrays
        assert (value == 2).all()
        assert value.shape == (2 * LARGE,)
        assert (place == 7).all()


def test_a_part_of_an_array_is_a_place_as_well(connected):
    with connected() as (connection, _):
        whole = connection.empty((3, LARGE), FLOAT32)
        whole.fill(7)
        connection.ask(Message(2, b"", [np.ones((1, LARGE), FLOAT32)]), [whole[1:2]])
        assert whole[:, 0].tolist() == [7, 2, 7]


@pytest.mark.parametrize("terms", [{"links": ["tcp"]}, {}], ids=["other links", "not found"])
def test_where_memory_cannot_be_shared_all_arrays_travel(connected, terms, monkeypatch):
    found = "paceline.collectives.parameter_server.wire.found_memory"
    monkeypatch.setattr(found, lambda offer, num_bytes: None)
    with connected(**terms) as (connection, were_shared):
        gradient = np.arange(LARGE, dtype=FLOAT32)
        (value,), (place,) = doubled(connection, gradient)
        assert place.tobytes() == value.tobytes() == (2 * gradient).tobytes()
        assert were_shared[1:] == [[False]]


def test_no_more_is_shared_than_a_message_may_have(connected):
    too_much = Message(2, b"", [np.ones(1 << 19, FLOAT32)])
    with (
        connected(max_frame_bytes=1 << 20) as (connection, _),
        pytest.raises(ServerLost, match="1048576 are allowed"),
    ):
        connection.ask(too_much)


def test_nothing_is_left_when_both_have_let_go(connected):
    others = set(memories())  # of tests before this one
    with connected() as (connection, _):
        (value,), places = doubled(connection, np.ones(LARGE, FLOAT32))
        (own, *also) = [memory for memory in memories() if memory not in others]
        assert also == [own]  # both ends are in this process
    connection = None
    gc.collect()
    assert memories().count(own) == 1
    assert (value == 2).all()  # it lives as long as its arrays do
    del value, places
    gc.collect()
    assert memories().count(own) == 0


def memories():
    """The numbers of those that this process has mapped, as often as it has."""
    with open("/proc/self/maps") as maps:
        return [line.split()[4] for line in maps if "paceline-arrays" in line]


@pytest.mark.parametrize(
    ("dtype", "num_bytes", "place"),
    [
        (FLOAT32, 64, MEMORY_BYTES // 64 + 1),
        (FLOAT32, 128, MEMORY_BYTES // 64),
        (FLOAT32, 64, (1 << 48) - 1),
        (np.dtype(np.int64), 64, 1),
        (np.dtype(bool), 64, 1),
    ],
)
def test_an_array_where_none_can_lie_is_refused(dtype, num_bytes, place):
    with closing(OfferedMemory("paceline-test", MEMORY_BYTES)) as own:
        places = Places(own.memory)
        with pytest.raises(FrameError, match="at a place where none can be"):
            places.at(
                ArrayEntry(dtype, (num_bytes // dtype.itemsize,), num_bytes, num_bytes, place)
            )
        assert places.at(ArrayEntry(FLOAT32, (16,), 64, 64, MEMORY_BYTES // 64)).shape == (16,)


def test_memory_of_arrays_that_are_gone_is_used_again():
    with closing(OfferedMemory("paceline-test", MEMORY_BYTES)) as own:
        places = Places(own.memory)
        first = places.empty((LARGE,), FLOAT32)
        part, at = first[16:], places.of([first])[0][1]
        del first
        assert places.of([places.empty((LARGE,), FLOAT32)])[0][1] != at  # a part is still there
        del part
        assert places.of([places.empty((LARGE,), FLOAT32)])[0][1] == at


def test_an_array_that_would_take_much_memory_for_good_travels():
    with closing(OfferedMemory("paceline-test", MEMORY_BYTES)) as own:
        places = Places(own.memory)
        assert places.put([np.empty((4 << 20) + 1, FLOAT32)]) == [0]
        assert places.put([np.ones(LARGE, FLOAT32)]) != [0]
