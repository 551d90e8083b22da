"""`RunConfig`: how a run is to be made, as opposed to what it computes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ..cluster import ClusterResolver, TaskInfo, agreed_model_dir, resolve, task_info_of
from ..strategies import Strategy
from .setting_errors import explained


@dataclass(frozen=True)
class DistributeConfig:
    """TensorFlow's other way of giving a `RunConfig` its strategies.

    Args:
        train_distribute, eval_distribute: As those of `RunConfig`.
        remote_cluster: Must be None: one client that drives servers elsewhere is not supported.
    """

    train_distribute: Strategy | None = None
    eval_distribute: Strategy | None = None
    remote_cluster: Any = None

    def __post_init__(self) -> None:
        if self.remote_cluster is not None:
            raise ValueError(
                f"remote_cluster={self.remote_cluster!r} asks one client to drive servers "
                f"elsewhere, which is not supported; start the same script in every task instead, "
                f"with TF_CONFIG, mpirun or `paceline launch`"
            )


def _in_python(what: str) -> WithJsonSchema:
    """In a JSON schema: null, as only Python can give it another value."""
    return WithJsonSchema({"type": "null", "description": f"{what}; JSON cannot give one"})


_STEPS: Final = WithJsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
_Strategy: TypeAlias = Annotated[Strategy | None, _in_python("A paceline.Strategy")]


class RunConfig(BaseModel):
    """The settings of a run: where to save, how often, under which strategies.

    Frozen; `replace` makes a changed copy. Names, defaults and the order of those that may be given
    by position are those of `tf.estimator.RunConfig`.

    Args:
        model_dir: Where checkpoints go. None: where TF_CONFIG says, or else a temporary directory,
            which a warning names.
        tf_random_seed: Seeds initial values, dropout and shuffling. None: different each time.
        save_checkpoints_steps, save_checkpoints_secs: Save every so many steps, or seconds: one of
            them. Setting one clears the other; both None saves only at the start and the end.
        keep_checkpoint_max: The number of checkpoints to keep; 0 or None keeps all.
        save_checkpoints_on_sigterm: Whether SIGTERM, by which schedulers say that they take the
            machine away, and Ctrl-C end the run after its step, with a checkpoint; with the exit
            code 143, or as a KeyboardInterrupt. A second one ends it at once.
        save_checkpoints_sharded: Whether each worker writes a part of a checkpoint instead of the
            chief all of it; `model_dir` is then on a file system that all of them share.
        keep_checkpoint_every_n_hours: Keep one for good every so many hours; None keeps none.
        keep_checkpoint_steps: Keep those of these steps for good: a set, or a range such as
            `range(0, 10**9, 1000)`.
        keep_checkpoint_best: Keep the best by this metric, of those that were evaluated: "loss", or
            "accuracy", or "validation/loss" of an evaluation that is named.
        keep_checkpoint_best_max, keep_checkpoint_best_mode: How many of them, and whether the
            smallest is the best ("min") or the largest ("max").
        log_step_count_steps: Steps between log lines with loss and steps per second; None turns
            them off.
        log_gradient_norm: Whether summaries and the history have the norm of the gradients.
        profile_steps: The global steps of which each worker writes a timeline into `model_dir`,
            such as `range(100, 105)`: see `ProfilerHook`.
        report: Whether the chief writes `report.html` into `model_dir` at the end of training, and
            an evaluator after its last evaluation: see `paceline report`.
        train_distribute, eval_distribute: The strategies of training and of evaluation; by
            default that which is current.
        experimental_distribute: Both of them as a `DistributeConfig`.
        save_summary_steps: Steps between summaries for TensorBoard, and between lines of the run's
            history in `model_dir/history`; 0 or None writes neither.
        experimental_max_worker_delay_secs: Lets workers that make steps of their own (parameter
            servers, without `max_staleness=0`) begin one after the other: worker i waits 5 (i + 1)
            seconds, but no longer than this. None or 0: all begin at once.
        gradient_accumulation_steps: How many batches of its input each replica takes for one step:
            their gradients are added up where they are, weighted by examples, and exchanged and
            applied once, as those of one batch of all. The global step counts updates; the last
            one takes what is left of the input.
        replay_steps: The promise that `model_fn` computes the same of each batch, as a graph of
            TensorFlow's did. After two calls with tensors for batches of certain shapes the
            operations that both have called are called again, and `model_fn` is not. Where
            they cannot be, a warning says why, and it goes on being called. "captured": on a
            GPU they are one CUDA graph. See docs/estimator.md.
        session_config, device_fn, protocol, session_creation_timeout_secs,
            checkpoint_save_graph_def: Accepted for TensorFlow's
            signature and checked as there. They have no effect; `Estimator` warns of those given.

    Raises:
        ValueError: A setting that does not exist, or a value out of range; or model_dir is another
            one than that of TF_CONFIG.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        defer_build=True,  # its validator is made when the first one is
        revalidate_instances="never",
        protected_namespaces=(),
    )

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = Field(default=100, ge=0)
    save_checkpoints_steps: int | None = Field(default=None, ge=1)
    save_checkpoints_secs: float | None = Field(default=600, gt=0)
    save_checkpoints_on_sigterm: bool = True
    save_checkpoints_sharded: bool = False
    session_config: Any = None
    keep_checkpoint_max: int | None = Field(default=5, ge=0)
    keep_checkpoint_every_n_hours: float | None = Field(default=10000, gt=0)
    keep_checkpoint_steps: Annotated[range | frozenset[int], _STEPS] = frozenset()
    keep_checkpoint_best: str | None = None
    keep_checkpoint_best_max: int = Field(default=1, ge=1)
    keep_checkpoint_best_mode: Literal["min", "max"] = "min"
    log_step_count_steps: int | None = Field(default=100, ge=1)
    log_gradient_norm: bool = False
    profile_steps: Annotated[range | frozenset[int], _STEPS] = frozenset()
    report: bool = False
    train_distribute: _Strategy = None
    eval_distribute: _Strategy = None
    device_fn: Annotated[Callable[..., Any] | None, _in_python("A function of op")] = None
    protocol: Literal["grpc", "grpc+verbs"] | None = None
    experimental_distribute: Annotated[
        DistributeConfig | None, _in_python("A DistributeConfig")
    ] = None
    experimental_max_worker_delay_secs: int | None = Field(default=None, ge=0)
    session_creation_timeout_secs: float | None = Field(default=7200, gt=0)
    checkpoint_save_graph_def: bool | None = True
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    replay_steps: bool | Literal["captured"] = False

    _task_info: TaskInfo = PrivateAttr()
    _resolver: ClusterResolver | None = PrivateAttr()

    if not TYPE_CHECKING:  # type checkers see the fields, by keyword

        def __init__(
            self, *positional: Any, _task_info: TaskInfo | None = None, **settings: Any
        ) -> None:
            try:
                super().__init__(**_by_name(positional, settings))
            except ValidationError as error:
                raise ValueError(explained(error, type(self))) from None
            strategy = self.train_distribute or self.eval_distribute
            self._task_info = _task_info or _task_info_under(strategy, os.environ)
            self._resolver = None if strategy is None else strategy.cluster_resolver
            # Past the frozen field, and not as one that was given: a changed copy asks anew.
            vars(self)["model_dir"] = agreed_model_dir(self.model_dir, self._task_info)

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_"):
                raise AttributeError(
                    f"RunConfig cannot be changed; make a changed copy, with "
                    f"config.replace({name}=...)"
                )
            super().__setattr__(name, value)

    @field_validator("model_dir", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        if value is None:
            return None
        try:
            path = os.fsdecode(value)
        except TypeError:
            raise ValueError(f"model_dir must be a path, it is {value!r}") from None
        if path == "":
            raise ValueError("model_dir must not be empty; leave it out for a temporary directory")
        return path

    @field_validator("device_fn")
    @classmethod
    def _device_fn_of_op(cls, value: Any) -> Any:
        if value is not None and [*inspect.signature(value).parameters] != ["op"]:
            raise ValueError("device_fn must be a function of exactly one argument, named op")
        return value

    @model_validator(mode="before")
    @classmethod
    def _one_way_of_distributing(cls, given: Any) -> Any:
        both = given.get("experimental_distribute")
        if isinstance(both, dict):
            both = DistributeConfig(**both)
        if not isinstance(both, DistributeConfig):
            return given
        for name in ("train_distribute", "eval_distribute"):
            strategy, other = getattr(both, name), given.get(name)
            if strategy is not None and other is not None and other is not strategy:
                raise ValueError(
                    f"{name} is given as {other!r} and by experimental_distribute as {strategy!r}; "
                    f"give it once"
                )
            given = {**given, name: strategy if other is None else other}
        return given

    @model_validator(mode="before")
    @classmethod
    def _one_way_of_saving(cls, given: Any) -> Any:
        steps, secs = (given.get(f"save_checkpoints_{unit}") for unit in ("steps", "secs"))
        if steps is not None and secs is not None:
            raise ValueError(
                f"save_checkpoints_steps={steps} and save_checkpoints_secs={secs} exclude each "
                f"other; give one of them"
            )
        if steps is not None or "save_checkpoints_steps" in given:
            given = {"save_checkpoints_secs": None, **given}
        return given

    @model_validator(mode="after")
    def _best_by_a_metric(self) -> Self:
        names = ("keep_checkpoint_best_max", "keep_checkpoint_best_mode")
        given = [n for n in names if getattr(self, n) != type(self).model_fields[n].default]
        if given and self.keep_checkpoint_best is None:
            raise ValueError(
                f"{' and '.join(sorted(given))} cannot choose without a metric; give "
                f"keep_checkpoint_best, such as 'loss'"
            )
        return self

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with some settings changed, validated anew.

        Raises:
            ValueError: A name that cannot be set, or a value out of range.
        """
        derived = [name for name in _DERIVED if name in changes]
        if derived:
            raise ValueError(
                f"replace cannot set {', '.join(derived)}, which the cluster decides; "
                f"describe it in TF_CONFIG, or by the cluster_resolver of train_distribute"
            )
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        # What is replaced by a value clears the other way of saving; by None it clears itself.
        ways = ("save_checkpoints_steps", "save_checkpoints_secs")
        is_set_anew = any(changes.get(way) is not None for way in ways)
        saving = {way: None if is_set_anew else getattr(self, way) for way in ways}
        # The environment is not read again: this process stays the task that it is.
        known = {} if changes.keys() & _DISTRIBUTION else {"_task_info": self.task_info}
        return RunConfig(**{**kept, **saving, **changes, **known})

    @property
    def task_info(self) -> TaskInfo:
        """This process's place in the cluster, as its launcher or the strategy's resolver says."""
        strategy = self.train_distribute or self.eval_distribute
        resolver = None if strategy is None else strategy.cluster_resolver
        if resolver is not self._resolver:  # the strategy was configured for a cluster since
            self._task_info = _task_info_under(strategy, os.environ)
            self._resolver = resolver
        return self._task_info

    @property
    def service(self) -> Any:
        return self.task_info.service

    @property
    def cluster_spec(self) -> dict[str, Any]:
        return dict(self.task_info.cluster_spec.as_dict())

    @property
    def task_type(self) -> str:
        return self.task_info.task_type

    @property
    def task_id(self) -> int:
        return self.task_info.task_id

    @property
    def global_id_in_cluster(self) -> int | None:
        return self.task_info.global_id_in_cluster

    @property
    def master(self) -> str:
        return self.task_info.master

    @property
    def evaluation_master(self) -> str:
        return self.task_info.evaluation_master

    @property
    def is_chief(self) -> bool:
        return self.task_info.is_chief

    @property
    def num_ps_replicas(self) -> int:
        return self.task_info.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        return self.task_info.num_worker_replicas

    @property
    def distribute_coordinator_mode(self) -> None:
        """TensorFlow's; None: each worker is a client of its own."""
        return None

    def describe(self) -> str:
        """All settings and what this process is in the cluster, for the log."""
        names = (*type(self).model_fields, *_DERIVED)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def describe_changes(self) -> str:
        """The settings that are not at their defaults, and the place in a cluster if there is one.

        It fits a line of a terminal, where `describe` takes seven.
        """
        fields = type(self).model_fields
        changed = [name for name, f in fields.items() if getattr(self, name) != f.default]
        place = ("task_type", "task_id", "cluster_spec") if self.cluster_spec else ()
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in (*changed, *place))

    def without_effect(self) -> list[str]:
        """What was given and does nothing here, as sentences for the log."""
        given = [n for n in _WITHOUT_EFFECT if n in self.model_fields_set and getattr(self, n)]
        return [f"{name}={getattr(self, name)!r}: {_WITHOUT_EFFECT[name]}" for name in given]


_POSITIONS: Final = (
    "model_dir",
    "tf_random_seed",
    "save_summary_steps",
    "save_checkpoints_steps",
    "save_checkpoints_secs",
    "session_config",
    "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours",
    "log_step_count_steps",
    "train_distribute",
    "device_fn",
    "protocol",
    "eval_distribute",
    "experimental_distribute",
    "experimental_max_worker_delay_secs",
    "session_creation_timeout_secs",
    "checkpoint_save_graph_def",
)
"""The order of TensorFlow's arguments."""

_DERIVED: Final = (
    "service",
    "cluster_spec",
    "task_type",
    "task_id",
    "global_id_in_cluster",
    "master",
    "evaluation_master",
    "is_chief",
    "num_ps_replicas",
    "num_worker_replicas",
    "distribute_coordinator_mode",
)
"""What follows from the cluster; TensorFlow prints it with the settings."""

_WITHOUT_EFFECT: Final = {
    "session_config": "there are no sessions",
    "device_fn": "the strategy says where variables live",
    "protocol": "CommunicationOptions of the strategy say how tasks talk",
    "session_creation_timeout_secs": "CommunicationOptions(start_timeout_secs=...) does that",
    "checkpoint_save_graph_def": "there is no graph to save",
}


_DISTRIBUTION: Final = {"train_distribute", "eval_distribute", "experimental_distribute"}
"""The settings on which it depends what this process is in the job."""


def _task_info_under(strategy: Strategy | None, environ: Mapping[str, str]) -> TaskInfo:
    """What this process is in the job, as the strategy's resolver or its launcher says."""
    resolver = None if strategy is None else strategy.cluster_resolver
    return task_info_of(resolver or resolve(environ), with_strategy=strategy is not None)


def _by_name(positional: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """All settings by their names.

    Raises:
        TypeError: More are given than have a position, or one is given twice.
    """
    if len(positional) > len(_POSITIONS):
        raise TypeError(
            f"RunConfig takes at most {len(_POSITIONS)} arguments by position, "
            f"{len(positional)} are given; name the others"
        )
    named = dict(zip(_POSITIONS, positional, strict=False))
    twice = sorted(named.keys() & settings.keys())
    if twice:
        raise TypeError(
            f"RunConfig got {', '.join(twice)} by position and by name; give each of them once"
        )
    return {**named, **settings}


def _show_settings() -> None:
    """Let `help` and editors show what `RunConfig` takes; its `__init__` takes anything."""
    fields = RunConfig.model_fields
    names = [*_POSITIONS, *(name for name in fields if name not in _POSITIONS)]
    by_position, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    settings = [
        inspect.Parameter(
            name, by_position if name in _POSITIONS else by_name, default=fields[name].default
        )
        for name in names
    ]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(RunConfig)["__init__"].__signature__ = inspect.Signature([own, *settings])


_show_settings()
