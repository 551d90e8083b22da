"""Saving behind the back of a run: it waits for a copy, and the disk waits for nobody.

One process saves alone (`Saver`), or several that hold the same arrays each write a part of a
checkpoint: each helper with a `ShardSaver`, and the one that commits with a `Saver`.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, SupportsIndex, final

from .background import Background, BeginDownload, Copies, PendingCopies, Snapshot
from .directory import refuse_others_checkpoints, tidied
from .errors import CheckpointError, explained
from .manifest import MAX_MANIFEST_BYTES
from .names import shard_name
from .places import committer_of, exists, store_of
from .policies import KeepPolicy, keep_last
from .slices import Arrays, pieces_of
from .writing import Draft, OtherWriters, checked_step, plain_state, write_part

# Shorter waits cost too little to be worth a line.
_LONG_WAIT_SECS: Final = 1.0
_FIRST_PAUSE_SECS: Final = 0.005
_LONGEST_PAUSE_SECS: Final = 0.25

_log = logging.getLogger("paceline")


@final
class Saver:
    """The one writer of a model_dir for as long as a run lasts.

        with Saver(model_dir, keep_last(3)) as saver:
            for step, batch in enumerate(batches, start=1):
                train(batch)
                if step % 100 == 0:
                    saver.save(step, arrays)

    `save` returns as soon as it has copied the arrays; writing, checksums, flushing, committing
    and deleting old checkpoints happen in a thread. At most one write is under way: a save that
    comes sooner waits for it. Besides the arrays there is one copy of them in memory.

    What goes wrong in the background is raised, with its own traceback, by the next call of any
    method. To be used by one thread.

    Args:
        model_dir: directory of the checkpoints; created if missing. What killed saves left in it
            is removed.
        keep: which checkpoints remain.

    Raises:
        CheckpointError: it cannot be created or written, it holds checkpoints of TensorFlow's, or
            another job writes there; names that job.
    """

    def __init__(self, model_dir: str | os.PathLike[str], keep: KeepPolicy | None = None) -> None:
        self._root = os.fspath(model_dir)
        self._keep = keep_last(5) if keep is None else keep
        self._snapshot = Snapshot()
        self._write: Background[str] | None = None
        self._step = -1
        self._finished: list[tuple[str, int]] = []
        self._has_warned = False
        self._is_closed = False
        self._held = ExitStack()
        refuse_others_checkpoints(self._root)
        with explained(self._root, "write to model_dir"), ExitStack() as held:
            self._hold = held.enter_context(tidied(self._root, for_run=True))
            committer_of(self._root).try_to_write(self._root)
            self._held = held.pop_all()

    @property
    def model_dir(self) -> str:
        """The directory, as it was given."""
        return self._root

    def save(
        self,
        step: SupportsIndex,
        arrays: Arrays,
        *,
        state: Mapping[str, object] | None = None,
        others: OtherWriters | None = None,
    ) -> None:
        """Begins to save `model.ckpt-<step>`; the arrays may change as soon as it returns.

        Args:
            step, arrays, state, others: see `start`.

        Raises:
            CheckpointError, TypeError, ValueError: see `start`.
        """
        copies = self.start(step, arrays, state=state, others=others)
        # From the other end than the thread: one core alone does not use the memory's bandwidth.
        for copy in reversed(tuple(copies.values())):
            copy()

    def start(
        self,
        step: SupportsIndex,
        arrays: Arrays,
        *,
        state: Mapping[str, object] | None = None,
        others: OtherWriters | None = None,
        download: BeginDownload | None = None,
    ) -> PendingCopies:
        """Begins to save `model.ckpt-<step>`, and returns before the arrays are copied.

        Who changes an array in place calls what is returned for its name first: the array has
        mostly been copied by then, else it is now.

        Args:
            step, arrays, state: see `paceline.checkpoint.save`.
            others: who writes shards beside the first one, which is this process's. They begin
                before this returns, and the checkpoint is visible only once all have reported.
            download: Copies arrays that are not NumPy's; without it these are refused.

        Returns:
            By the names of arrays, functions that return when the array may change.

        Raises:
            CheckpointError: an earlier save failed, or this object is closed.
            TypeError, ValueError: an argument that cannot be saved, before anything is written.
        """
        step, pieces = checked_step(step), pieces_of(arrays, anywhere=download is not None)
        content = plain_state(state or {})
        if self._is_closed:
            raise CheckpointError(f"the Saver of '{self._root}' is closed; make a new one")
        # The one copy is free again only when the write before has ended.
        self.prepare()
        with explained(self._root, "save to model_dir"):
            draft = Draft(self._hold, step, 1 if others is None else 1 + others.num)
        try:
            # The others copy what they hold before this returns: all parts are of one moment.
            if others is not None:
                others.begin(draft.path)
            copies = self._snapshot.begin(pieces, download)
        except BaseException:
            draft.abandon()
            raise
        self._step = step

        # The thread refers to this object. Nobody else may, and the lock would go with it in the
        # midst of the write.
        def write() -> str:
            try:
                copies.finish()
            except BaseException:
                draft.abandon()
                raise
            return draft.finish(copies.pieces, content, self._keep, others)

        self._write = Background(write)
        return copies.before_change

    @property
    def has_finished(self) -> bool:
        """Whether `finished` has something to tell, or to raise."""
        return bool(self._finished) or (self._write is not None and self._write.is_done())

    def finished(self) -> list[tuple[str, int]]:
        """(path, step) of the checkpoints that have become visible since the last call, in order.

        Does not wait. Each is on disk and can be read.
        """
        if self._write is not None and self._write.is_done():
            self.wait()
        finished, self._finished = self._finished, []
        return finished

    def wait(self) -> None:
        """Blocks until everything that was saved is on disk."""
        if self._write is not None:
            self._write.join()  # interrupted here, the write is still under way
            write, self._write = self._write, None
            self._finished.append((write.result(), self._step))

    def close(self) -> None:
        """Waits for the last write, then lets others write to model_dir. Never leaves a thread."""
        self._is_closed = True
        try:
            self.wait()
        finally:
            if self._write is None:
                self._held.close()

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception as own:
            if error is None:
                raise
            _log.error("the last save failed, too: %s", own, exc_info=own)

    def prepare(self) -> None:
        """Waits until the write before has ended, and says so where that takes long.

        `save` does so, too. Who shares the writing with others calls it before they are asked for
        what they hold.
        """
        if self._write is None:
            return
        began = time.monotonic()
        self.wait()
        waited_secs = time.monotonic() - began
        if waited_secs >= _LONG_WAIT_SECS and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "saving to '%s' takes longer than the time between two saves: waited %.1f s for "
                "the one before; save less often",
                self._root,
                waited_secs,
            )


@final
class ShardSaver:
    """Writes one shard of each checkpoint that a `Saver` of another process commits.

    As there, `start` returns before the arrays are copied. The report for who commits is left
    beside the shard, where `collect_reports` finds it.

    Args:
        index, count: which writer this is (0 is the one that commits), and of how many.
    """

    def __init__(self, index: int, count: int) -> None:
        self._shard = shard_name(index, count)
        self._snapshot = Snapshot()
        self._write: Background[None] | None = None

    def start(
        self, draft: str, arrays: Arrays, *, download: BeginDownload | None = None
    ) -> PendingCopies:
        """Begins to write a shard of the unfinished checkpoint at `draft`.

        Args:
            draft, arrays, download: As for `write_shard` and `Saver.start`.

        Returns:
            As `Saver.start`.

        Raises:
            CheckpointError: the one before could not be written.
        """
        pieces = pieces_of(arrays, anywhere=download is not None)
        self.wait()
        copies = self._snapshot.begin(pieces, download)

        self._write = Background(lambda: _write_and_report(draft, self._shard, copies))
        return copies.before_change

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


def _write_and_report(draft: str, shard: str, copies: Copies) -> None:
    try:
        copies.finish()
        with explained(draft, "write to draft"):
            report = write_part(draft, shard, copies.pieces).model_dump_json()
    except BaseException as error:
        _leave_report(draft, shard, json.dumps({"error": str(error)}), is_needed=False)
        raise
    _leave_report(draft, shard, report, is_needed=True)


def _leave_report(draft: str, shard: str, report: str, is_needed: bool) -> None:
    try:
        store_of(draft).replace(_report_path(draft, shard), report)
    except FileNotFoundError:
        pass  # who commits has seen the report and moved the draft, or has given it up
    except OSError as error:
        if is_needed:
            raise CheckpointError(f"cannot write to '{draft}': {error}") from error


def _report_path(draft: str, shard: str) -> str:
    return f"{committer_of(draft).shard_path(draft, shard)}.json"


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
    path = _report_path(draft, shard_name(index, count))
    pause_secs = _FIRST_PAUSE_SECS
    while not exists(path):
        if is_over():
            raise CheckpointError(
                f"worker {index} has not written its part of '{draft}'; model_dir must be on a "
                f"file system that all workers share"
            )
        time.sleep(pause_secs)
        pause_secs = min(2 * pause_secs, _LONGEST_PAUSE_SECS)
    report = store_of(path).read(path, MAX_MANIFEST_BYTES).decode()
    store_of(path).remove(path)
    if report.startswith('{"error"'):
        raise CheckpointError(f"worker {index} could not write: {json.loads(report)['error']}")
    return report
