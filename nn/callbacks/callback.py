"""`Callback`: takes part in `Model.fit`, `evaluate` and `predict`, as in Keras."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, final

from ..layers import Layer

Logs: TypeAlias = "dict[str, Any]"
"""Figures by name, over all replicas and workers: loss and metrics; of validation with "val_"."""


class Callback:
    """Told of each event of a run. Write the methods that you need.

    Where there are several workers each has its own callbacks, made alike, and all get the same
    logs, so that what they decide is the same. A callback that writes files does so where
    `strategy.extended.job.is_chief`.

    Attributes:
        model: The model.
        params: Of `fit`: "verbose", "epochs" and "steps" (of an epoch; None where nobody knows).
    """

    model: Any = None

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.validation_data: Any = None

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params

    def set_model(self, model: Layer) -> None:
        self.model = model

    def may_want_batch_logs(self) -> bool:
        """Whether it ever looks at the logs of a batch; by default where it has such a method."""
        kind, own = type(self), ("on_train_batch_end", "on_batch_end", "on_test_batch_end")
        return any(getattr(kind, name) is not getattr(Callback, name) for name in own)

    def wants_batch_logs(self) -> bool:
        """Whether it will look at those of the batch under way: to read them takes time."""
        return self.may_want_batch_logs()

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Older name of `on_train_batch_begin`."""

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Older name of `on_train_batch_end`."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """An epoch of `fit` begins; the first has the number 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """It has ended, its validation too. What is put into `logs` is seen by later callbacks."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Batch number `batch` of the epoch is about to be trained on."""
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """It was; `logs` has the figures of the epoch so far, if `wants_batch_logs`."""
        self.on_batch_end(batch, logs)

    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """A batch is about to be evaluated, in `evaluate` or in the validation of `fit`."""

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """It was."""

    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """A batch is about to be predicted."""

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """It was; `logs["outputs"]` are the predictions."""

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """`fit` begins."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """`fit` has ended in order; `logs` are those of the last epoch."""

    def on_train_interrupted(self) -> None:
        """`fit` was asked to end (by SIGTERM or Ctrl-C), and ends after the batch it has made."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """An evaluation begins."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """It has ended; `logs` are its results."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """A prediction begins."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """It has ended."""


@final
class CallbackList:
    """Several callbacks, told of each event in their order.

    Args:
        callbacks: The callbacks.
        model: Their model.
        params: See `Callback`.

    Raises:
        TypeError: One is none.
    """

    def __init__(self, callbacks: Iterable[Callback], model: Layer, params: dict[str, Any]) -> None:
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    f"callbacks must be objects of paceline.nn.callbacks.Callback or of a "
                    f"subclass, one is {callback!r}"
                )
            callback.set_params(params)
            callback.set_model(model)

    def __iter__(self) -> Iterator[Callback]:
        return iter(self.callbacks)

    def wants_batch_logs(self) -> bool:
        """Whether one of them wants to know the logs after the batch under way."""
        return any(callback.wants_batch_logs() for callback in self.callbacks)

    def tell(self, event: str, *args: Any) -> None:
        """Call the method `event` of each."""
        for callback in self.callbacks:
            try:
                getattr(callback, event)(*args)
            except Exception as error:
                error.add_note(f"Raised by callback {type(callback).__name__} in {event}.")
                raise
