"""Whether all ranks make the same calls, where the messages are MPI's own and carry no header."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .arrays import UFUNCS, Op
from .calls import (
    NOTHING,
    RECORD_BYTES,
    RULE,
    Call,
    Signature,
    differing_calls,
    is_record_of,
    record_text,
)
from .errors import MismatchError
from .members import Member

# One large call faults in fresh scratch memory each time; chunks of this size reuse theirs.
CHUNK_BYTES = 2 << 20
# Calls of more than a chunk are compared each time, others when their number is a multiple of this.
COMPARED_CALLS = 128
# Different calls go different ways, as far as these suffice: ranks that make different ones then
# wait for each other, which is noticed, instead of adding up what does not belong together.
NUM_LANES = 4

_NUM_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class MpiCall:
    """A call, and what MPI needs for it.

    Attributes:
        call: What it is.
        key: 64 bits of its digest.
        mpi_type, mpi_op: Its dtype and op in MPI's terms.
        lane: Which of the communicator's lanes it takes.
    """

    call: Call
    key: int
    mpi_type: Any
    mpi_op: Any
    lane: int


@final
class History:
    """What one communicator has called so far, as a number and digest; the latest calls in full.

    Attributes:
        tag: Which communicator.
        ranks: Its ranks in the world.
        sequence: Number of calls.
        digest: A digest of all of them, in order.
    """

    def __init__(self, tag: int, ranks: Sequence[int]) -> None:
        self.tag = tag
        self.ranks = tuple(ranks)
        self.sequence = 0
        self.digest = 0
        # Two flat lists and no records: these would be so many that they drive all else from the
        # nearest cache, which takes a tenth of a short call.
        self._digests = array("q", bytes(8 * _NUM_REMEMBERED))
        self._calls = [NOTHING] * _NUM_REMEMBERED

    def add(self, call: Call, key: int) -> None:
        """Note a call; ``key`` is 64 bits of its digest."""
        self.sequence = sequence = self.sequence + 1
        place = sequence % _NUM_REMEMBERED
        # Python's hash of integers is the same in every process.
        self._digests[place] = self.digest = hash((self.digest, key))
        self._calls[place] = call

    @property
    def latest(self) -> Call:
        """The latest call."""
        return self._calls[self.sequence % _NUM_REMEMBERED]

    def at(self, sequence: int) -> tuple[int, Call] | None:
        """Return the digest after call number ``sequence``, and that call, if remembered."""
        place = sequence % _NUM_REMEMBERED
        found = self._digests[place], self._calls[place]
        # Asked afterwards, for meanwhile another thread goes on calling, and it counts a call
        # before it notes it.
        age = self.sequence - sequence
        return found if 0 <= age < _NUM_REMEMBERED and sequence > 0 else None


@final
class Consistency:
    """The calls of one communicator, compared over its ranks.

    Args:
        mpi: The module ``mpi4py.MPI``.
        comm: A communicator on which nothing but comparisons is done collectively.
        members: Its ranks by name.
        history: The calls of this communicator.
    """

    def __init__(self, mpi: Any, comm: Any, members: Sequence[Member], history: History) -> None:
        self._mpi = mpi
        self._comm = comm
        self._members = tuple(members)
        self._history = history
        self._calls: dict[Signature, MpiCall] = {}
        self._compared: set[int] = set()
        self._extremes = np.zeros(2, np.int64)

    def next(self, signature: Signature) -> MpiCall:
        """Return this call, noted in the history; `agree` is to follow."""
        found = self._calls.get(signature)
        if found is None:
            call = signature.call
            key = int.from_bytes(call.digest[:8], "little")
            # Equal on all ranks: whoever adds another call is found out when they compare it.
            lane = len(self._compared) % NUM_LANES
            kind = mpi_kind(self._mpi, signature.dtype, signature.op)
            found = self._calls[signature] = MpiCall(call, key, *kind, lane)
        self._history.add(found.call, found.key)
        return found

    def agree(self, call: MpiCall) -> None:
        """Compare a call over all ranks if it is new, long, or the turn has come.

        Raises:
            MismatchError: Some rank calls, or has called, something else.
        """
        is_new = call.key not in self._compared
        is_long = call.call.num_bytes > CHUNK_BYTES
        if is_new or is_long or not self._history.sequence % COMPARED_CALLS:
            self.compare(call)

    def compare(self, call: MpiCall) -> None:
        """Compare this call, and the digest of all so far, over all ranks, which all come to this.

        Every comparison looks the same on the wire, so that ranks which are at different calls, or
        compare for different reasons, still understand each other: 16 bytes, a number and its
        negative, of which the least over all ranks is the least number and the greatest one. They
        are the same on all ranks, so all see alike whether to go on and tell their calls in full.

        Raises:
            MismatchError: Some rank calls, or has called, something else.
        """
        history, extremes = self._history, self._extremes
        number = hash((history.sequence, history.digest, call.key)) >> 1  # its negative has room
        extremes[:] = number, -number
        self._comm.Allreduce(self._mpi.IN_PLACE, extremes, self._mpi.MIN)
        if extremes[0] != -extremes[1]:
            self._raise_mismatch(call.call)
        self._compared.add(call.key)

    def _raise_mismatch(self, call: Call) -> None:
        """Raise that ranks differ, and in what; all ranks call this."""
        table = np.zeros((len(self._members), RECORD_BYTES), np.uint8)
        table[self._comm.rank] = np.frombuffer(call.record, np.uint8)
        self._comm.Allgather(self._mpi.IN_PLACE, table)
        records = [row.tobytes() for row in table]
        if not all(is_record_of(record, call) for record in records):
            names, texts = map(str, self._members), map(record_text, records)
            raise MismatchError(differing_calls(zip(names, texts, strict=True)))
        raise MismatchError(
            f"the ranks have not made the same calls: they differ somewhere in the last "
            f"{COMPARED_CALLS} before {call.account}. {RULE}"
        )


def _needs_numpy(dtype: np.dtype[Any], op: Op) -> bool:
    return dtype.name == "float16" or (dtype.kind == "f" and op in (Op.MIN, Op.MAX))


def require_no_numpy(signature: Signature) -> None:
    """Refuse to combine arrays on GPUs by `mpi_kind`'s functions of NumPy's.

    MPI would call them with addresses of the GPU's memory.
    """
    if signature.on_gpu and _needs_numpy(signature.dtype, signature.op):
        raise TypeError(
            f"'{signature.name}' is in the memory of a GPU, where MPI cannot combine "
            f"{signature.dtype} by {signature.op.value}: copy it to the host with array.get()"
        )


def mpi_kind(mpi: Any, dtype: np.dtype[Any], op: Op) -> tuple[Any, Any]:
    """Return the MPI datatype, and the operation that gives what NumPy gives.

    MPI need not know float16, and leaves open what the larger of a number and NaN is, so that ranks
    could come to different results; there NumPy itself is called back.
    """
    if _needs_numpy(dtype, op):
        return _numpy_kind(mpi, dtype, op)
    mpi_type = {
        "float32": mpi.FLOAT,
        "float64": mpi.DOUBLE,
        "int32": mpi.INT32_T,
        "int64": mpi.INT64_T,
        "bool": mpi.C_BOOL,
    }[dtype.name]
    if dtype.kind == "b":
        return mpi_type, mpi.LOR if op in (Op.SUM, Op.MAX) else mpi.LAND
    return mpi_type, {
        Op.SUM: mpi.SUM,
        Op.MIN: mpi.MIN,
        Op.MAX: mpi.MAX,
        Op.PRODUCT: mpi.PROD,
    }[op]


_making = threading.Lock()
_made: dict[tuple[str, Op], tuple[Any, Any]] = {}


def _numpy_kind(mpi: Any, dtype: np.dtype[Any], op: Op) -> tuple[Any, Any]:
    """Return an MPI datatype of opaque elements, and an operation that calls NumPy's.

    mpi4py has room for 16 such operations in a process: each is made once, whichever of the
    communicators' threads is the first to need it.
    """
    with _making:
        if (dtype.name, op) not in _made:
            _made[dtype.name, op] = _make_numpy_kind(mpi, dtype, UFUNCS[op])
        return _made[dtype.name, op]


def _make_numpy_kind(mpi: Any, dtype: np.dtype[Any], ufunc: np.ufunc) -> tuple[Any, Any]:
    """Ranks are combined in order, for NumPy's operations are not commutative to the last bit
    either (-0.0 and 0.0, NaNs).
    """

    def combine(first: Any, second: Any, _datatype: Any) -> None:
        result = np.frombuffer(second, dtype)
        ufunc(np.frombuffer(first, dtype), result, out=result)

    opaque = mpi.BYTE.Create_contiguous(dtype.itemsize)
    opaque.Commit()
    return opaque, mpi.Op.Create(combine, commute=False)
