"""Who is in the job, and this process's place in it."""

from .errors import ClusterError
from .launchers import MPIClusterResolver, SlurmClusterResolver, TorchrunClusterResolver
from .local import free_ports, local_cluster, num_cores
from .memory import tune_malloc
from .place import Place, agreed_model_dir, place_of
from .ports import bind_problem, is_loopback, port_owner
from .resolve import job_id, resolve, restart_count
from .resolver import ClusterResolver, SimpleClusterResolver, TFConfigClusterResolver
from .spec import ClusterSpec, Task, split_address
from .tf_config import JobSettings
from .token import MIN_TOKEN_CHARACTERS, job_token
from .world import check_world_size

__all__ = [
    "MIN_TOKEN_CHARACTERS",
    "ClusterError",
    "ClusterResolver",
    "ClusterSpec",
    "JobSettings",
    "MPIClusterResolver",
    "Place",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "Task",
    "TorchrunClusterResolver",
    "agreed_model_dir",
    "bind_problem",
    "check_world_size",
    "free_ports",
    "is_loopback",
    "job_id",
    "job_token",
    "local_cluster",
    "num_cores",
    "place_of",
    "port_owner",
    "resolve",
    "restart_count",
    "split_address",
    "tune_malloc",
]
