"""One client's connection as the server sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import final

from ..errors import LinkBroken
from ..ring.authenticated import AuthenticatedStream
from ..ring.frames import Answer, Frame, FrameError, Goodbye
from .frames import Client
from .line import Line
from .presence import Presence
from .service import LEFT, Ending, Service


@final
class Caller:
    """A client's connection: its control stream, and the service over its link.

    Attributes:
        client: Who it is.
        ip: From where it has called.
        line: News of it.
        prove: Makes of a ticket what it will show.
        answers: What it says to offers of links; None when it is gone.
        thread: Answers its requests.
    """

    def __init__(
        self, client: Client, stream: AuthenticatedStream, silence_secs: float, presence: Presence
    ) -> None:
        self.client = client
        self.ip = stream.peer_ip
        self.prove = stream.prove
        self.line = Line(stream, silence_secs)
        self.answers: SimpleQueue[Answer | None] = SimpleQueue()
        self.thread = threading.Thread()
        self._stream = stream
        self._presence = presence
        self._lock = threading.Lock()
        self._is_over = False
        self._service: Service | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._service is not None and self._service.is_busy

    def begin(self, open_service: Callable[[], Service]) -> None:
        """Start to agree on a link, and to answer what comes over it."""
        self.thread = threading.Thread(
            target=self._serve, args=(open_service,), name="paceline-ps-serve", daemon=True
        )
        self.thread.start()

    def attend(self) -> None:
        """Listen to the control stream until it ends."""
        try:
            self.line.attend(self._take)
        finally:
            self.answers.put(None)
            lost = self.line.lost()
            self._end(LEFT if self.line.has_left else Ending(False, lost[1] if lost else ""))

    def keep_alive(self) -> None:
        """Give a sign of life, and look for one."""
        self.line.beat()
        lost = self.line.lost()
        if lost is not None:
            self._end(Ending(has_left=False, reason=lost[1]))
            self._stream.cancel()

    def dismiss(self, reason: str) -> None:
        """Say goodbye, or why not, and close."""
        if reason:
            self.line.announce(reason)
        else:
            self.line.say(Goodbye())
        self._end(Ending(has_left=False, reason="this server has ended"))
        self._stream.finish()

    def _take(self, frame: Frame) -> None:
        if not isinstance(frame, Answer):
            raise FrameError(f"a {type(frame).__name__} frame out of place")
        self.answers.put(frame)

    def _serve(self, open_service: Callable[[], Service]) -> None:
        try:
            service = open_service()
        except LinkBroken as error:
            self._end(Ending(has_left=False, reason=str(error)))
        else:
            if self._join(service):
                self._end(service.run())
            service.close()
        self._stream.finish()

    def _join(self, service: Service) -> bool:
        with self._lock:
            if not self._is_over:
                self._service = service
                self._presence.join(self.client)
            return not self._is_over

    def _end(self, ending: Ending) -> None:
        """Close the link; the first ending counts."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            self._presence.end(self.client, self._close(ending))

    def _close(self, ending: Ending) -> Ending:
        """Close the service; return what says best how all this ended."""
        lost = self.line.lost()
        if self._service is None:
            return ending
        self._service.close()
        if self._service.ending is not None:
            return self._service.ending
        return ending if ending.has_left or lost is None else Ending(False, lost[1])
