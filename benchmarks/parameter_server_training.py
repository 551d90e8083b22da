"""Training with parameter servers: dense, with a slow worker, and sparse.

    python benchmarks/parameter_server_training.py [--rounds 5] [--steps 300] [--parts cnn slow]
        [--before PYTHON]

cnn     the tutorial CNN, 64 examples a step for each worker: 1 ps and 2 workers, asynchronous;
        the same with each exchange under the next step (overlap); the two workers under
        MultiWorkerMirroredStrategy over RING; one process alone. Steps per second of each worker.
slow    1 ps and 2 workers, one of which pauses after each step for four times what a step of one
        process alone takes, as if it were on a machine five times slower: asynchronous, and
        synchronous (max_staleness=0). Steps per second of both workers together.
sparse  examples/recommender.py, 2 ps and 2 workers: rows that are read and changed per second.

before …    the jobs with servers by another paceline, by the interpreter that --before names

Each job is a set of processes of its own, made by `paceline launch`. Rounds alternate between the
jobs, so that a noisy neighbour troubles all. What is counted lies between the moment when the last
worker is warm and the moment when the first one ends. Medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np
import paceline_steps
from workloads import WORKLOADS, Data

import paceline as pl
from paceline.cluster import tune_malloc

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import recommender

MODEL = "cnn"
WARM_UP_STEPS = 20
SLOWNESS = 5
BEFORE = "before "


@dataclass(frozen=True)
class Job:
    """Processes that train together.

    Attributes:
        workers, ps: How many of each.
        kind: What they do; see `STRATEGIES`.
        model: "cnn" or "sparse".
        is_slowed: Whether the last worker pauses after each step.
        python: The interpreter that it runs by.
    """

    workers: int
    ps: int
    kind: str
    model: str = MODEL
    is_slowed: bool = False
    python: str = sys.executable


PARTS: dict[str, dict[str, Job]] = {
    "cnn": {
        "alone": Job(1, 0, "mirrored"),
        "1 ps, async": Job(2, 1, "async"),
        "1 ps, overlap": Job(2, 1, "overlap"),
        "RING": Job(2, 0, "mirrored"),
    },
    "slow": {
        "async": Job(2, 1, "async", is_slowed=True),
        "sync": Job(2, 1, "sync", is_slowed=True),
    },
    "sparse": {"2 ps, async": Job(2, 2, "async", "sparse")},
}


def mirrored() -> pl.Strategy:
    options = pl.CommunicationOptions(implementation="RING")
    return pl.MultiWorkerMirroredStrategy(devices=["CPU:0"], communication_options=options)


def on_servers(max_staleness: int | None = None, overlap: bool | None = None) -> pl.Strategy:
    return pl.ParameterServerStrategy(
        variable_partitioner=pl.strategies.MinSizePartitioner(1 << 20, max_shards=2),
        max_staleness=max_staleness,
        devices=["CPU:0"],
        communication_options=pl.CommunicationOptions(overlap=overlap),
    )


STRATEGIES: dict[str, Callable[[], pl.Strategy]] = {
    "mirrored": mirrored,
    "async": on_servers,
    "overlap": partial(on_servers, overlap=True),
    "sync": partial(on_servers, max_staleness=0),
}


class Marks(pl.estimator.SessionRunHook):
    """When this worker has made its steps, on the clock of the machine, and what it took.

    Args:
        pause_secs: How long to wait after each step.
        with_bytes: Whether there are servers with which bytes are exchanged.
    """

    def __init__(self, pause_secs: float, with_bytes: bool) -> None:
        self.times: list[float] = []
        self.megabytes: list[float] = []
        self.cpu_secs: list[float] = []
        self.growth_mb = 0.0
        self._before_mb = _peak_mb()
        self._pause_secs = pause_secs
        self._fetches = ["megabytes"] if with_bytes else []

    def before_run(self, run_context):
        if self.times and self._pause_secs:
            time.sleep(self._pause_secs)
        return pl.estimator.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        self.times.append(time.monotonic())
        self.cpu_secs.append(time.process_time())
        self.megabytes += run_values.results

    def end(self, session):
        self.growth_mb = _peak_mb() - self._before_mb


def _peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def cnn_estimator(config: pl.RunConfig) -> tuple[pl.Estimator, Callable[..., pl.Dataset]]:
    data = Data(WORKLOADS[MODEL])

    def input_fn(input_context=None):  # each worker has data of its own
        return paceline_steps.dataset(MODEL, data)

    return pl.Estimator(paceline_steps.model_fn(MODEL), config=config), input_fn


def sparse_estimator(
    config: pl.RunConfig, rows: int, batch_size: int
) -> tuple[pl.Estimator, Callable[..., pl.Dataset]]:
    clicks = recommender.Clicks(rows, batch_size)

    def input_fn(input_context=None):
        if input_context is None:
            return clicks.dataset(0, 1)
        num, index = input_context.num_input_pipelines, input_context.input_pipeline_id
        return clicks.dataset(1, 10**9).shard(num, index)

    params = {"rows": rows, "learning_rate": 0.1}
    return pl.Estimator(recommender.model_fn, config=config, params=params), input_fn


def run_task(args: argparse.Namespace) -> None:
    """One process of a job."""
    job = Job(**json.loads(args.job))
    strategy = STRATEGIES[job.kind]()
    config = pl.RunConfig(
        model_dir=str(Path(args.directory) / "model"),
        train_distribute=strategy,
        save_checkpoints_secs=None,
        tf_random_seed=1,
    )
    if job.model == "cnn":
        estimator, input_fn = cnn_estimator(config)
    else:
        estimator, input_fn = sparse_estimator(config, args.rows, args.batch_size)
    is_slow = job.is_slowed and config.task_id == job.workers - 1
    marks = Marks(args.pause_secs if is_slow else 0.0, with_bytes=bool(job.ps))
    pl.train_and_evaluate(
        estimator,
        pl.TrainSpec(
            input_fn,
            max_steps=args.steps * (job.workers if job.kind in ("async", "overlap") else 1),
            hooks=[marks],
        ),
        pl.EvalSpec(input_fn, steps=1),
    )
    if config.task_type == "worker":
        account = {
            "times": marks.times,
            "cpu_secs": marks.cpu_secs,
            "megabytes": marks.megabytes,
            "growth_mb": marks.growth_mb,
        }
        path = Path(args.directory) / f"worker-{config.task_id}.json"
        path.write_text(json.dumps(account))


@dataclass
class Rates:
    """What the workers of a job did per second, one entry a round.

    Attributes:
        steps: Steps of each worker.
        cpu_ms: Processor time of a worker's step.
        kilobytes: Sent and received by a worker in a step.
        growth_mb: By how much training has raised the peak of each worker's memory.
    """

    steps: list[list[float]] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    kilobytes: list[float] = field(default_factory=list)
    growth_mb: list[list[float]] = field(default_factory=list)

    @property
    def median_steps(self) -> np.ndarray:
        return np.median(np.array(self.steps), axis=0)

    def add(self, accounts: Sequence[Mapping[str, Any]]) -> None:
        """Take in a round, by what its workers wrote down."""
        warm = min(WARM_UP_STEPS, min(len(a["times"]) for a in accounts) // 4)
        start = max(account["times"][warm] for account in accounts)
        stop = min(account["times"][-1] for account in accounts)
        rates = []
        for account in accounts:
            times = np.array(account["times"])
            inside = times[(times > start) & (times <= stop)]
            rates.append(len(inside) / (stop - start))
        self.steps.append(rates)
        self.growth_mb.append([account["growth_mb"] for account in accounts])
        first = accounts[0]
        self.cpu_ms.append(1e3 * float(np.median(np.diff(first["cpu_secs"])[warm:])))
        if first["megabytes"]:
            self.kilobytes.append(1e3 * float(np.mean(np.diff(first["megabytes"])[warm:])))


def run_job(job: Job, args: argparse.Namespace, pause_secs: float) -> list[dict[str, Any]]:
    """Run a job to its end; what its workers wrote down."""
    with tempfile.TemporaryDirectory() as directory:
        launch = [job.python, "-m", "paceline", "launch"]
        tasks = ["--workers", str(job.workers), "--ps", str(job.ps)]
        options = {
            "--job": json.dumps(vars(job)),
            "--directory": directory,
            "--steps": args.steps,
            "--pause-secs": pause_secs,
            "--rows": args.rows,
            "--batch-size": args.batch_size,
        }
        given = [str(word) for option in options.items() for word in option]
        done = subprocess.run(
            [*launch, *tasks, __file__, *given], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{job} failed:\n{done.stderr}")
        paths = sorted(Path(directory).glob("worker-*.json"))
        return [json.loads(path.read_text()) for path in paths]


def with_before(jobs: Mapping[str, Job], python: str | None) -> dict[str, Job]:
    """The jobs, and those with servers once more by another interpreter, if there is one."""
    again = {BEFORE + name: replace(job, python=python) for name, job in jobs.items() if job.ps}
    return {**jobs, **(again if python else {})}


def measure(args: argparse.Namespace) -> dict[str, dict[str, Rates]]:
    """The rates of all jobs of the parts that are wanted."""
    parts = {part: with_before(PARTS[part], args.before) for part in ("cnn", *args.parts)}
    rates = {part: {name: Rates() for name in jobs} for part, jobs in parts.items()}
    for _ in range(args.rounds):
        for part, jobs in parts.items():
            for name, job in jobs.items():
                if part not in args.parts and name != "alone":  # its pace is that of the slow one
                    continue
                alone = rates["cnn"]["alone"].steps
                pause_secs = (SLOWNESS - 1) / alone[-1][0] if job.is_slowed else 0.0
                rates[part][name].add(run_job(job, args, pause_secs))
    return rates


def report_cnn(rates: Mapping[str, Rates]) -> str:
    lines = [f"{'tutorial CNN':20} {'steps/s of each worker':>24} {'cpu ms a step':>14} {'kB':>8}"]
    for name, measured in rates.items():
        steps = " + ".join(f"{rate:.0f}" for rate in measured.median_steps)
        kilobytes = f"{np.median(measured.kilobytes):8.0f}" if measured.kilobytes else ""
        lines.append(f"{name:20} {steps:>24} {np.median(measured.cpu_ms):14.2f} {kilobytes}")
    ratio = rates["1 ps, async"].median_steps.sum() / rates["RING"].median_steps.sum()
    lines.append(f"1 ps by RING: {ratio:.2f}")
    return "\n".join(lines + ratios_to_before(rates))


def ratios_to_before(rates: Mapping[str, Rates]) -> list[str]:
    """Steps now by steps before, for each job that was run both ways: the median over rounds."""
    return [
        f"{name}, steps/s now by before: "
        f"{np.median(np.sum(now.steps, axis=1) / np.sum(rates[BEFORE + name].steps, axis=1)):.2f}"
        for name, now in rates.items()
        if BEFORE + name in rates
    ]


def report_slow(rates: Mapping[str, Rates]) -> str:
    lines = [f"one worker of two {SLOWNESS} times slower: steps/s of each worker"]
    for name, measured in rates.items():
        lines.append(f"{name:20} " + " + ".join(f"{rate:.0f}" for rate in measured.median_steps))
    ratios = [
        sum(a) / sum(s) for a, s in zip(rates["async"].steps, rates["sync"].steps, strict=True)
    ]
    lines.append(f"async by sync: {np.median(ratios):.2f}")
    return "\n".join(lines)


def report_sparse(rates: Mapping[str, Rates], args: argparse.Namespace) -> str:
    clicks = recommender.Clicks(args.rows, args.batch_size)
    features = [clicks.batch(index)[0] for index in range(10)]
    touched = np.mean([len(np.unique(f[name])) for f in features for name in ("ids", "crosses")])
    lines = []
    for name, measured in rates.items():
        steps = measured.median_steps.sum()
        lines.append(
            f"tables of {args.rows} × {recommender.WIDTH} and × 1, {name}, batches of "
            f"{args.batch_size}: {steps:.0f} steps/s\n"
            f"{steps * args.batch_size / 1e3:.0f} k examples/s, "
            f"{steps * args.batch_size * 4 / 1e3:.0f} k rows looked up /s, "
            f"{steps * 2 * touched / 1e3:.0f} k different rows of a step pulled and pushed /s; "
            f"{np.median(measured.kilobytes):.0f} kB and {np.median(measured.cpu_ms):.2f} ms of "
            f"processor time of a worker a step; training takes "
            f"{' and '.join(f'{mb:.0f}' for mb in np.median(measured.growth_mb, axis=0))} MB of "
            f"memory of the chief and the other worker"
        )
    return "\n".join(lines + ratios_to_before(rates))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="steps of each worker and job")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=1024, help="of the sparse part")
    parser.add_argument("--before", help="interpreter with another paceline")
    for internal in ("--job", "--directory"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--pause-secs", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        run_task(args)
        return
    print(environment.describe(tune_malloc()), flush=True)
    rates = measure(args)
    if "cnn" in args.parts:
        print(f"\n{report_cnn(rates['cnn'])}")
    if "slow" in args.parts:
        print(f"\n{report_slow(rates['slow'])}")
    if "sparse" in args.parts:
        print(f"\n{report_sparse(rates['sparse'], args)}")


if __name__ == "__main__":
    main()
