"""`RunConfig`: how a run is to be made, as opposed to what it computes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from ..cluster import Place, place_of, resolve
from ..strategies import Strategy


class RunConfig(BaseModel):
    """The settings of a run: where to save, how often, under which strategies.

    Frozen; `replace` makes a changed copy. Names and defaults: those of `tf.estimator.RunConfig`.

    Args:
        model_dir: Where checkpoints go. None: a temporary directory, which a warning names.
        tf_random_seed: Seeds initial values, dropout and shuffling. None: different each time.
        save_summary_steps: Steps between summaries; 0 turns them off.
        save_checkpoints_steps, save_checkpoints_secs: Save every so many steps, or seconds: one of
            them. Setting one clears the other; both None saves only at the start and the end.
        keep_checkpoint_max: The number of checkpoints to keep; 0 or None keeps all.
        save_checkpoints_on_sigterm: Whether SIGTERM, by which schedulers say that they take the
            machine away, ends the run after its step, with a checkpoint and the exit code 143.
        save_checkpoints_sharded: Whether each worker writes a part of a checkpoint instead of the
            chief all of it; `model_dir` is then on a file system that all of them share.
        keep_checkpoint_every_n_hours: Keep one for good every so many hours.
        keep_checkpoint_steps: Keep those of these steps for good: a set, or a range such as
            `range(0, 10**9, 1000)`.
        keep_checkpoint_best: Keep the best by this metric, of those that were evaluated: "loss", or
            "accuracy", or "validation/loss" of an evaluation that is named.
        keep_checkpoint_best_max, keep_checkpoint_best_mode: How many of them, and whether the
            smallest is the best ("min") or the largest ("max").
        log_step_count_steps: Steps between log lines with loss and steps per second; None turns
            them off.
        train_distribute, eval_distribute: The strategies of training and of evaluation; by
            default that which is current.
        session_config, device_fn, protocol, experimental_distribute,
            experimental_max_worker_delay_secs, session_creation_timeout_secs,
            checkpoint_save_graph_def: Accepted for TensorFlow's signature.

    Raises:
        pydantic.ValidationError: A ValueError that names the field, the rule and the value.
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
    save_summary_steps: int = Field(default=100, ge=0)
    save_checkpoints_steps: int | None = Field(default=None, ge=1)
    save_checkpoints_secs: float | None = Field(default=600, gt=0)
    save_checkpoints_on_sigterm: bool = True
    save_checkpoints_sharded: bool = False
    session_config: Any = None
    keep_checkpoint_max: int | None = Field(default=5, ge=0)
    keep_checkpoint_every_n_hours: float = Field(default=10000, gt=0)
    keep_checkpoint_steps: range | frozenset[int] = frozenset()
    keep_checkpoint_best: str | None = None
    keep_checkpoint_best_max: int = Field(default=1, ge=1)
    keep_checkpoint_best_mode: Literal["min", "max"] = "min"
    log_step_count_steps: int | None = Field(default=100, ge=1)
    train_distribute: Strategy | None = None
    eval_distribute: Strategy | None = None
    device_fn: Callable[..., Any] | None = None
    protocol: str | None = None
    experimental_distribute: Any = None
    experimental_max_worker_delay_secs: int | None = Field(default=None, ge=0)
    session_creation_timeout_secs: float = Field(default=7200, gt=0)
    checkpoint_save_graph_def: bool = True

    _place: Place = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Find out this process's place in the cluster, once."""
        strategy = self.train_distribute or self.eval_distribute
        resolver = strategy.cluster_resolver if strategy is not None else None
        with_strategy = strategy is not None
        self._place = place_of(resolver or resolve(os.environ), with_strategy=with_strategy)

    @field_validator("model_dir", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        if value is None:
            return None
        value = os.fspath(value)
        if value == "":
            raise ValueError("model_dir must not be empty; leave it out for a temporary directory")
        return value

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
        given = self.model_fields_set & {"keep_checkpoint_best_max", "keep_checkpoint_best_mode"}
        if given and self.keep_checkpoint_best is None:
            raise ValueError(
                f"{' and '.join(sorted(given))} say nothing without a metric; give "
                f"keep_checkpoint_best, such as 'loss'"
            )
        return self

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with some settings changed, validated anew.

        Raises:
            ValueError: A name that cannot be set, or a value out of range.
        """
        settable = set(type(self).model_fields)
        unknown = sorted(set(changes) - settable)
        if unknown:
            raise ValueError(
                f"replace cannot set {', '.join(unknown)}; it can set {', '.join(sorted(settable))}"
            )
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        if changes.get("save_checkpoints_steps") or changes.get("save_checkpoints_secs"):
            kept.pop("save_checkpoints_steps", None)
            kept.pop("save_checkpoints_secs", None)
        return RunConfig(**{**kept, **changes})

    @property
    def place(self) -> Place:
        """This process's place in the cluster, as its launcher or the strategy's resolver says."""
        return self._place

    @property
    def service(self) -> Any:
        return self._place.service

    @property
    def cluster_spec(self) -> dict[str, Any]:
        return dict(self._place.cluster_spec.as_dict())

    @property
    def task_type(self) -> str:
        return self._place.task_type

    @property
    def task_id(self) -> int:
        return self._place.task_id

    @property
    def global_id_in_cluster(self) -> int | None:
        return self._place.global_id_in_cluster

    @property
    def master(self) -> str:
        return self._place.master

    @property
    def evaluation_master(self) -> str:
        return self._place.evaluation_master

    @property
    def is_chief(self) -> bool:
        return self._place.is_chief

    @property
    def num_ps_replicas(self) -> int:
        return self._place.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        return self._place.num_worker_replicas

    def describe(self) -> str:
        """All settings and the place in the cluster, for the log."""
        names = [*type(self).model_fields, *_PLACE]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


_PLACE = (
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
)
