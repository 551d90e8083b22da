"""A job that stands still shows in every log what each thread does (D-07)."""

import pytest

LIMIT_LINES = 2000


def lines_of(process, first):
    """The log of a member from the line that begins with `first` to the end of its stacks."""
    for _ in range(LIMIT_LINES):
        line = process.hear_log()
        if line.startswith(first) and "The threads here" in line:
            break
    else:
        pytest.fail(f"no line begins with {first!r}")
    found = [line]
    while not any("member_process.py" in line and "<module>" in line for line in found):
        found.append(process.hear_log())
    return found


def test_d_07_all_workers_show_their_stacks_the_one_that_is_waited_for_included(
    loopback, start_process
):
    """Rank 2 does not come; rank 3 is below it in the tree and has nothing to do with rank 0."""
    members = loopback(4)
    processes = [start_process(members, rank, log=True, wait_report_secs=1.0) for rank in range(4)]
    for process in processes:
        process.expect("started")
    for process in processes:
        process.expect("in")
    for rank in (0, 1, 3):
        processes[rank].tell("reduce")
    shown = [lines_of(process, "all_reduce 'x' (200.0 KB): worker ") for process in processes]
    for rank, lines in enumerate(shown):
        # Which of those that wait reports first is a matter of chance.
        assert "has been waiting for worker" in lines[0]
        assert "thread MainThread:" in lines
        calls = [line.rpartition(" in ")[2] for line in lines[1:]]
        assert ("all_reduce" in " ".join(calls)) == (rank != 2)
    # Who is waited for is seen where it is: it waits for a line of input.
    assert any("member_process.py" in line for line in shown[2])
    assert not any("paceline-" in line for lines in shown for line in lines)
    processes[2].tell("reduce")
    for process in processes:
        process.expect("reduced")
