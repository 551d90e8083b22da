"""Exporters: what `train_and_evaluate` exports after an evaluation."""

from __future__ import annotations

import inspect
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

import numpy as np

from ...checkpoint import (
    delete_old_exports,
    list_exports,
    read_json,
    write_text,
)

_RECORD = "best_eval_result.json"
_ARGUMENTS = ["best_eval_result", "current_eval_result"]

Assets = Mapping[str, "str | os.PathLike[str]"]


class Exportable(Protocol):
    """What an exporter needs to know of an Estimator."""

    @property
    def model_dir(self) -> str: ...

    @property
    def params(self) -> dict[str, Any]: ...

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Assets | None = None,
        as_text: bool = False,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> str: ...


class Exporter(ABC):
    """Decides, after each evaluation, whether to export what was evaluated.

    `train_and_evaluate` calls it in one process of a job: the evaluator, or else the chief.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Names its directory, `export/<name>` below `model_dir`."""

    @abstractmethod
    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        """Export, or not.

        It is called once for each evaluation. Where nobody knew yet that it was the last one, it is
        called once more for that when training has ended.

        Args:
            estimator: Whose model it is.
            export_path: Where exports go.
            checkpoint_path: What was evaluated.
            eval_result: What `evaluate` found.
            is_the_final_export: Whether training has ended with this checkpoint.

        Returns:
            The path of the export; None if there is none.
        """


class _SavedModels:
    """How an exporter writes, and what it keeps.

    Args:
        name: Of the exporter.
        receiver_fn, assets_extra, as_text: For `Estimator.export_saved_model`.
        exports_to_keep: How many remain; None keeps all.

    Raises:
        ValueError: The name is empty, or the number is not positive.
        TypeError: There is no receiver function.
    """

    def __init__(
        self,
        name: str,
        receiver_fn: Callable[[], Any] | None,
        assets_extra: Assets | None,
        as_text: bool,
        exports_to_keep: int | None,
    ) -> None:
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError(
                f"exports_to_keep must be > 0, or None for all; it is {exports_to_keep}"
            )
        if not callable(receiver_fn):
            raise TypeError(
                f"the exporter {name!r} needs a serving_input_receiver_fn, as "
                f"paceline.estimator.export.build_raw_serving_input_receiver_fn makes one; "
                f"got {receiver_fn!r}"
            )
        self.name = name
        self._receiver_fn = receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text
        self._exports_to_keep = exports_to_keep

    def write(self, estimator: Exportable, export_path: str, checkpoint_path: str) -> str:
        path = estimator.export_saved_model(
            export_path, self._receiver_fn, self._assets_extra, self._as_text, checkpoint_path
        )
        delete_old_exports(export_path, self._exports_to_keep)
        return path


@final
class LatestExporter(Exporter):
    """Exports after each evaluation.

    Args:
        name: Of its directory.
        serving_input_receiver_fn, assets_extra, as_text: As for `Estimator.export_saved_model`.
        exports_to_keep: How many exports remain, the newest ones; None keeps all.

    Raises:
        ValueError, TypeError: An argument that cannot be.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Assets | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        self._models = _SavedModels(
            name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep
        )
        self._exported = ""

    @property
    def name(self) -> str:
        return self._models.name

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        if checkpoint_path == self._exported:  # it is the last one, as is known only now
            return None
        path = self._models.write(estimator, export_path, checkpoint_path)
        self._exported = checkpoint_path
        return path


@final
class FinalExporter(Exporter):
    """Exports once, when training has ended.

    Args:
        name: Of its directory.
        serving_input_receiver_fn, assets_extra, as_text: As for `Estimator.export_saved_model`.

    Raises:
        ValueError, TypeError: An argument that cannot be.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Assets | None = None,
        as_text: bool = False,
    ) -> None:
        self._models = _SavedModels(name, serving_input_receiver_fn, assets_extra, as_text, None)

    @property
    def name(self) -> str:
        return self._models.name

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        if not is_the_final_export:
            return None
        return self._models.write(estimator, export_path, checkpoint_path)


@final
class BestExporter(Exporter):
    """Exports what is better than all that it has exported before, also before a restart.

    What the best evaluation had found lies beside the exports, and is read before each comparison.
    Who deletes all exports begins anew.

    Args:
        name: Of its directory.
        serving_input_receiver_fn, assets_extra, as_text: As for `Estimator.export_saved_model`.
        event_file_pattern: Changes nothing: TensorFlow reads the best result from event files.
        compare_fn: `compare_fn(best_eval_result, current_eval_result)` says whether the current one
            is better; by default, whether its loss is smaller.
        exports_to_keep: How many exports remain, the newest, which are the best; None keeps all.

    Raises:
        ValueError, TypeError: An argument that cannot be, or a function of other arguments.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., Any] | None = None,
        assets_extra: Assets | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        self._models = _SavedModels(
            name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep
        )
        self._is_better = _checked(_loss_is_smaller if compare_fn is None else compare_fn)

    @property
    def name(self) -> str:
        return self._models.name

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        best = _read_record(export_path)
        current = dict(eval_result)
        if best is not None and not self._is_better(
            best_eval_result=best, current_eval_result=current
        ):
            return None
        path = self._models.write(estimator, export_path, checkpoint_path)
        # Only now: killed in between, the next one is exported although this was better. The other
        # way round this one would be missing for good.
        listed = {name: np.asarray(value).tolist() for name, value in current.items()}
        write_text(export_path, _RECORD, json.dumps(listed))
        return path


def _read_record(export_path: str) -> dict[str, Any] | None:
    """What the best evaluation had found; None where nothing is exported (any more).

    Raises:
        ValueError: It cannot be understood.
    """
    try:
        found = read_json(export_path, _RECORD)
        if found is None or not list_exports(export_path):
            return None
        return {name: _as_measured(value) for name, value in found.items()}
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{_RECORD} in {export_path} is damaged ({error}), so that nobody can say which "
            f"export is the best; delete it, and the next evaluation is exported"
        ) from error


def _as_measured(value: Any) -> Any:
    return np.array(value, np.float32) if isinstance(value, list) else value


def _loss_is_smaller(best_eval_result: Any, current_eval_result: Any) -> bool:
    best, current = float(best_eval_result["loss"]), float(current_eval_result["loss"])
    return current < best or (math.isnan(best) and not math.isnan(current))


def _checked(compare_fn: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(compare_fn):
        raise TypeError(f"compare_fn must be a function, it is {compare_fn!r}")
    names = inspect.signature(compare_fn).parameters
    if [name for name in _ARGUMENTS if name not in names] or len(names) != len(_ARGUMENTS):
        raise ValueError(
            f"compare_fn must be a function of ({', '.join(_ARGUMENTS)}), it takes "
            f"({', '.join(names)})"
        )
    return compare_fn


@final
class Exports:
    """Calls exporters after evaluations, in the one process of a job that exports.

    Args:
        estimator: Whose model is exported.
        exporters: Whom to call, as an `EvalSpec` has them; none where another task exports.
    """

    def __init__(self, estimator: Exportable, exporters: Any) -> None:
        self._estimator = estimator
        self._exporters = checked_exporters(exporters)
        self._paths: dict[str, str] = {}
        self._latest: tuple[str, Mapping[str, Any]] | None = None

    @property
    def paths(self) -> list[str]:
        """The latest export of each exporter that has made one."""
        return list(self._paths.values())

    def evaluated(
        self, checkpoint_path: str, eval_result: Mapping[str, Any], is_final: bool
    ) -> None:
        """A checkpoint was evaluated."""
        for exporter in self._exporters:
            base = os.path.join(self._estimator.model_dir, "export", exporter.name)
            path = exporter.export(
                estimator=self._estimator,
                export_path=base,
                checkpoint_path=checkpoint_path,
                eval_result=eval_result,
                is_the_final_export=is_final,
            )
            if path is not None:
                self._paths[exporter.name] = path
        self._latest = None if is_final else (checkpoint_path, eval_result)

    def ended(self) -> None:
        """Training has ended with the checkpoint that was evaluated last."""
        if self._latest is not None:
            self.evaluated(*self._latest, is_final=True)


def checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    """The exporters of an `EvalSpec`: one, or several with names of their own.

    Raises:
        TypeError: One is no `Exporter`.
        ValueError: A name is empty, or that of two.
    """
    listed = (exporters,) if isinstance(exporters, Exporter) else tuple(exporters or ())
    for exporter in listed:
        if not isinstance(exporter, Exporter):
            raise TypeError(
                f"EvalSpec: exporters are objects of paceline.estimator.Exporter, one is "
                f"{exporter!r}"
            )
        if not isinstance(exporter.name, str) or not exporter.name:
            raise ValueError(f"EvalSpec: {exporter!r} needs a name that is not empty")
    names = [exporter.name for exporter in listed]
    if len(set(names)) < len(names):
        raise ValueError(
            f"EvalSpec: the exporters are named {', '.join(names)}; each needs a name of its own, "
            f"which is that of its directory"
        )
    return listed
