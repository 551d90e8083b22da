"""TF_CONFIG: the JSON text by which a platform tells each process its cluster and its task.

Every dialect of the platforms that set it is understood: addresses as lists or as sparse maps
(`{"worker": {"1": "host-1:2222"}}`, also under the key `sparseCluster`), `master` as an old name of
`chief`, an evaluator inside or outside `cluster`, and no variable at all for a job of one process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .addresses import LOOPBACK, free_ports
from .spec import TASK_TYPES, ClusterError, ClusterSpec, Task, shown

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_CLUSTER_KEYS = ("cluster", "sparseCluster")


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What a platform says about the job besides who is in it.

    Args:
        environment: "google" or "cloud" where the platform says so, else empty.
        model_dir: Where checkpoints go.
        service: Passed through, as `RunConfig.service`.
        session_master, eval_session_master: Addresses that take the place of the task's own.
        chief_evaluates: The chief evaluates too, after each checkpoint (an old `master`).
    """

    environment: str = ""
    model_dir: str | None = None
    service: Mapping[str, Any] | None = None
    session_master: str | None = None
    eval_session_master: str | None = None
    chief_evaluates: bool = False


@dataclass(frozen=True, kw_only=True)
class TFConfig:
    """TF_CONFIG, checked: an empty cluster for a job of one process, which is worker 0."""

    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    task: Task = field(default_factory=lambda: Task("worker", 0))
    rpc_layer: str | None = None
    settings: JobSettings = JobSettings()


def parse_tf_config(
    text: str | None,
    task_type: str | None = None,
    task_id: int | None = None,
    job_completion_index: str | None = None,
) -> TFConfig:
    """Read and check the value of TF_CONFIG; None, empty and "{}" mean a job of one process.

    `task_type` and `task_id` take the place of task.type and task.index. `job_completion_index`
    supplies a missing task.index. A ClusterError names the key, the value found and the fix.
    """
    config = _load(text)
    cluster_key, jobs = _cluster_jobs(config)
    spec = _cluster_spec(cluster_key, jobs)
    old_master = "master" in jobs
    task = _task(config, spec, jobs, task_type, task_id, job_completion_index)
    if old_master and task.type == "evaluator":
        raise _wrong(
            "task.type",
            "evaluator",
            f"but {cluster_key}.master evaluates by itself",
            "rename 'master' to 'chief' to have an evaluator beside it",
        )
    return TFConfig(
        cluster=spec,
        task=task,
        rpc_layer=_text(config, "rpc_layer"),
        settings=JobSettings(
            environment=_text(config, "environment") or "",
            model_dir=_model_dir(config),
            service=_dict(config, "service"),
            session_master=_text(config, "session_master"),
            eval_session_master=_text(config, "eval_session_master"),
            chief_evaluates=old_master,
        ),
    )


def lists_a_cluster(text: str | None) -> bool:
    return bool(_cluster_jobs(_load(text))[1])


def _wrong(key: str, found: object, rule: str, fix: str) -> ClusterError:
    return ClusterError(f"TF_CONFIG: {key} is {shown(found, 600)}, {rule}; {fix}")


def _load(text: str | None) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    try:
        config = json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise ClusterError(
            f"TF_CONFIG is not JSON: {error.msg} at character {error.pos}, near {shown(near)}; "
            f'write \'{{"cluster": {{"worker": ["host:port", …]}}, '
            f'"task": {{"type": "worker", "index": 0}}}}\''
        ) from None
    except ClusterError:
        raise
    except (ValueError, RecursionError) as error:
        raise ClusterError(
            f"TF_CONFIG is not readable JSON: {shown(text, 80)} ({error}); write small numbers "
            f"and no deep nesting"
        ) from None
    if not isinstance(config, dict):
        raise ClusterError(
            f'TF_CONFIG is {shown(config)}; write a JSON object with the keys "cluster" and "task"'
        )
    return config


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    # JSON's own reader takes the last one without a word, and half of a cluster would be gone.
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        values = [value for name, value in pairs if name == twice]
        raise _wrong(twice, values, "given more than once in one object", "keep one of them")
    return found


def _dict(config: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    found = config.get(key)
    if found is not None and not isinstance(found, dict):
        raise _wrong(key, found, "not an object", "write {…}, or leave it out")
    return found


def _text(config: Mapping[str, Any], key: str) -> str | None:
    found = config.get(key)
    if found is not None and not isinstance(found, str):
        raise _wrong(key, found, "not a string", "write a string, or leave it out")
    return found


def _model_dir(config: Mapping[str, Any]) -> str | None:
    found = _text(config, "model_dir")
    if found == "":
        raise _wrong("model_dir", found, "which is no directory", "name one, or leave it out")
    return found


def _cluster_jobs(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The key under which the cluster is listed, and what is listed there."""
    listed = {key: jobs for key in _CLUSTER_KEYS if (jobs := _dict(config, key))}
    if len(listed) > 1:
        raise _wrong("sparseCluster", listed["sparseCluster"], "beside 'cluster'", "keep one")
    for key, jobs in listed.items():
        return key, jobs
    return "cluster", {}


def _cluster_spec(key: str, jobs: dict[str, Any]) -> ClusterSpec:
    if not jobs:
        return ClusterSpec()
    read = {kind: _addresses(f"{key}.{kind}", tasks) for kind, tasks in jobs.items()}
    try:
        spec = ClusterSpec(read)
    except ClusterError as error:
        raise ClusterError(f"TF_CONFIG: {str(error).replace('cluster', key, 1)}") from None
    if not spec.training_tasks():
        raise _wrong(
            key, jobs, "which lists no chief and no worker", "list at least one task that trains"
        )
    return spec


def _addresses(key: str, tasks: Any) -> Any:
    """One role's tasks, with the indices of a sparse map read as numbers."""
    if isinstance(tasks, dict):
        tasks = {_index(f"an index of {key}", index): tasks[index] for index in tasks}
    listed = dict(enumerate(tasks)) if isinstance(tasks, list) else tasks
    for index, address in listed.items() if isinstance(listed, dict) else ():
        if isinstance(address, str) and not address.strip():
            fix = "write 'host:port', for example 'host-1:2222'"
            raise _wrong(f"{key}[{index}]", address, "an empty address", fix)
    return tasks


def _index(key: str, found: Any) -> int:
    """A task index: 0, 1, …, as a number or, as some platforms write it, as a string of digits."""
    if isinstance(found, int) and not isinstance(found, bool) and found < 10**9:
        if found >= 0:
            return found
        raise _wrong(key, found, "negative", "indices are 0, 1, 2, …")
    if isinstance(found, str) and _INDEX.fullmatch(found):
        return int(found)
    raise _wrong(key, found, "not an index", "indices are 0, 1, 2, …")


def _task(
    config: Mapping[str, Any],
    spec: ClusterSpec,
    jobs: Mapping[str, Any],
    task_type: str | None,
    task_id: int | None,
    job_completion_index: str | None,
) -> Task:
    section = _dict(config, "task") or {}
    given: dict[str, Any] = {
        "type": task_type if task_type is not None else section.get("type"),
        "index": task_id if task_id is not None else section.get("index"),
    }
    if not spec:
        return _only_task(given)
    if given["index"] is None:
        given["index"] = job_completion_index
    for name, found in given.items():
        if found is None or found == "":
            raise _wrong(
                f"task.{name}",
                found,
                "but 'cluster' is given",
                'say which task this process is, as in "task": {"type": "worker", "index": 0}',
            )
    kind, index = given["type"], _index("task.index", given["index"])
    if kind == "evaluator":
        return Task(kind, index)
    _check_listed(kind, index, spec, jobs)
    return Task("chief" if kind == "master" else kind, index)


def _only_task(given: Mapping[str, Any]) -> Task:
    kind, index = given["type"], given["index"]
    if kind not in (None, "", "worker"):
        raise _wrong(
            "task.type",
            kind,
            "but no 'cluster' is given, and a job of one process is a worker",
            "list the cluster, or leave out 'task'",
        )
    if index is not None and _index("task.index", index) != 0:
        raise _wrong(
            "task.index",
            index,
            "but no 'cluster' is given, and a job of one process has the index 0",
            "list the cluster, or leave out 'task'",
        )
    return Task("worker", 0)


def _check_listed(kind: Any, index: int, spec: ClusterSpec, jobs: Mapping[str, Any]) -> None:
    cluster = f"in the cluster {shown(dict(jobs), 600)}, which may come from TF_CONFIG"
    roles = [name for name in (*TASK_TYPES, "master") if jobs.get(name)]
    if kind not in roles:
        raise _wrong("task.type", kind, f"not a role {cluster}", f"write one of {', '.join(roles)}")
    known = [task.index for task in spec.tasks() if task.type == kind.replace("master", "chief")]
    if index not in known:
        fix = f"write one of {shown(known)[1:-1]}, or list the task's address"
        raise _wrong("task.index", index, f"not an index of {kind!r} {cluster}", fix)


def local_cluster(
    num_workers: int,
    *,
    chief: bool = False,
    num_ps: int = 0,
    evaluator: bool = False,
    host: str = LOOPBACK,
) -> tuple[dict[str, Any], ...]:
    """TF_CONFIG for each task of a cluster on this machine, on ports that are free now.

        configs = local_cluster(2)
        os.environ["TF_CONFIG"] = json.dumps(configs[0])

    Args:
        num_workers: How many workers.
        chief: Whether there is a chief beside them; else worker 0 is the chief.
        num_ps: How many parameter servers.
        evaluator: Whether there is an evaluator. The workers see it listed, and leave evaluation to
            it; nobody calls its address.
        host: The address of this machine to listen on.

    Returns:
        One dict a task: chief, workers, ps, evaluator.

    Raises:
        ClusterError: Nobody would train.
    """
    counts = {"chief": int(chief), "worker": num_workers, "ps": num_ps, "evaluator": int(evaluator)}
    if num_workers < 0 or num_ps < 0 or not (chief or num_workers):
        raise ClusterError(
            f"a cluster of {num_workers} workers and {num_ps} ps, {'with' if chief else 'without'} "
            f"a chief, has nobody to train; ask for at least one worker or a chief"
        )
    tasks = [Task(kind, index) for kind, count in counts.items() for index in range(count)]
    cluster: dict[str, list[str]] = {}
    for task, port in zip(tasks, free_ports(len(tasks), host), strict=True):
        cluster.setdefault(task.type, []).append(f"{host}:{port}")
    return tuple(
        {"cluster": cluster, "task": {"type": task.type, "index": task.index}} for task in tasks
    )
