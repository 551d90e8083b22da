"""Hooks that only hand values over: at the end of a run, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...training import Session, SessionRunHook


class FinalOpsHook(SessionRunHook):
    """Keeps values as they are at the orderly end of a run.

    Args:
        final_ops: What to keep: see `SessionRunArgs`.
        final_ops_feed_dict: Of TensorFlow's sessions; must be None.

    Raises:
        ValueError: A `final_ops_feed_dict`.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: None = None) -> None:
        if final_ops_feed_dict is not None:
            raise ValueError(
                "FinalOpsHook: there is no session to take a final_ops_feed_dict; leave it out"
            )
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values, in the structure of `final_ops`; None before the end."""
        return self._values

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        session.ask_at_end(self._final_ops)

    def end(self, session: Session) -> None:
        self._values = session.run(self._final_ops)


class FeedFnHook(SessionRunHook):
    """Cannot be made: there are no placeholders that a hook could feed.

    Args:
        feed_fn: What TensorFlow's hook takes.

    Raises:
        ValueError: Always; it says what to use.
    """

    def __init__(self, feed_fn: Callable[[], Any]) -> None:
        self._refuse(feed_fn)

    def _refuse(self, feed_fn: Callable[[], Any]) -> NoReturn:
        raise ValueError(
            f"FeedFnHook({feed_fn!r}): model_fn has no placeholders to be fed; let input_fn give "
            f"what changes from batch to batch, as in Dataset.from_generator(...), and read what "
            f"depends on the step from get_or_create_global_step() in model_fn"
        )
