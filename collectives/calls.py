"""What a rank asks for, and how error texts speak of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from .communicator import Op

ANY_LENGTH = -1
RECORD_BYTES = 448
_DIGEST_BYTES = 16
RULE = "All ranks must make the same calls in the same order, with equal shapes, dtypes and ops."


@dataclass(frozen=True)
class Call:
    """A call, as all ranks must make it.

    Attributes:
        operation: The communicator's method.
        name: The caller's name for it.
        what: Length, dtype, op, root: whatever must agree, in words.
        num_bytes: Size of this rank's array.
    """

    operation: str
    name: str
    what: str = ""
    num_bytes: int = 0

    @property
    def text(self) -> str:
        """The call in words; ranks whose texts are equal do the same."""
        return f"{self.operation} '{self.name}'" + (f" of {self.what}" if self.what else "")

    @property
    def digest(self) -> bytes:
        """Sixteen bytes that stand for the text."""
        return blake2b(self.text.encode(), digest_size=_DIGEST_BYTES).digest()

    @property
    def record(self) -> bytes:
        """The digest and the text in `RECORD_BYTES` bytes, the text cut or padded."""
        return (self.digest + self.text.encode())[:RECORD_BYTES].ljust(RECORD_BYTES, b"\0")

    def describe(self, step: int | None) -> str:
        """Return the call with size and step: "all_reduce 'bucket 3' (25.0 MB, step 1841)"."""
        about = [_readable(self.num_bytes)] if self.num_bytes else []
        about += [] if step is None else [f"step {step}"]
        return f"{self.operation} '{self.name}'" + (f" ({', '.join(about)})" if about else "")


NOTHING = Call("nothing", "")


def collective_call(
    operation: str, name: str, dtype: np.dtype[Any], length: int, op: Op, root: int
) -> Call:
    """Return the call of a collective operation.

    Args:
        operation: The communicator's method.
        name: The caller's name for it.
        dtype: Of the array.
        length: Of the array; `ANY_LENGTH` where ranks may differ.
        op: How elements are combined, where they are.
        root: Whose array it is, where there is one.
    """
    array = f"{dtype.name}[{'any length' if length == ANY_LENGTH else length}]"
    match operation:
        case "barrier" | "split":
            what = ""
        case "broadcast":
            what = f"{array} from rank {root}"
        case "all_gather":
            what = array
        case _:
            what = f"{array}, op {op.value}"
    return Call(operation, name, what, max(length, 0) * dtype.itemsize)


def direct_call(name: str, dtype: np.dtype[Any], length: int, source: int, to: int) -> Call:
    """Return the call that both ends of a `send` and `receive` make."""
    what = f"{dtype.name}[{length}] from rank {source} to rank {to}"
    return Call("send", name, what, length * dtype.itemsize)


def record_text(record: bytes) -> str:
    """Return the text of a `Call.record`, whatever it contains."""
    return record[_DIGEST_BYTES:].rstrip(b"\0").decode(errors="replace")


def differing_calls(callers: Iterable[tuple[str, str]]) -> str:
    """Return who called what, as an error text.

    Args:
        callers: Names of ranks and the texts of their calls.
    """
    groups: dict[str, list[str]] = {}
    for name, text in callers:
        groups.setdefault(text, []).append(name)
    said = "; ".join(f"{', '.join(names)} called {text}" for text, names in groups.items())
    return f"the ranks do not call the same collective: {said}. {RULE}"


def _readable(num_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} bytes"
