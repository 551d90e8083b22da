"""`Layout`: where the rows of a variable are. The chief lays out, the others read what it posts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np
from pydantic import BaseModel, ConfigDict

from .placement import Partitioner, Piece, Place, Shape, cut_rows


class Part(BaseModel):
    """The rows `start` to `stop` (not included) of a variable, on one server.

    Attributes:
        id: Its number in the job.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    server: int
    start: int
    stop: int


class Layout(BaseModel):
    """Where one variable is.

    Attributes:
        name, shape, dtype: As the variable has them; a scalar counts as one row.
        parts: Its rows in order, without gaps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    shape: Shape
    dtype: str
    parts: tuple[Part, ...]

    def rows_of(self, array: np.ndarray, part: Part) -> np.ndarray:
        """The rows of a part, as a view of an array of the variable's shape."""
        return array[part.start : part.stop] if self.shape else array


@final
class Planner:
    """Lays out one variable after the other. Only the chief has one.

    Args:
        num_servers: How many there are.
        place: Which server gets a piece.
        partitioner: Into how many pieces a variable is cut; None cuts none.
    """

    def __init__(self, num_servers: int, place: Place, partitioner: Partitioner | None) -> None:
        self._bytes_placed = [0] * num_servers
        self._place = place
        self._partitioner = partitioner
        self._next_id = 0

    def lay_out(self, name: str, shape: Shape, dtype: np.dtype, beside: Layout | None) -> Layout:
        """Where a new variable goes: beside another one, or where it fits.

        Raises:
            ValueError: The user's function names a server that is not there.
        """
        if beside is not None:
            places = [(part.server, part.start, part.stop) for part in beside.parts]
        else:
            places = list(self._places(name, shape, dtype))
        first, self._next_id = self._next_id, self._next_id + len(places)
        parts = [
            Part(id=first + i, server=server, start=start, stop=stop)
            for i, (server, start, stop) in enumerate(places)
        ]
        return Layout(name=name, shape=shape, dtype=dtype.name, parts=tuple(parts))

    def _places(self, name: str, shape: Shape, dtype: np.dtype) -> Iterator[tuple[int, int, int]]:
        for start, stop in self._ranges(shape, dtype):
            piece = Piece(name, (stop - start, *shape[1:]) if shape else (), dtype)
            server = self._server_for(piece)
            self._bytes_placed[server] += piece.num_bytes
            yield server, start, stop

    def _ranges(self, shape: Shape, dtype: np.dtype) -> list[tuple[int, int]]:
        wanted = self._partitioner.num_shards(shape, dtype) if self._partitioner and shape else 1
        return cut_rows(shape[0] if shape else 1, wanted)

    def _server_for(self, piece: Piece) -> int:
        num_servers = len(self._bytes_placed)
        server = self._place(piece, tuple(self._bytes_placed))
        if not 0 <= server < num_servers:
            raise ValueError(
                f"placement put {piece.name!r} on parameter server {server}; "
                f"there are {num_servers}, counted from 0"
            )
        return server
