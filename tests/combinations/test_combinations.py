"""Strategies, sizes and features in combination: what one process computes, all compute.

More of them: `python tests/combinations/hunt.py --minutes 60 --seed 1`.
"""

from dataclasses import replace

import pytest
from execution import check, check_interrupted
from scenarios import CLIPPING, Run, Scenario, Topology, interrupted, replayed, scenario_of

NUM_SCENARIOS = 100
NUM_REPLAYED = 20
NUM_INTERRUPTED = 20


@pytest.mark.parametrize("number", range(NUM_SCENARIOS))
def test_checkpoints_losses_and_metrics_are_those_of_one_process(tmp_path, number, as_possible):
    scenario = as_possible(scenario_of(number))
    print(scenario)
    check(scenario, tmp_path)


@pytest.mark.parametrize("number", range(NUM_REPLAYED))
def test_steps_without_calls_of_the_model_are_those_of_one_process(tmp_path, number, as_possible):
    scenario = as_possible(replayed(scenario_of(number)))
    print(scenario)
    check(scenario, tmp_path)


@pytest.mark.parametrize("number", range(NUM_INTERRUPTED))
def test_an_interrupted_run_ends_with_the_bits_of_one_that_was_not(tmp_path, number, as_possible):
    scenario = as_possible(interrupted(scenario_of(number)))
    print(scenario)
    check_interrupted(scenario, tmp_path)


def run(kind, workers, replicas, *steps, **options):
    return Run(Topology(kind, workers, replicas), steps, **options)


MENDED = {
    "servers: a worker that is killed after its first step goes on with its second batch": Scenario(
        1,
        (run("servers", 1, 1, (1,)), run("servers", 1, 1, (3,), begins="interrupted")),
    ),
    "a run that ends with a step that is saved anyway leaves no input": Scenario(
        2,
        (
            run("default", 1, 1, (1,), saves=True),
            run("default", 1, 1, (2,), (1,), begins="resumed"),
        ),
    ),
    "gradients keep their order where workers meet in backward, and some have one less": Scenario(
        806970,
        (run("workers", 3, 1, (2, 3, 2), (1, 3, 2)),),
        second_optimizer=True,
        heads=True,
        norm="synchronized",
    ),
    "a step without examples is passed over, and what comes after it counts": Scenario(
        5, (run("workers", 2, 1, (1, 2), (0, 0), (0, 1), (0, 0), (2, 0)),)
    ),
    "the same under one device": Scenario(
        6,
        (run("one device", 1, 1, (0,), (1,), (0,), (2,)),),
        evaluation=run("one device", 1, 1, (0,), (1,), (0,), (2,)),
        dropout=True,
    ),
    "moving means that replicas share move where one has an empty batch of its own": Scenario(
        7,
        (run("central storage", 1, 3, (1, 2, 1), (0, 0, 2)),),
        loop="dealt",
        norm="plain",
    ),
    "a step without examples moves no means that replicas have in common": Scenario(
        8, (run("mirrored", 1, 2, (2, 1), (0, 0), (0, 3)),), norm="synchronized"
    ),
    "layers and optimizers in params serve one run after the other": Scenario(
        9,
        (
            run("workers", 2, 2, (2, 1, 1, 2)),
            run("mirrored", 1, 2, (2, 1), begins="resumed"),
            run("mirrored", 1, 3, (2, 1, 1), begins="warm"),
        ),
        evaluation=run("central storage", 1, 2, (1, 2)),
        keeps_layers=True,
        dropout=True,
        norm="plain",
        optimizer="adam",
    ),
    "servers: a worker has slots also where the chief has no gradient": Scenario(
        466869,
        (run("servers", 3, 2, (2, 1, 2, 1, 3, 3)),),
        loop="dealt",
        optimizer="rmsprop",
        heads=True,
        norm="plain",
    ),
    "a worker that has no examples at first makes the first steps with the others": Scenario(
        759, (run("workers", 2, 1, (0, 0), (3, 0), (1, 0), (3, 2)),), norm="synchronized"
    ),
    "the same at parameter servers": Scenario(10, (run("servers", 2, 1, (3, 0), (3, 2)),)),
    "the same with a model that is fitted": Scenario(
        11, (run("workers", 3, 1, (1, 1, 1), (0, 0, 1), (0, 2, 2)),), loop="fit"
    ),
    "a replica has no sentences in a step of one's own": Scenario(
        70524, (run("mirrored", 1, 2, (1, 0)),), loop="dealt", sequences=True
    ),
    "the checkpoint of step 0 has nothing of the first step": Scenario(
        3, (run("mirrored", 1, 2, (1, 2)),), counts=True, norm="plain"
    ),
}


@pytest.mark.parametrize("scenario", MENDED.values(), ids=MENDED)
def test_what_was_found_and_mended(tmp_path, scenario, as_possible):
    check(as_possible(scenario), tmp_path)


@pytest.mark.parametrize("clipping", sorted({*CLIPPING} - {None}))
def test_workers_at_servers_do_not_clip_parts_of_a_mean(tmp_path, clipping):
    scenario = Scenario(1, (run("servers", 2, 1, (1, 1)),), clipping=clipping)
    with pytest.raises(ValueError, match=f"is to clip gradients \\({clipping}=0.3\\)"):
        check(scenario, tmp_path)


TWO_REPLICAS = Run(Topology("mirrored", replicas=2), ((2, 1), (1, 2)))
DECISIVE = {
    "optimizer": "adamw",
    "clipping": "clipnorm",
    "schedule": "exponential",
    "second_optimizer": True,
    "embedding": "lazy",
    "weighted": True,
    "heads": True,
    "unused": True,
    "counts": True,
    "norm": "plain",
    "dropout": True,
    "accumulates": 2,
    "sequences": True,
    "constrained": True,
    "scaled": True,
    "wide": True,
    "assigns": True,
    "seed": 2,
}


@pytest.mark.parametrize(("name", "value"), DECISIVE.items(), ids=DECISIVE)
def test_the_comparison_sees_each_feature(tmp_path, name, value):
    scenario = Scenario(1, (TWO_REPLICAS,))
    with pytest.raises(AssertionError):
        check(scenario, tmp_path, expected_of=replace(scenario, **{name: value}))
