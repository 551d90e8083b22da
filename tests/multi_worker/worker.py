"""One worker of a world of processes: runs all cases of cases.py over 1 and 2 replicas.

    worker.py BACKEND DIRECTORY

With RING, the variable CLUSTERS holds a TF_CONFIG for each number of replicas; with MPI, mpiexec
says who the workers are. Results go to DIRECTORY/{replicas}-{worker}.npz.
"""

import json
import os
import sys

import cases
import numpy as np

import paceline as pl
from paceline.cluster import TFConfigClusterResolver

backend, directory = sys.argv[1:]
clusters = iter(json.loads(os.environ.get("CLUSTERS", "[]")))
for replicas in (1, 2):
    resolver = None
    if backend == "RING":
        resolver = TFConfigClusterResolver(environ={"TF_CONFIG": json.dumps(next(clusters))})
    strategy = pl.MultiWorkerMirroredStrategy(
        backend, resolver, devices=[f"CPU:{i}" for i in range(replicas)]
    )
    results = cases.run_all(strategy, f"{directory}/{replicas}")
    flat = {f"{case}|{name}": array for case in results for name, array in results[case].items()}
    np.savez(f"{directory}/{replicas}-{strategy.extended.worker_index}.npz", **flat)
