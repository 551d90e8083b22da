"""`ChiefWatch`: the others go on without the chief for a while, and not for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import final

from ...collectives import CollectiveError
from ...collectives.parameter_server import Join, ParameterClient, Status, TrainerStatus
from .patience import Patience

_logger = logging.getLogger("paceline")

_LOOK_SECS = 5.0
_RETRY_SECS = 0.2


@final
class ChiefWatch:
    """Looks now and then whether the chief is there.

    While it is away nothing is saved, a server that dies stays empty, and nobody says how the job
    has ended.

    Args:
        status: Gives how a server sees the chief.
        start_timeout_secs: How long it may take to come.
        absence_secs: How long it may be away afterwards.
    """

    def __init__(
        self, status: Callable[[], TrainerStatus], start_timeout_secs: float, absence_secs: float
    ) -> None:
        self._status = status
        self._start_timeout_secs = start_timeout_secs
        self._absence_secs = absence_secs
        self._next_look = 0.0
        self._has_come = False
        self._away: Patience | None = None
        self._is_looking = False

    def look(self) -> None:
        """Ask a server, if it is time.

        Raises:
            CollectiveError: The chief has been away for too long.
        """
        now = time.monotonic()
        if self._is_looking or now < self._next_look:
            return
        self._next_look = now + min(_LOOK_SECS, self._absence_secs / 4)
        self._is_looking = True  # asking may have to wait for the server, which looks again
        try:
            chief = self._status()
        finally:
            self._is_looking = False
        if chief.state != "absent" and not self._has_come:
            self._has_come, self._away = True, None
        if chief.state in ("here", "done"):
            if self._away is not None:
                _logger.warning("%s is back.", chief.name)
            self._away = None
        else:
            self._wait_on(chief)

    def _wait_on(self, chief: TrainerStatus) -> None:
        limit_secs = self._absence_secs if self._has_come else self._start_timeout_secs
        if self._away is None:
            self._away = Patience(chief.name, limit_secs)
            if self._has_come:
                _logger.warning(
                    "%s is gone. Training goes on without checkpoints for %g s; then it ends.",
                    chief.name,
                    limit_secs,
                )
        if not self._away.left_secs:
            what = "was lost and has not come back" if self._has_come else "has not come"
            raise CollectiveError(
                f"{chief.name}, the chief, {what} within {limit_secs:g} s; without it nothing is "
                f"saved. Start the job again: it goes on from the last checkpoint"
            )
        self._away.report(f"{chief.name} is not there")


def wait_until_filled(client: ParameterClient, name: str, limit_secs: float) -> None:
    """Return when the chief has given a server that was started anew its variables.

    Raises:
        CollectiveError: It has not done so in time.
    """
    patience = Patience(f"the chief to fill {name} again", limit_secs)
    while not client.ask(Join(returning=True)).is_ready:
        if not patience.left_secs:
            raise CollectiveError(
                f"{name} was started anew, and {_chief_of(client)}, the chief, has not filled it "
                f"within {limit_secs:g} s"
            )
        patience.report("it is empty so far")
        time.sleep(_RETRY_SECS)


def _chief_of(client: ParameterClient) -> str:
    return client.ask(Status()).trainers[0].name
