"""The exit code of a program that an error of collectives ends."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from paceline import collectives
from paceline.collectives import errors

def hook(kind, error, trace):
    print("the hook of the user:", error)

sys.excepthook = hook
for _ in range(2):
    collectives.choose_exit_code()
raise {error}
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("errors.PeerLostError('lost')", 138),
        ("errors.CollectiveTimeoutError('lost')", 138),
        ("errors.RendezvousError('lost')", 138),
        ("errors.CollectiveError('lost')", 138),
        ("errors.MismatchError('lost')", 1),
        ("errors.ClosedError('lost')", 1),
        ("ValueError('lost')", 1),
        ("SystemExit(3)", 3),
    ],
)
def test_only_the_loss_of_another_task_is_138_and_the_hook_before_is_called(error, code):
    program = [sys.executable, "-c", SCRIPT.format(error=error)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stdout == ("" if code == 3 else "the hook of the user: lost\n")
    assert ended.stderr == ""
