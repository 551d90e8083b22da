"""benchmarks/parameter_server_training.py: the jobs run, the counts add up, reports appear."""

from __future__ import annotations

import argparse

import pytest

from .loading import load

benchmark = load("parameter_server_training")


@pytest.fixture
def arguments() -> argparse.Namespace:
    return argparse.Namespace(rounds=1, steps=12, rows=50_000, batch_size=128, parts=["cnn"])


def account(times: list[float]) -> dict[str, object]:
    num = len(times)
    return {
        "times": times,
        "cpu_secs": [0.002 * i for i in range(num)],
        "megabytes": [0.5 * i for i in range(num)],
        "growth_mb": 10.0,
    }


def test_steps_are_counted_while_all_workers_are_at_work() -> None:
    fast, slow = [0.1 * i for i in range(100)], [0.5 * i for i in range(40)]
    rates = benchmark.Rates()
    rates.add([account(fast), account(slow)])
    assert rates.median_steps == pytest.approx([10, 2], rel=0.1)
    assert rates.cpu_ms == [pytest.approx(2)]
    assert rates.kilobytes == [pytest.approx(500)]


def test_only_rows_come_to_a_worker_that_is_not_the_chief(arguments: argparse.Namespace) -> None:
    """The chief draws the tables and hands them out; they never come to the other one."""
    job = benchmark.PARTS["sparse"]["2 ps, async"]
    chief, other = benchmark.run_job(job, arguments, 0.0)
    table_megabytes = 1e-6 * 4 * arguments.rows * (benchmark.recommender.WIDTH + 1)
    assert chief["megabytes"][0] > table_megabytes / 2
    assert other["megabytes"][-1] < table_megabytes / 2


@pytest.mark.parametrize("name", ["1 ps, overlap", pytest.param("RING", marks=pytest.mark.slow)])
def test_the_jobs_of_the_cnn_make_their_steps(arguments: argparse.Namespace, name: str) -> None:
    job = benchmark.PARTS["cnn"][name]
    accounts = benchmark.run_job(job, arguments, 0.0)
    assert len(accounts) == job.workers
    num_steps = [len(made["times"]) for made in accounts]
    if job.ps:
        assert sum(num_steps) >= job.workers * arguments.steps
    else:
        assert num_steps == [arguments.steps] * job.workers
    assert all(bool(made["megabytes"]) == bool(job.ps) for made in accounts)


def test_reports_name_the_ratios(arguments: argparse.Namespace) -> None:
    rates = benchmark.Rates()
    rates.add([account([0.1 * i for i in range(50)])] * 2)
    text = benchmark.report_cnn(dict.fromkeys(benchmark.PARTS["cnn"], rates))
    assert "1 ps by RING: 1.00" in text
    text = benchmark.report_slow(dict.fromkeys(benchmark.PARTS["slow"], rates))
    assert "async by sync: 1.00" in text
    jobs = benchmark.with_before(benchmark.PARTS["sparse"], "python")
    text = benchmark.report_sparse(dict.fromkeys(jobs, rates), arguments)
    assert "k examples/s" in text
    assert "2 ps, async, steps/s now by before: 1.00" in text
