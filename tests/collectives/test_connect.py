"""`collectives.connect`: one way to a communicator, whoever has started the process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paceline import collectives
from paceline.cluster import ClusterError, ClusterSpec, SimpleClusterResolver, free_ports, resolve

MPIEXEC = Path(sys.executable).parent / "mpiexec"
PROGRAM = """
import numpy as np
from paceline import collectives
with collectives.connect() as communicator:
    total = np.full((2, 3), communicator.rank + 1.0)
    communicator.all_reduce(total, "total")
    assert (total == communicator.size * (communicator.size + 1) / 2).all()
    print(f"{communicator.rank} of {communicator.size}", flush=True)
"""


def outputs(*environments):
    """What PROGRAM prints in as many processes at once."""
    clean = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "RANK", "WORLD_SIZE")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM],
            env=clean | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]
    ended = [process.communicate(timeout=60) for process in processes]
    assert not any(process.returncode for process in processes), ended
    return [out.strip() for out, _ in ended]


def test_a_process_that_nobody_started_is_alone():
    with collectives.connect(resolve({})) as communicator:
        array = np.ones(3)
        communicator.all_reduce(array, "sum")
        assert (communicator.size, array.tolist()) == (1, [1, 1, 1])


def test_tf_config_joins_chief_and_workers_and_leaves_the_others_out():
    ports = free_ports(4)
    cluster = {
        "chief": [f"127.0.0.1:{ports[0]}"],
        "worker": [f"127.0.0.1:{port}" for port in ports[1:3]],
        "ps": [f"127.0.0.1:{ports[3]}"],
    }
    tasks = [("chief", 0), ("worker", 0), ("worker", 1)]
    configs = [{"cluster": cluster, "task": {"type": t, "index": i}} for t, i in tasks]
    assert outputs(*({"TF_CONFIG": json.dumps(config)} for config in configs)) == [
        "0 of 3",
        "1 of 3",
        "2 of 3",
    ]


def test_rank_and_world_size_join_all():
    port = str(free_ports(1)[0])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert outputs(*({"RANK": str(rank)} | shared for rank in range(2))) == ["0 of 2", "1 of 2"]


@pytest.mark.skipif(not MPIEXEC.exists(), reason=f"needs {MPIEXEC} (pip install mpich)")
def test_mpirun_joins_all():
    pytest.importorskip("mpi4py")
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", "mpi4py", "-c", PROGRAM]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    said = re.findall(r"\d of \d", result.stdout)  # ranks may write into each other's lines
    assert sorted(said) == ["0 of 2", "1 of 2"]


@pytest.mark.parametrize(
    ("task", "address", "text"),
    [
        (("ps", 0), "a:1", "a communicator joins the chief and the workers"),
        (("worker", 1), "", "does not tell the address of worker 0"),
    ],
)
def test_who_has_no_part_in_it_or_no_address_is_told_so(task, address, text):
    spec = ClusterSpec({"worker": [address, "a:2"], "ps": ["a:3"]})
    with pytest.raises(ClusterError, match=text):
        collectives.connect(SimpleClusterResolver(spec, task_type=task[0], task_id=task[1]))


def test_an_unknown_transport_is_refused():
    with pytest.raises(ValueError, match="must be 'auto', 'mpi' or 'ring'; found 'nccl'"):
        collectives.connect(resolve({}), transport="nccl")
