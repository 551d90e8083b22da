"""Saving behind the back of a run: it waits for a copy, and the disk waits for nobody."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import SupportsIndex, final

from ._arguments import Arrays, checked_step, pieces_of, plain_state
from ._background import Background
from ._directory import clean_up, refuse_others_checkpoints
from ._errors import CheckpointError, explained
from ._only_writer import only_writer
from ._retention import KeepPolicy, keep_last
from ._save import Reports, save_alone
from ._snapshot import Snapshot
from ._storage import storage_of
from ._write import make_draft

# Shorter waits cost too little to be worth a line.
_LONG_WAIT_SECS = 1.0

_log = logging.getLogger("paceline")

Share = Callable[[str], Reports]
"""Given a draft's path, has the other writers begin; returns how to wait for their reports."""


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
        with explained(self._root, "write to"), ExitStack() as held:
            storage_of(self._root).make_directory(self._root)
            self._hold = held.enter_context(only_writer(self._root, for_run=True))
            storage_of(self._root).try_to_write(self._root)
            if self._hold.is_alone:
                clean_up(self._root)
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
        num_writers: int = 1,
        share: Share | None = None,
    ) -> None:
        """Begins to save `model.ckpt-<step>`; the arrays may change as soon as it returns.

        Args:
            step, arrays, state: see `paceline.checkpoint.save`.
            num_writers: how many processes write a shard each; this one writes the first.
            share: with several writers, called at once as `share(draft)`. It has each of the others
                copy what it holds and begin to `write_shard(draft, index, num_writers, copy)`, and
                returns a function that waits for what they returned. That one is called in the
                background, and the checkpoint is visible only once all have reported.

        Raises:
            CheckpointError: an earlier save failed, or this object is closed.
            TypeError, ValueError: an argument that cannot be saved, before anything is written.
        """
        step, pieces = checked_step(step), pieces_of(arrays)
        content = plain_state(state or {})
        if (num_writers > 1) != (share is not None):
            raise ValueError(f"share is for several writers; num_writers is {num_writers}")
        if self._is_closed:
            raise CheckpointError(f"the Saver of '{self._root}' is closed; make a new one")
        self.prepare()
        with explained(self._root, "save to"):
            self._hold.require()
            draft = make_draft(self._root, step)
        try:
            reports = share(draft) if share else tuple
            copies = self._snapshot.take(pieces)
        except BaseException:
            storage_of(draft).abandon(draft)
            raise
        write = partial(
            save_alone, self._root, self._hold, step, draft, copies, content, self._keep
        )
        self._step = step
        self._write = Background(partial(self._hold_during, partial(write, num_writers, reports)))

    def _hold_during(self, write: Callable[[], str]) -> str:
        """`write()`. The thread that runs this refers to the saver: nobody else may, and the lock
        would go with it in the midst of the write."""
        return write()

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
