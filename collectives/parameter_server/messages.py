"""What a trainer and a parameter server send each other, before it is bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..members import Member

MAX_BODY_BYTES = 1 << 20
MAX_ARRAYS = 1 << 14
MAX_DIMS = 8
MAX_VERB = (1 << 16) - 1

Array = np.ndarray[Any, np.dtype[Any]]

Client = Member
"""A trainer as a server knows it: rank among the trainers, task and address."""

Handler = Callable[[Client, "Message"], "Message"]
"""Answers requests; what it raises becomes a refusal."""


@dataclass(frozen=True, eq=False)
class Message:
    """A request or a reply.

    Attributes:
        verb: What it is; 0 to `MAX_VERB`. What a verb means is no matter of the transport.
        body: JSON, at most `MAX_BODY_BYTES`. The transport does not look into it.
        arrays: C-contiguous, of numbers or bool, of at most `MAX_DIMS` dimensions; at most
            `MAX_ARRAYS` of them. They are sent straight from their memory.
    """

    verb: int
    body: bytes = b""
    arrays: Sequence[Array] = ()

    @property
    def num_bytes(self) -> int:
        """Size of the body and the arrays."""
        return len(self.body) + sum(array.nbytes for array in self.arrays)
