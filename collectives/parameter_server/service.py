"""The server's side of one connection, over whatever link: requests in, replies out."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from typing import final

from ..calls import Call
from ..errors import ClosedError, CollectiveError
from ..session import FrameError
from .frames import Client, FrameKind, Header, Message, RequestHandler
from .wire import Wire

_MAX_TEXT_CHARACTERS = 20_000

_log = logging.getLogger("paceline")


@dataclass(frozen=True)
class Ending:
    """How a connection ended.

    Attributes:
        has_left: Whether the client has said goodbye.
        reason: What happened, if it has not.
    """

    has_left: bool
    reason: str = ""


LEFT = Ending(has_left=True)


@final
class Service:
    """Answers the requests of one connection.

    Args:
        wire: Carries them; owned from here on.
        client: Who asks.
        handler: Answers them, in the thread that runs this.

    Attributes:
        client: The same.
        is_busy: Whether a request is being received or answered.
        ending: How the connection ended, if that was seen in what came over it.
    """

    def __init__(self, wire: Wire, client: Client, handler: RequestHandler) -> None:
        self.client = client
        self.is_busy = False
        self.ending: Ending | None = None
        self._wire = wire
        self._handler = handler

    def run(self) -> Ending:
        """Answer requests until the connection ends; return how it did."""
        self._wire.name(Call("service of", str(self.client)))
        try:
            return self._end(self._answer_all())
        except FrameError as error:
            return self._give_up(f"it was sent {error}", f"it sent {error}")
        except ClosedError:
            return Ending(has_left=False, reason="this server closed its connection")
        except CollectiveError as error:
            left = self._wire.header_left_behind()
            if left is not None and left.kind == FrameKind.GOODBYE:  # without waiting for its reply
                return self._end(LEFT)
            self._wire.give_up(str(error))
            return Ending(has_left=False, reason=str(error))
        except Exception as error:
            _log.exception("the connection of %s failed", self.client)
            return self._give_up(repr(error), repr(error))
        finally:
            self.is_busy = False
            self._wire.close()

    def dismiss(self, reason: str) -> None:
        """Say goodbye, or why not, and close the connection."""
        self._wire.say(FrameKind.CLOSING if reason else FrameKind.GOODBYE, reason)
        self._wire.close()

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def _answer_all(self) -> Ending:
        """Answer requests until a frame comes that is none; return what it means."""
        while True:
            header = self._wire.await_header(math.inf)
            self.is_busy = True
            message = self._wire.receive(header)
            if header.kind == FrameKind.OFFER:
                self._wire.find_memory(message.body)
                continue
            if header.kind != FrameKind.REQUEST:
                return _farewell(header, message)
            self._answer(header, message)
            del message  # may be large, and the next request may be long in coming
            self.is_busy = False

    def _answer(self, header: Header, request: Message) -> None:
        try:
            reply = self._handler.handle(self.client, request)
            self._wire.reply(header.sequence, reply)
        except CollectiveError:
            raise
        except Exception as error:
            if not isinstance(error, (ValueError, KeyError, TypeError)):
                _log.exception("request %d of %s failed", request.verb, self.client)
            self._wire.refuse(header.sequence, _refusal(request.verb, error))

    def _give_up(self, told: str, reason: str) -> Ending:
        ending = self._end(Ending(has_left=False, reason=reason))
        self._wire.give_up(told)
        return ending

    def _end(self, ending: Ending) -> Ending:
        self.ending = ending
        return ending


def _farewell(header: Header, message: Message) -> Ending:
    """Return what a frame means that is no request."""
    if header.kind == FrameKind.GOODBYE:
        return LEFT
    if header.kind == FrameKind.CLOSING:
        said = bytes(message.body).decode(errors="replace")
        return Ending(has_left=False, reason=said or "it gave no reason")
    raise FrameError(f"a frame of kind {header.kind} out of place")


def _refusal(verb: int, error: Exception) -> Message:
    is_key = isinstance(error, KeyError) and len(error.args) == 1
    text = str(error.args[0] if is_key else error) or type(error).__name__
    said = {"kind": type(error).__name__, "text": text[:_MAX_TEXT_CHARACTERS]}
    return Message(verb, json.dumps(said).encode())
