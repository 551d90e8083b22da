"""Strategies, sizes and features in combination: what one process computes, all compute.

More of them: `python tests/combinations/hunt.py --minutes 60 --seed 1`.
"""

import tempfile
from dataclasses import replace

import pytest
from execution import check
from hypothesis import HealthCheck, Phase, given, settings
from scenarios import Run, Scenario, Topology, excluded, scenarios

NUM_SCENARIOS = 60


@settings(
    max_examples=NUM_SCENARIOS,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(scenario=scenarios(excluded))
def test_weights_slots_counters_losses_and_metrics_are_those_of_one_process(scenario):
    with tempfile.TemporaryDirectory() as directory:
        check(scenario, directory)


TWO_REPLICAS = Run(Topology("mirrored", replicas=2), ((2, 1), (1, 2)))
DECISIVE = {
    "optimizer": "adamw",
    "clipping": "clipnorm",
    "decays": True,
    "second_optimizer": True,
    "embedding": "sparse",
    "heads": True,
    "unused": True,
    "norm": "plain",
    "dropout": True,
    "seed": 2,
}


@pytest.mark.parametrize(("name", "value"), DECISIVE.items(), ids=DECISIVE)
def test_the_comparison_sees_each_feature(tmp_path, name, value):
    scenario = Scenario(1, (TWO_REPLICAS,))
    with pytest.raises(AssertionError):
        check(scenario, tmp_path, expected_of=replace(scenario, **{name: value}))
