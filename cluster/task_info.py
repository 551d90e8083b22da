"""`TaskInfo`: what `RunConfig` derives from a cluster resolver about this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .resolver import ClusterResolver
from .spec import ClusterError, ClusterSpec, Task, shown


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """A task, and what follows from it. Names and values: those of `tf.estimator.RunConfig`.

    Args:
        task_type, task_id: This process.
        is_chief: It writes checkpoints and summaries of training. (Under a strategy an evaluator
            is the chief of itself.)
        num_worker_replicas: Tasks that train: workers and chief.
        num_ps_replicas: Parameter servers.
        global_id_in_cluster: Chief 0, then workers, then ps; None for an evaluator, which is not
            in the cluster.
        master: URL of this task; empty where it needs no server.
        evaluation_master: The same for evaluation.
        cluster_spec: The training cluster; empty for one process and for an evaluator.
        service: As TF_CONFIG gives it.
        environment: "google" or "cloud" where the platform says so.
        model_dir: The directory that TF_CONFIG names.
        evaluates: This process evaluates too, after each checkpoint: it is alone, or a `master`.
        has_evaluator: The cluster lists an evaluator beside the training tasks.
    """

    task_type: str = "worker"
    task_id: int = 0
    is_chief: bool = True
    num_worker_replicas: int = 1
    num_ps_replicas: int = 0
    global_id_in_cluster: int | None = 0
    master: str = ""
    evaluation_master: str = ""
    cluster_spec: ClusterSpec = field(default_factory=ClusterSpec)
    service: Mapping[str, Any] | None = None
    environment: str = ""
    model_dir: str | None = None
    evaluates: bool = True
    has_evaluator: bool = False

    @property
    def starts_server(self) -> bool:
        """Whether this task serves others: not alone, no evaluator, not on Google's platform."""
        return bool(self.master) and self.environment != "google"

    def refuse_second_evaluator(self) -> None:
        """There is one evaluator: `train_and_evaluate` asks for it.

        Raises:
            ClusterError: This is another one.
        """
        if self.task_type == "evaluator" and self.task_id > 0:
            raise ClusterError(
                f"task.index of the evaluator is {self.task_id} (which may come from TF_CONFIG), "
                f"but there is only one evaluator; give it the index 0 and start no other"
            )


def task_info_of(resolver: ClusterResolver, *, with_strategy: bool) -> TaskInfo:
    """What follows for the process that `resolver` describes.

    Args:
        resolver: Who is in the job, and which task this is.
        with_strategy: A distribution strategy trains or evaluates. Without one the cluster must
            list its chief; with one, worker 0 is the chief if none is listed.

    Raises:
        ClusterError: The resolver names no task, the cluster has no chief, or a second evaluator.
    """
    spec, task, settings = resolver.cluster_spec(), resolver.task, resolver.settings
    if task is None:
        raise ClusterError(
            f"{resolver.source} says task_type={None}, but a run needs to know which task of the "
            f"cluster this process is; give task_type and task_id"
        )
    training = spec.without_evaluator()
    if spec:
        _check_roles(resolver, spec, task, with_strategy)
    shared: dict[str, Any] = {
        "task_type": task.type,
        "task_id": task.index,
        "evaluation_master": settings.eval_session_master or "",
        "service": settings.service,
        "environment": settings.environment,
        "model_dir": settings.model_dir,
        "has_evaluator": spec.num_tasks("evaluator") > 0,
    }
    if task.type == "evaluator":
        info = TaskInfo(
            is_chief=with_strategy,
            num_worker_replicas=0,
            global_id_in_cluster=None,
            evaluates=False,
            **shared,
        )
        if with_strategy:
            info.refuse_second_evaluator()
        return info
    if not training:
        return TaskInfo(master=settings.session_master or "", **shared)
    return TaskInfo(
        is_chief=task == training.chief(),
        num_worker_replicas=len(training.training_tasks()),
        num_ps_replicas=training.num_tasks("ps"),
        global_id_in_cluster=_global_id(training, task),
        master=_master(resolver, training),
        cluster_spec=training,
        evaluates=settings.chief_evaluates and task.type == "chief",
        **shared,
    )


def _check_roles(
    resolver: ClusterResolver, spec: ClusterSpec, task: Task, with_strategy: bool
) -> None:
    if task.type != "evaluator":
        spec.require(task)
    cluster = shown(spec.as_dict(), 600)
    if not with_strategy and not spec.num_tasks("chief"):
        raise ClusterError(
            f"{resolver.source}: cluster is {cluster}, but it must have one 'chief' where no "
            f"strategy trains; give RunConfig(train_distribute=MultiWorkerMirroredStrategy()), "
            f"or list worker 0 as 'chief'"
        )
    if with_strategy and spec.num_tasks("evaluator") > 1:
        raise ClusterError(
            f"{resolver.source}: cluster.evaluator is {shown(spec.as_dict()['evaluator'])}, but "
            f"there is at most one evaluator; list one"
        )


def _global_id(training: ClusterSpec, task: Task) -> int:
    """Chief 0, then workers, then ps. Counted by index, so that a sparse cluster gives the same."""
    if task.type == "ps":
        return len(training.training_tasks()) + task.index
    return task.index + (task.type == "worker" and training.num_tasks("chief"))


def _master(resolver: ClusterResolver, training: ClusterSpec) -> str:
    if resolver.settings.session_master is not None:
        return resolver.settings.session_master
    if len(training.tasks()) < 2:
        return ""
    return resolver.master(rpc_layer=resolver.rpc_layer or "grpc")


def agreed_model_dir(given: str | None, info: TaskInfo) -> str | None:
    """The model_dir of a run: that of `RunConfig`, or that which this task was started with.

    Raises:
        ClusterError: Both are given and differ.
    """
    told = info.model_dir
    if given is not None and told is not None and not is_same_directory(given, told):
        raise ClusterError(
            f"this task was started with model_dir {shown(told)} (in TF_CONFIG, or after "
            f"--model-dir), but RunConfig's model_dir is {shown(given)}; make them equal, or give "
            f"one"
        )
    return told if given is None else given


def is_same_directory(first: str, second: str) -> bool:
    """Whether two texts name one directory, by its path here or its URL."""
    if "://" in first or "://" in second:
        return first.rstrip("/") == second.rstrip("/")
    return os.path.abspath(first) == os.path.abspath(second)
