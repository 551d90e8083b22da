"""Two processes with exactly the variables that each launcher gives to ranks 0 and 1."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cluster import free_ports

SCRIPT = Path(__file__).with_name("environments.py")
LIMIT_SECS = 120


def kubeflow_torch(rank, port, hosts):
    """The runtime torch-distributed, where the command is python and not torchrun."""
    return {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": hosts[0],
        "PET_MASTER_PORT": str(port),
    }


def kubeflow_jax(rank, port, hosts):
    return {
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": str(rank),
        "JAX_COORDINATOR_ADDRESS": f"{hosts[0]}:{port}",
    }


def kubeflow_plain(rank, port, hosts):
    """One TF_CONFIG for all pods of an indexed Job."""
    cluster = f'{{"worker": ["{hosts[0]}:{port}", "{hosts[1]}:{port}"]}}'
    return {
        "TF_CONFIG": f'{{"cluster": {cluster}, "task": {{"type": "worker"}}}}',
        "JOB_COMPLETION_INDEX": str(rank),
    }


def flux(rank, port, hosts):
    """A program that is not of MPI, on one machine; its port would be the same for all jobs."""
    return {
        "FLUX_TASK_RANK": str(rank),
        "FLUX_TASK_LOCAL_ID": str(rank),
        "FLUX_JOB_SIZE": "2",
        "FLUX_JOB_NNODES": "1",
        "FLUX_JOB_ID": "f3XqCfoZ",
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(port),
    }


def skypilot(rank, port, hosts):
    return {
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_IPS": "\n".join(hosts),
        "SKYPILOT_NUM_GPUS_PER_NODE": "0",
        "SKYPILOT_TASK_ID": "sky-2026-01-01-00-00-00-000000_task",
    }


def volcano(rank, port, hosts):
    return {
        "VC_TASK_INDEX": str(rank),
        "VK_TASK_INDEX": str(rank),
        "VC_WORKER_HOSTS": ",".join(hosts),
        "VC_WORKER_NUM": "2",
    }


def horovod(rank, port, hosts):
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": "2",
        "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_HOSTNAME": "localhost",
        "MASTER_PORT": str(port),
    }


def sagemaker(rank, port, hosts):
    """Each host lists itself first."""
    return {
        "SM_HOSTS": str([hosts[rank], hosts[1 - rank]]).replace("'", '"'),
        "SM_CURRENT_HOST": hosts[rank],
        "TRAINING_JOB_NAME": "digits-2026",
    }


def torch_job(rank, port, hosts):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(port),
    }


LAUNCHERS = (
    kubeflow_torch,
    kubeflow_jax,
    kubeflow_plain,
    flux,
    skypilot,
    volcano,
    horovod,
    sagemaker,
    torch_job,
)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_that_a_launcher_has_started_train_together(launcher, tmp_path):
    # Some launchers leave us a fixed port. Every test has addresses of its own, so that two of them
    # may use it at once.
    network = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
    hosts = [f"{network}.1", f"{network}.2"]
    (port,) = free_ports(1)
    workers = [start(launcher(rank, port, hosts), tmp_path) for rank in (0, 1)]
    ended = [worker.communicate(timeout=LIMIT_SECS) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended
    first, second = (out.split() for out, _ in ended)
    assert first[:-1] == ["2", "worker", "0", "True"]
    assert second[:-1] == ["2", "worker", "1", "False"]
    assert first[-1] == second[-1]


def start(variables, model_dir):
    """The script as a process with these variables, and none of this process's launcher."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, SCRIPT, model_dir],
        env={**kept, "OPENBLAS_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
