"""Cluster resolvers: what the job's cluster is, and which of its tasks this process is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import final

from .spec import TASK_TYPES, ClusterError, ClusterSpec, Task, shown
from .tf_config import JobSettings, parse_tf_config


class ClusterResolver(ABC):
    """A value that says who is in the job and which task this process is.

    The public members are those of `tf.distribute.cluster_resolver.ClusterResolver`. A subclass
    finds out in its `__init__` and hands the result to this one; it reads the environment then,
    and never again.

    Args:
        cluster_spec: All tasks of the job; empty for a job of one process.
        task: This process, None if it is outside the cluster.
        rpc_layer: The scheme of addresses, "grpc" for instance.
        num_accelerators: Kind to number, for instance {"GPU": 2}; None if nobody said.
        settings: What a platform says besides.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        task: Task | None,
        *,
        rpc_layer: str | None = None,
        num_accelerators: Mapping[str, int] | None = None,
        settings: JobSettings | None = None,
    ) -> None:
        self._cluster_spec = cluster_spec
        self._task = task
        self._rpc_layer = rpc_layer
        self._num_accelerators = dict(num_accelerators or {})  # the caller's may change
        self._settings = settings or JobSettings()

    @property
    @abstractmethod
    def source(self) -> str:
        """Who said so, for log lines and errors: "TF_CONFIG", "Slurm", …"""

    def cluster_spec(self) -> ClusterSpec:
        """All tasks of the job; empty for a job of one process."""
        return self._cluster_spec

    @property
    def task(self) -> Task | None:
        """This process, None if it is outside the cluster."""
        return self._task

    @property
    def task_type(self) -> str | None:
        """The role of this process."""
        return self._task.type if self._task else None

    @property
    def task_id(self) -> int | None:
        """The index of this process among those of its role."""
        return self._task.index if self._task else None

    @property
    def rpc_layer(self) -> str | None:
        """The scheme of addresses."""
        return self._rpc_layer

    @property
    def environment(self) -> str:
        """ "google" or "cloud" where the platform says so, else empty."""
        return self._settings.environment

    @property
    def settings(self) -> JobSettings:
        """What the platform says about the job besides who is in it."""
        return self._settings

    def num_accelerators(self) -> dict[str, int]:
        """The accelerators of each task by kind, as given; empty if nobody said.

        {"GPU": 0} says that there are none: the task then computes on its CPU.
        """
        return dict(self._num_accelerators)

    def master(
        self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None
    ) -> str:
        """The URL of a task, by default of this one; empty where no server is needed or known.

        Raises:
            ClusterError: The cluster has no such task.
        """
        if self._settings.session_master is not None:
            return self._settings.session_master
        kind = task_type if task_type is not None else self.task_type
        index = task_id if task_id is not None else self.task_id
        spec = self._cluster_spec
        if len(spec.tasks()) < 2 or kind is None or index is None:
            return ""
        if kind == "evaluator" and not spec.num_tasks(kind):
            return ""
        address = spec.address(Task(kind, index))
        scheme = rpc_layer if rpc_layer is not None else self._rpc_layer
        return f"{scheme}://{address}" if scheme and address else address

    def describe(self) -> str:
        """One line for the log: who said what, and which task this is."""
        spec = self._cluster_spec
        if not spec:
            return f"{self.source}: one process, {self._task}"
        counts = Counter(task.type for task in spec.tasks())
        tasks = ", ".join(
            f"{counts[kind]} {kind}{'s' * (kind == 'worker' and counts[kind] > 1)}"
            for kind in TASK_TYPES
            if counts[kind]
        )
        return f"{self.source}: {self._task or 'no task'} of a cluster of {tasks}"


@final
class SimpleClusterResolver(ClusterResolver):
    """A cluster given by value.

    Args:
        cluster_spec: The tasks; a plain dict of lists is converted.
        master: Takes the place of the task's own address.
        task_type, task_id: This process; both or neither.
        environment: "google", "cloud" or empty.
        num_accelerators: Kind to number, for instance {"GPU": 2}.
        rpc_layer: The scheme of addresses.

    Raises:
        ClusterError: The task is not in the cluster.
    """

    source = "SimpleClusterResolver"

    def __init__(
        self,
        cluster_spec: ClusterSpec | Mapping[str, list[str]],
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        spec = cluster_spec if isinstance(cluster_spec, ClusterSpec) else ClusterSpec(cluster_spec)
        super().__init__(
            spec,
            _given_task(spec, task_type, task_id),
            rpc_layer=rpc_layer,
            num_accelerators=num_accelerators,
            settings=JobSettings(environment=environment, session_master=master or None),
        )


def _given_task(spec: ClusterSpec, task_type: str | None, task_id: int | None) -> Task | None:
    if task_type is None and task_id is None:
        return None
    if task_type is None or task_id is None:
        raise ClusterError(
            f"task_type is {shown(task_type)} and task_id is {shown(task_id)}; "
            f"give both, or neither"
        )
    task = Task("chief" if task_type == "master" else task_type, task_id)
    if spec and task.type != "evaluator":
        spec.require(task)
    return task


@final
class TFConfigClusterResolver(ClusterResolver):
    """The cluster that TF_CONFIG describes.

    The pods of an indexed Kubernetes Job may share one TF_CONFIG: where it lists a cluster and has
    no `task.index`, JOB_COMPLETION_INDEX is the index.

    Args:
        task_type, task_id, rpc_layer, environment: Where given, they win over the variable.
        num_accelerators: Kind to number, for instance {"GPU": 2}.
        environ: Where TF_CONFIG and JOB_COMPLETION_INDEX are looked up.

    Raises:
        ClusterError: TF_CONFIG is wrong: the text names the key, the value found and the fix.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
        *,
        num_accelerators: Mapping[str, int] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        text = environ.get("TF_CONFIG")
        config = parse_tf_config(text, task_type, task_id, environ.get("JOB_COMPLETION_INDEX"))
        settings = config.settings
        if environment is not None:
            settings = replace(settings, environment=environment)
        super().__init__(
            config.cluster,
            config.task,
            rpc_layer=rpc_layer if rpc_layer is not None else config.rpc_layer,
            num_accelerators=num_accelerators,
            settings=settings,
        )
        self._is_set = bool(text)

    @property
    def source(self) -> str:
        return "TF_CONFIG" if self._is_set else "no TF_CONFIG"
