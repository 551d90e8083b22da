"""The exit codes by which cluster engines know what to do; docs/launching.md has the table."""

from __future__ import annotations

from typing import Final

USAGE: Final = 2
"""The request itself is wrong: to start it again would not help."""

LOST_PEER: Final = 128 + 10
"""Another task was lost, did not come, or did not answer.

Engines take codes from 128 on for those of a machine that failed, and start the task again. The
number is that of SIGUSR1, which Kubeflow leaves to programs for errors that may pass.
"""

TERMINATED: Final = 128 + 15
"""SIGTERM has ended the task."""
