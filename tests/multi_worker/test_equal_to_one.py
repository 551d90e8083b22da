"""N workers give what one gives, over every backend: the cases of cases.py as a table."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import paceline as pl

from . import cases

HERE = Path(__file__).parent

BACKENDS = ["threads", "MPI", "RING"]
SIZES = [(workers, replicas) for workers in (1, 2, 3) for replicas in (1, 2)]

# The last of the guide's thirty losses; those between are checked in tests/golden.
G05_LAST_LOSS = 0.61685556


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]} workers of {size[1]}")
def size(request):
    return request.param


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The results of a process that is alone and has no strategy."""
    return cases.run_all(pl.get_strategy(), tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def in_threads(tmp_path_factory, on_workers):
    """`in_threads(workers, replicas)`: the results of each worker."""

    @cache
    def run(workers, replicas):
        directory = tmp_path_factory.mktemp("threads")
        return on_workers(workers, replicas, lambda strategy, _: cases.run_all(strategy, directory))

    return run


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory, world):
    """`in_processes(backend, workers)`: number of replicas → the results of each worker.

    One world is started for both numbers of replicas.
    """

    @cache
    def started(backend, workers):
        directory = tmp_path_factory.mktemp(f"{backend}-{workers}")
        program = [str(HERE / "worker.py"), backend, str(directory)]
        return directory, world(backend, workers, *program, num_clusters=2)

    def run(backend, workers):
        directory, ended = started(backend, workers)
        ended.require_success()
        return {
            replicas: [read(directory / f"{replicas}-{i}.npz") for i in range(workers)]
            for replicas in (1, 2)
        }

    return run


def read(path):
    found = {}
    with np.load(path) as file:
        for key in file.files:
            case, _, name = key.partition("|")
            found.setdefault(case, {})[name] = file[key]
    return found


@pytest.fixture
def results(backend, size, in_threads, in_processes):
    """The results of each worker, in order."""
    workers, replicas = size
    if backend == "threads":
        return in_threads(workers, replicas)
    return in_processes(backend, workers)[replicas]


@pytest.mark.parametrize("case", cases.CASES)
def test_all_workers_give_the_same_to_the_bit(results, size, case):
    first, *others = [worker[case] for worker in results]
    assert len(others) == size[0] - 1
    for other in others:
        assert other.keys() == first.keys()
        for name, array in first.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name, strict=True)


def test_g01_prints_the_guides_losses(results):
    """G-01, and G-02's evaluation of it."""
    for found in (worker["G-01"] for worker in results):
        assert found["losses"].shape == (10,)
        assert found["losses"][0] == np.float32(1.0)
        assert found["losses"][-1] == np.float32(2.877698e-13)
        assert found["average_loss"] == np.float32(1.4210855e-14)
        assert found["label/mean"] == 1
        assert found["global_step"] == 10


def test_g01_weights_are_those_of_one_worker(results, one):
    for worker in results:
        np.testing.assert_array_max_ulp(worker["G-01"]["weights"], one["G-01"]["weights"], maxulp=2)


def test_g05_prints_the_guides_thirty_losses(results, one):
    for found in (worker["G-05"]["losses"] for worker in results):
        assert found.shape == (30,)
        assert abs(found[0] - cases.G05_FIRST_LOSS) <= 2e-7
        assert abs(found[-1] - G05_LAST_LOSS) <= 2e-7
        np.testing.assert_allclose(found, one["G-05"]["losses"], atol=2e-7, rtol=0)


def test_g10_sums_and_means_count_every_element_of_all_workers(results, size):
    n = size[0] * size[1]
    everything = np.arange(4.0 * n)
    for found in (worker["G-10"] for worker in results):
        np.testing.assert_array_equal(
            found["sum over replicas"], everything.reshape(n, 4).sum(axis=0)
        )
        assert found["sum over the batch"] == everything.sum()
        assert found["mean over a last batch"] == everything[:-2].mean()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
def test_the_tutorials_network_learns_the_same_weights(results, one, dtype, tolerance):
    case = f"CNN {dtype}"
    assert len(one[case]) == 6
    for worker in results:
        for name, expected in one[case].items():
            found = worker[case][name]
            assert found.dtype == dtype
            difference = np.linalg.norm(found - expected) / np.linalg.norm(expected)
            assert difference <= tolerance, name


def test_co_16_all_copies_are_equal_after_500_steps(results, size, one):
    checksums = [text for worker in results for text in worker["CO-16"]["checksums"]]
    assert len(checksums) == size[0] * size[1]
    assert len(set(checksums)) == 1
    for name in one["CO-16"].keys() - {"checksums"}:
        found = results[0]["CO-16"][name]
        np.testing.assert_allclose(found, one["CO-16"][name], rtol=1e-9, err_msg=name)


def test_b9_all_stop_early_at_the_step_of_one_worker(results, one):
    """Although only the chief decides, from evaluations that all workers make together."""
    expected = one["B9"]
    assert expected["evaluated"].tolist() == [3, 6, 9, 10]
    for found in (worker["B9"] for worker in results):
        for name in ("global_step", "evaluated"):
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
        for name in ("loss", "w"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=name)
