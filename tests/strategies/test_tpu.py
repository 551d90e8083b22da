"""ST-42, CL-07: what scripts for TPUs find here. A simulated one is among the strategies of all
tests."""

import pytest

from paceline.cluster import SimpleClusterResolver, TPUClusterResolver
from paceline.observe import forget_logged
from paceline.strategies import TPUStrategy


@pytest.mark.parametrize(
    "make",
    [
        TPUClusterResolver,
        lambda: TPUClusterResolver(tpu="grpc://10.0.0.2:8470"),
        lambda: TPUClusterResolver.connect("local"),
        TPUStrategy,
    ],
)
def test_st_42_cl_07_without_a_tpu_one_error_says_what_to_do(make):
    advice = r"no TPU can be used .* Take MirroredStrategy\(\) .*TPUClusterResolver\(simulate=8\)"
    with pytest.raises(ValueError, match=advice):
        make()


def test_st_42_scripts_that_look_for_a_tpu_first_go_on_without():
    try:
        strategy = TPUStrategy(TPUClusterResolver())
    except ValueError:
        strategy = None
    assert strategy is None


@pytest.mark.parametrize("by_resolver", [True, False])
def test_st_42_a_simulated_tpu_has_so_many_replicas(by_resolver, caplog):
    caplog.set_level("INFO", "paceline")
    resolver = TPUClusterResolver(tpu="", simulate=4)
    strategy = TPUStrategy(resolver) if by_resolver else TPUStrategy(simulate=4)
    assert strategy.num_replicas_in_sync == 4
    assert strategy.cluster_resolver.num_accelerators() == {"TPU": 4}
    assert repr(strategy) == "TPUStrategy(CPU:0, CPU:1, CPU:2, CPU:3)"
    assert "4 logical core(s) of the CPU stand for those of a TPU" in caplog.text
    assert (strategy.cluster_resolver is resolver) == by_resolver


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: TPUClusterResolver(simulate=0), "simulate must be a number of cores ≥ 1, it is 0"),
        (
            lambda: TPUStrategy(TPUClusterResolver(simulate=2), simulate=3),
            "simulate=3, and the resolver simulates 2 cores; say it once",
        ),
        (
            lambda: TPUStrategy(SimpleClusterResolver({})),
            "needs a TPUClusterResolver.*'SimpleClusterResolver: one process",
        ),
    ],
)
def test_st_42_arguments_that_contradict_each_other_are_refused(make, error):
    with pytest.raises(ValueError, match=error):
        make()


def test_st_42_a_device_assignment_has_no_effect_and_is_warned_of(caplog):
    forget_logged()
    assert TPUStrategy(TPUClusterResolver(simulate=2), object()).num_replicas_in_sync == 2
    assert "has no effect on simulated cores" in caplog.text
