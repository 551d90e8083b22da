"""One end of a control stream between a trainer and a server: signs of life, and why it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from ..heartbeats import AwakeClock
from ..link import Health
from ..ring._grpc import StreamError
from ..ring.authenticated import AuthenticatedStream
from ..ring.frames import (
    Frame,
    FrameError,
    GivingUp,
    Goodbye,
    Heartbeat,
    cut,
)

# No more than this is queued for an end that takes nothing.
_MAX_PENDING_BYTES = 16 << 10
_OTHER = 1


@final
class Line(Health):
    """One end of a control stream.

    Args:
        stream: The stream.
        silence_secs: An end that gives no sign of life for longer is lost. `beat` is called more
            often than that.

    Attributes:
        has_left: Whether the other end has said goodbye, and nothing was wrong before.
    """

    def __init__(self, stream: AuthenticatedStream, silence_secs: float) -> None:
        self.has_left = False
        self._stream = stream
        self._silence_secs = silence_secs
        self._clock = AwakeClock()
        self._heard_at = self._clock.now()
        self._ended = ""

    def last_heard(self, rank: int) -> float:
        return self._clock.now() - self._heard_at

    def lost(self) -> tuple[int, str] | None:
        if self._ended:
            return _OTHER, self._ended
        silent_secs = self.last_heard(_OTHER)
        if silent_secs > self._silence_secs:
            return _OTHER, f"silent for {silent_secs:.3g} s"
        return None

    def left(self, rank: int) -> bool:
        return self.has_left

    def announce(self, reason: str) -> None:
        self.say(GivingUp(reason=cut(reason)))

    def say(self, frame: Frame) -> None:
        """Send ``frame``. Does not wait; lost if the stream is broken."""
        self._stream.send(frame)

    def beat(self) -> None:
        """Give a sign of life."""
        self._clock.tick()
        if self._stream.pending_bytes < _MAX_PENDING_BYTES:
            self._stream.send(Heartbeat())

    def end(self, reason: str) -> None:
        """Note why the other end is of no use any more; the first reason counts."""
        self._ended = self._ended or reason

    def attend(self, take: Callable[[Frame], None]) -> None:
        """Listen until the stream ends.

        Args:
            take: Called with each frame that is not about life and death.
        """
        reason = "its connection was closed without a goodbye"
        try:
            for frame in self._stream:
                self._heard_at = self._clock.now()
                self._take(frame, take)
        except StreamError as error:
            reason = str(error).lower()
        except FrameError as error:
            reason = f"it sent {error}"
            self._stream.cancel()
        finally:
            self.end(reason)

    def _take(self, frame: Frame, take: Callable[[Frame], None]) -> None:
        match frame:
            case Heartbeat():
                pass
            case GivingUp():
                self.end(f"it gave up: {frame.reason}")
            case Goodbye():
                self.has_left = not self._ended
                self.end("it has ended")
            case _:
                take(frame)
