"""`LambdaCallback`: functions in the place of methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .callback import Callback

_EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class LambdaCallback(Callback):
    """Calls functions.

    Args:
        on_epoch_begin, on_epoch_end: `(epoch, logs)`.
        on_batch_begin, on_batch_end: `(batch, logs)`.
        on_train_begin, on_train_end: `(logs)`.
        **others: The same for any other method of `Callback` whose name begins with "on_".

    Raises:
        TypeError: There is no such method.
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_batch_begin: Callable[..., Any] | None = None,
        on_batch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        **others: Callable[..., Any] | None,
    ) -> None:
        super().__init__()
        functions: dict[str, Any] = {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_batch_begin": on_batch_begin,
            "on_batch_end": on_batch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            **others,
        }
        for name, function in functions.items():
            if name not in _EVENTS:
                raise TypeError(f"LambdaCallback has no {name!r}; there are {', '.join(_EVENTS)}")
            if function is not None:
                setattr(self, name, function)
        ends = ("on_batch_end", "on_train_batch_end", "on_test_batch_end")
        self._reads_batches = any(functions.get(name) is not None for name in ends)

    def may_want_batch_logs(self) -> bool:
        return self._reads_batches
