"""The hooks of one run: who is told of it when. Training, evaluation and prediction share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from .session_run_hook import (
    NO_VALUES,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)


@final
class RunningHooks:
    """Tells hooks of a run, in the order that `SessionRunHook` promises them.

    Args:
        session: The run.
        hooks: Those that are known before it begins; their `begin` is called here.
    """

    def __init__(self, session: Session, hooks: Sequence[SessionRunHook]) -> None:
        self._session = session
        self._context = SessionRunContext(session)
        self._hooks: list[SessionRunHook] = []
        self._requests: list[SessionRunArgs | None] = []
        self._begin(hooks)

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has asked for the end of the run."""
        return self._context.stop_requested

    def created(self, of_the_model: Sequence[SessionRunHook]) -> None:
        """All variables exist.

        Args:
            of_the_model: What the first call of `model_fn` brought. They begin only now, since
                nobody knew of them before.
        """
        self._begin(of_the_model)
        for hook in self._hooks:
            hook.after_create_session(self._session, self._context)

    def before_run(self) -> None:
        """A step is about to be made."""
        self._requests = [hook.before_run(self._context) for hook in self._hooks]
        self._session.will_run([r.fetches for r in self._requests if r is not None])

    def after_run(self) -> None:
        """It was made: each hook gets what it asked for before."""
        for hook, request in zip(self._hooks, self._requests, strict=True):
            hook.after_run(self._context, self._asked_for(request))

    def end(self) -> None:
        """The run has ended in order."""
        for hook in self._hooks:
            hook.end(self._session)

    def _begin(self, hooks: Sequence[SessionRunHook]) -> None:
        for hook in hooks:
            if not isinstance(hook, SessionRunHook):
                raise TypeError(
                    f"hooks must be objects of SessionRunHook or of a subclass, one is {hook!r}; "
                    f"give an instance of such a class"
                )
            hook.begin()
            self._hooks.append(hook)

    def _asked_for(self, request: SessionRunArgs | None) -> SessionRunValues:
        if request is None:
            return NO_VALUES
        return SessionRunValues(self._session.run(request.fetches))
