"""Several processes that hold the same arrays write a checkpoint together, each a part of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, final

import numpy as np

from ._arguments import Arrays, Piece, pieces_of
from ._background import Background
from ._errors import CheckpointError, explained
from ._names import shard_name
from ._slices import TensorSlice
from ._snapshot import Snapshot
from ._storage import storage_of
from ._write import write_part

_FIRST_PAUSE_SECS: Final = 0.005
_LONGEST_PAUSE_SECS: Final = 0.25


def share_of(
    arrays: Mapping[str, np.ndarray], index: int, count: int
) -> dict[str, np.ndarray | list[TensorSlice]]:
    """What writer `index` of `count` writes of arrays that all of them hold: about as many bytes.

    Large arrays are divided by rows. All writers have the same names in the same order.
    """
    total = sum(array.nbytes for array in arrays.values())
    first, stop = (total * edge // count for edge in (index, index + 1))
    share: dict[str, np.ndarray | list[TensorSlice]] = {}
    offset = 0
    for name, array in arrays.items():
        if array.nbytes == 0 and index == 0:  # no byte says whose it is
            share[name] = array
        if array.nbytes:
            num_rows = len(array) if array.ndim else 1
            begin, end = (
                min(max(0, -(-(edge - offset) * num_rows // array.nbytes)), num_rows)
                for edge in (first, stop)
            )
            if (begin, end) == (0, num_rows):
                share[name] = array
            elif begin < end:
                place = (begin, *(0,) * (array.ndim - 1))
                share[name] = [TensorSlice(array[begin:end], place, array.shape)]
        offset += array.nbytes
    return share


@final
class ShardSaver:
    """Writes one shard of each checkpoint that a `Saver` of another process commits.

    As there, `save` returns when the arrays are copied. The report for who commits is left beside
    the shard, where `collect_reports` finds it.

    Args:
        index, count: which writer this is (0 is the one that commits), and of how many.
    """

    def __init__(self, index: int, count: int) -> None:
        self._shard = shard_name(index, count)
        self._snapshot = Snapshot()
        self._write: Background[None] | None = None

    def save(self, draft: str, arrays: Arrays) -> None:
        """Begins to write a shard of the unfinished checkpoint at `draft`.

        Raises:
            CheckpointError: the one before could not be written.
        """
        pieces = pieces_of(arrays)
        self.wait()
        copies = self._snapshot.take(pieces)
        self._write = Background(partial(_write_and_report, draft, self._shard, copies))

    def check(self) -> None:
        """Raises what has gone wrong in the background; does not wait."""
        if self._write is not None and self._write.is_done():
            self.wait()

    def wait(self) -> None:
        """Blocks until what was saved is written, whether or not it is committed."""
        if self._write is not None:
            self._write.join()
            write, self._write = self._write, None
            write.result()


def _write_and_report(draft: str, shard: str, pieces: Mapping[str, Piece]) -> None:
    try:
        with explained(draft, "write to"):
            report = write_part(draft, shard, pieces).model_dump_json()
    except BaseException as error:
        _leave_report(draft, shard, json.dumps({"error": str(error)}), is_needed=False)
        raise
    _leave_report(draft, shard, report, is_needed=True)


def _leave_report(draft: str, shard: str, report: str, is_needed: bool) -> None:
    try:
        storage_of(draft).replace(_report_path(draft, shard), report)
    except FileNotFoundError:
        pass  # who commits has seen the report and moved the draft, or has given it up
    except OSError as error:
        if is_needed:
            raise CheckpointError(f"cannot write to '{draft}': {error}") from error


def _report_path(draft: str, shard: str) -> str:
    return f"{storage_of(draft).shard_path(draft, shard)}.json"


def collect_reports(
    draft: str, count: int, is_abandoned: Callable[[], bool], timeout_secs: float = 600.0
) -> Sequence[str]:
    """Waits for the reports of all writers of a draft but the first, and takes them away.

    Args:
        draft: the path of the unfinished checkpoint.
        count: the number of writers.
        is_abandoned: asked again and again whether nobody needs the checkpoint any more.
        timeout_secs: how long to wait.

    Raises:
        CheckpointError: a writer could not write, or says nothing.
    """
    deadline = time.monotonic() + timeout_secs
    return [
        _collect(draft, index, count, lambda: is_abandoned() or time.monotonic() > deadline)
        for index in range(1, count)
    ]


def _collect(draft: str, index: int, count: int, is_over: Callable[[], bool]) -> str:
    path, storage = _report_path(draft, shard_name(index, count)), storage_of(draft)
    pause_secs = _FIRST_PAUSE_SECS
    while not storage.exists(path):
        if is_over():
            raise CheckpointError(
                f"worker {index} has not written its part of '{draft}'; model_dir must be on a "
                f"file system that all workers share"
            )
        time.sleep(pause_secs)
        pause_secs = min(2 * pause_secs, _LONGEST_PAUSE_SECS)
    report = storage.read(path).decode()
    storage.remove(path)
    if report.startswith('{"error"'):
        raise CheckpointError(f"worker {index} could not write: {json.loads(report)['error']}")
    return report
