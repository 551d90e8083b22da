"""What the launcher makes of its tasks' output: lines, names, colours, tracebacks."""

import errno
import io
import json

import pytest

from paceline.cluster.output import (
    CommonLines,
    LineSplitter,
    Prefixer,
    Tail,
    traceback_in,
    wants_colour,
)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"n", b"e\ntw", b"o"], [b"one", b"two"]),
        ([b"windows\r\n\n"], [b"windows", b""]),
        ([b"\xff\xfe\n"], [b"\xff\xfe"]),
        ([], []),
    ],
)
def test_lines_are_whole_however_they_arrive(pieces, lines):
    splitter = LineSplitter()
    found = [line for piece in pieces for line in splitter.feed(piece)]
    assert found + splitter.end() == lines


def test_a_line_without_end_is_cut_so_that_memory_is_bounded():
    splitter = LineSplitter()
    found = [line for _ in range(100) for line in splitter.feed(b"x" * 4096)]
    assert sum(map(len, found + splitter.end())) == 409_600
    assert max(map(len, found)) < 80_000


def test_each_line_has_its_task_and_on_a_terminal_a_colour():
    plain, coloured = io.BytesIO(), io.BytesIO()
    for stream, colour in ((plain, False), (coloured, True)):
        prefixer = Prefixer(stream, ["worker 0", "worker 1"], colour)
        prefixer.write("worker 0", [b"a", b"b"])
        prefixer.write("launch", [b"c"])
    assert plain.getvalue() == b"[worker 0] a\n[worker 0] b\n[launch] c\n"
    assert coloured.getvalue().startswith(b"\x1b[36m[worker 0]\x1b[0m a\n")


def test_each_line_is_an_object_of_json_with_its_task_on_request():
    stream = FullFor(1)
    prefixer = Prefixer(stream, ["worker 0"], colour=False, as_json=True)
    prefixer.write("worker 0", [b"lost"])
    printed = b'"[" \xff [1]'
    prefixer.write("worker 0", [b'{"level": "INFO", "values": {"loss": 1.5}}', printed, b"[1]"])
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"task": "launch", "message": "1 lines could not be written"},
        {"task": "worker 0", "level": "INFO", "values": {"loss": 1.5}},
        {"task": "worker 0", "message": '"[" \\xff [1]'},
        {"task": "worker 0", "message": "[1]"},
    ]


class FullFor(io.BytesIO):
    """A stream on a disk that is full for a number of writes."""

    def __init__(self, num_writes):
        super().__init__()
        self.num_writes = num_writes

    def write(self, data):
        self.num_writes -= 1
        if self.num_writes >= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_lines_that_a_full_disk_does_not_take_are_counted_and_told():
    stream = FullFor(2)
    prefixer = Prefixer(stream, ["worker 0"], colour=False)
    for lines in ([b"a", b"b"], [b"c"], [b"d"], [b"e"]):
        prefixer.write("worker 0", lines)
    assert stream.getvalue().splitlines() == [
        b"[launch] 3 lines could not be written",
        b"[worker 0] d",
        b"[worker 0] e",
    ]


class Terminal(io.BytesIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "colour"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.BytesIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals_whose_user_wants_it(stream, environ, colour):
    assert bool(wants_colour(stream, environ)) is colour


PLAIN = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: boom"]
CHAINED = [
    "Traceback (most recent call last):",
    "KeyError: 1",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
]
GROUP = ["  + Exception Group Traceback (most recent call last):", "  | ExceptionGroup: two"]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], []),
        (["no traceback"], []),
        (["before", *PLAIN], PLAIN),
        ([*PLAIN, "went on", *PLAIN, "more of the message"], [*PLAIN, "more of the message"]),
        (["before", *CHAINED, *PLAIN], [*CHAINED, *PLAIN]),
        ([*PLAIN, "caught", *CHAINED, *PLAIN], [*CHAINED, *PLAIN]),
        (["before", *GROUP], GROUP),
        ([*PLAIN, "Abort(1) on node 1 (rank 1 in comm 0): application called MPI_Abort"], PLAIN),
    ],
)
def test_the_last_traceback_is_found_with_what_it_is_chained_to(lines, found):
    assert traceback_in([line.encode() for line in lines]) == [line.encode() for line in found]


def test_without_a_traceback_the_last_ten_lines_must_do():
    tail = Tail()
    tail.add([str(i).encode() for i in range(1000)])
    assert tail.traceback() == [str(i).encode() for i in range(990, 1000)]
    assert not tail.has_traceback()


def test_what_mpi_prints_at_an_abort_is_not_among_the_last_lines():
    tail = Tail()
    tail.add([b"-----", b"rank 0: timed out, waiting for rank 1", b"Abort(1) on node 0"])
    assert tail.traceback() == [b"-----", b"rank 0: timed out, waiting for rank 1"]


INFO, ALIKE = b"12:00:01 INFO  alike", b"12:00:02 INFO  alike"
STEP = b"12:00:01 INFO  loss = 1.5, step = 100 (0.842 sec)"
SAME_STEP = b"12:00:01 INFO  loss = 1.5, step = 100 (0.9 sec)"
RATE, SAME_RATE = b"12:00:01 INFO  global_step/sec: 117.6", b"12:00:03 INFO  global_step/sec: 5"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ([("a", [INFO]), ("b", [ALIKE])], [[INFO], []]),
        ([("a", [INFO, INFO]), ("b", [ALIKE])], [[INFO, INFO], []]),
        ([("a", [INFO]), ("b", [ALIKE, ALIKE]), ("a", [INFO])], [[INFO], [ALIKE], []]),
        (
            [("a", [INFO]), ("b", [b"12:00:02 WARNING alike"])],
            [[INFO], [b"12:00:02 WARNING alike"]],
        ),
        ([("a", [b"printed"]), ("b", [b"printed"])], [[b"printed"], [b"printed"]]),
        ([("a", []), ("b", [INFO])], [[], [INFO]]),
        ([("a", [STEP]), ("b", [SAME_STEP])], [[STEP], []]),
        ([("a", [RATE]), ("b", [SAME_RATE])], [[RATE], []]),
    ],
)
def test_what_several_tasks_log_alike_is_new_once(written, shown):
    common = CommonLines()
    assert [common.new_in(name, lines) for name, lines in written] == shown


def test_only_so_many_lines_of_the_log_are_remembered():
    common = CommonLines()
    lines = [b"12:00:01 INFO  line %d" % i for i in range(3000)]
    assert common.new_in("a", lines) == lines
    assert common.new_in("b", lines[-1000:]) == []
    assert common.new_in("b", lines[:1]) == lines[:1]
