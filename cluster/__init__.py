"""Who is in the job, and this process's place in it."""

from .addresses import (
    Address,
    bind_problem,
    free_ports,
    hold_port,
    is_loopback,
    look_up,
    port_owner,
    split_address,
)
from .exit_codes import LOST_PEER
from .launchers import (
    MPIClusterResolver,
    SlurmClusterResolver,
    TorchrunClusterResolver,
    job_id,
    resolve,
    restart_count,
)
from .machine import num_cores, tune_malloc
from .resolver import ClusterResolver, SimpleClusterResolver, TFConfigClusterResolver
from .spec import ClusterError, ClusterSpec, Task
from .task_info import TaskInfo, agreed_model_dir, is_same_directory, task_info_of
from .tf_config import JobSettings, local_cluster
from .token import MIN_TOKEN_CHARACTERS, job_token
from .tpu import TPUClusterResolver

__all__ = [
    "LOST_PEER",
    "MIN_TOKEN_CHARACTERS",
    "Address",
    "ClusterError",
    "ClusterResolver",
    "ClusterSpec",
    "JobSettings",
    "MPIClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "Task",
    "TaskInfo",
    "TorchrunClusterResolver",
    "agreed_model_dir",
    "bind_problem",
    "free_ports",
    "hold_port",
    "is_loopback",
    "is_same_directory",
    "job_id",
    "job_token",
    "local_cluster",
    "look_up",
    "num_cores",
    "port_owner",
    "resolve",
    "restart_count",
    "split_address",
    "task_info_of",
    "tune_malloc",
]
