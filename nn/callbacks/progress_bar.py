"""`ProgbarLogger`: Keras's lines and bar of the progress of `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from ...observe import Progress, progress_for_launcher
from .callback import Callback, Logs
from .chief import is_chief

_WIDTH = 30
_SECS_BETWEEN_DRAWINGS = 0.1


class ProgbarLogger(Callback):
    """Print how far the work is, on the chief.

    On a terminal a bar moves. Elsewhere a line is printed when an epoch, or an evaluation, ends.

    Args:
        count_mode: Has no effect: steps are counted.
        stateful_metrics: Has no effect: all figures are those of the epoch so far.
        verbose: 1: the bar; 2: a line for each epoch, without a bar; "auto": 1 on a terminal, else
            2; None: as `fit` was told.
    """

    def __init__(
        self,
        count_mode: str = "steps",
        stateful_metrics: Any = None,
        verbose: int | str | None = None,
    ) -> None:
        super().__init__()
        self._given = verbose
        self._verbose = 0
        self._is_in_fit = False
        self._total: int | None = None
        self._done = 0
        self._began = self._drawn = self._first_step_end = 0.0
        self._longest = 0
        self._remote: Progress | None = None

    @property
    def _moves(self) -> bool:
        return self._verbose == 1 and _is_terminal()

    def set_params(self, params: dict[str, Any]) -> None:
        super().set_params(params)
        given = params.get("verbose", 1) if self._given is None else self._given
        self._verbose = (1 if _is_terminal() else 2) if given == "auto" else int(given)

    def may_want_batch_logs(self) -> bool:
        return self._moves and is_chief(self.model)

    def wants_batch_logs(self) -> bool:
        is_due = time.monotonic() - self._drawn >= _SECS_BETWEEN_DRAWINGS
        return is_due and self.may_want_batch_logs()

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not is_chief(self.model):
            self._verbose = 0
        self._is_in_fit, self._total = True, self.params.get("steps")

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        num_epochs = self.params.get("epochs") or 1
        if self._verbose and num_epochs > 1:
            self._print(f"Epoch {epoch + 1}/{num_epochs}\n")
        self._begin(f"epoch {epoch + 1}/{num_epochs}")

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._step(logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._end(logs, is_epoch=True)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._is_in_fit = False

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._begin_alone("evaluation")

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._step_alone(logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        self._end_alone(logs)

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._begin_alone("prediction")

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._step_alone(None)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._end_alone(None)

    def _begin_alone(self, description: str) -> None:
        # The validation of `fit` has no bar of its own: its figures come at the end of the epoch.
        if not self._is_in_fit:
            if not is_chief(self.model):
                self._verbose = 0
            self._total = self.params.get("steps")
            self._begin(description)

    def _step_alone(self, logs: Logs | None) -> None:
        if not self._is_in_fit:
            self._step(logs)

    def _end_alone(self, logs: Logs | None) -> None:
        if not self._is_in_fit:
            self._end(logs, is_epoch=False)

    def _begin(self, description: str) -> None:
        self._done = self._longest = 0
        self._began, self._drawn = time.monotonic(), 0.0
        if self._verbose and not self._moves:
            # For a launcher, which draws a bar of its own for what its chief tells.
            self._remote = progress_for_launcher(self._total, description)

    def _step(self, logs: Logs | None) -> None:
        self._done += 1
        now = time.monotonic()
        if self._done == 1:
            self._first_step_end = now
        if self._remote is not None:
            self._remote.update(self._done)
        elif self._moves and logs and now - self._drawn >= _SECS_BETWEEN_DRAWINGS:
            self._drawn = now
            self._draw(moving_line(self._done, self._total, self._secs_per_step(now), logs))

    def _end(self, logs: Logs | None, is_epoch: bool) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        self._total = self._done  # known from now on
        now = time.monotonic()
        secs, each = now - self._began, self._secs_per_step(now)
        if self._verbose == 1:
            self._draw(last_line(self._done, self._total, secs, each, logs or {}))
            self._print("\n")
        elif self._verbose:
            self._print(f"{short_line(self._done, secs, each, logs or {}, is_epoch)}\n")

    def _secs_per_step(self, now: float) -> float:
        """Without the first step, which makes the model, where there are others."""
        if self._done > 1:
            return (now - self._first_step_end) / (self._done - 1)
        return now - self._began

    def _draw(self, line: str) -> None:
        """Replace the line that is on the terminal."""
        back = "\r" if self._longest else ""
        self._longest = max(self._longest, len(line))
        self._print(back + line.ljust(self._longest if back else 0))

    @staticmethod
    def _print(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def moving_line(
    done: int, total: int | None, secs_per_step: float, figures: Mapping[str, Any]
) -> str:
    """As ` 3/10 [=====>........] - ETA: 1s - loss: 0.5000`."""
    left = "" if total is None else f" - ETA: {_clock(secs_per_step * (total - done))}"
    return f"{_bar(done, total)}{left}{_figures(figures)}"


def last_line(
    done: int, total: int, secs: float, secs_per_step: float, figures: Mapping[str, Any]
) -> str:
    """As `10/10 [==============] - 0s 2ms/step - loss: 0.5000`."""
    times = f" - {secs:.0f}s{_duration(secs_per_step, 'step')}"
    return f"{_bar(done, max(total, done))}{times}{_figures(figures)}"


def short_line(
    done: int, secs: float, secs_per_step: float, figures: Mapping[str, Any], is_epoch: bool
) -> str:
    """As `10/10 - 0s - loss: 0.5000 - 20ms/epoch - 2ms/step`."""
    times = f" -{_duration(secs, 'epoch')}" if is_epoch else ""
    each = f" -{_duration(secs_per_step, 'step')}"
    return f"{done}/{done} - {secs:.0f}s{_figures(figures)}{times}{each}"


def _bar(done: int, total: int | None) -> str:
    if total is None:
        return f"{done:7d}/Unknown"
    filled = int(_WIDTH * done / total)
    arrow = "=" * max(0, filled - 1) + (">" if done < total else "=") if filled else ""
    return f"{done:{len(str(total))}d}/{total} [{arrow}{'.' * (_WIDTH - filled)}]"


def _figures(figures: Mapping[str, Any]) -> str:
    return "".join(f" - {name}: {_figure(float(value))}" for name, value in figures.items())


def _figure(value: float) -> str:
    return f"{value:.4f}" if abs(value) > 1e-3 else f"{value:.4e}"


def _duration(secs: float, unit: str) -> str:
    if secs >= 1 or secs == 0:
        return f" {secs:.0f}s/{unit}"
    return f" {secs * 1e3:.0f}ms/{unit}" if secs >= 1e-3 else f" {secs * 1e6:.0f}us/{unit}"


def _clock(secs: float) -> str:
    whole = int(secs)
    if whole > 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}" if whole > 60 else f"{whole}s"


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
