"""`InputContext` and the options of distributing a dataset."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from paceline.inputs import AutoShardPolicy, InputContext, InputOptions, InputReplicationMode


def test_in_06_a_lone_worker_has_the_only_pipeline() -> None:
    assert InputContext() == InputContext(1, 0, 1)


@pytest.mark.parametrize(("batch", "replicas", "share"), [(8, 2, 4), (7, 7, 1), (64, 1, 64)])
def test_in_06_the_global_batch_is_divided_by_the_replicas(
    batch: int, replicas: int, share: int
) -> None:
    context = InputContext(num_replicas_in_sync=replicas)
    assert context.get_per_replica_batch_size(batch) == share


@pytest.mark.parametrize(
    ("batch", "replicas", "message"),
    [
        (7, 2, "must be a multiple of the 2 replicas in sync, got 7. Use 6 or 8."),
        (1, 4, "must be a multiple of the 4 replicas in sync, got 1. Use 4"),
        (0, 2, "global_batch_size must be at least 1, got 0"),
    ],
)
def test_in_06_a_global_batch_that_does_not_divide_is_refused(
    batch: int, replicas: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        InputContext(num_replicas_in_sync=replicas).get_per_replica_batch_size(batch)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 1), "num_input_pipelines must be at least 1, got 0"),
        ((2, 2, 1), "input_pipeline_id must be below num_input_pipelines = 2, got 2"),
        ((2, -1, 1), "input_pipeline_id must be at least 0, got -1"),
        ((1, 0, 0), "num_replicas_in_sync must be at least 1, got 0"),
    ],
)
def test_an_impossible_context_is_refused(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InputContext(*arguments)


def test_the_defaults_of_the_options_are_tf_distribute_s() -> None:
    options = InputOptions()
    assert options.experimental_fetch_to_device is True
    assert options.experimental_replication_mode is InputReplicationMode.PER_WORKER
    assert options.experimental_place_dataset_on_device is False
    assert options.experimental_per_replica_buffer_size == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"fetch_to_device": True}, TypeError, "unexpected keyword argument 'fetch_to_device'"),
        ({"experimental_fetch_to_device": 1}, TypeError, "must be True or False, got 1"),
        ({"experimental_place_dataset_on_device": None}, TypeError, "must be True or False"),
        ({"experimental_per_replica_buffer_size": -1}, ValueError, "must be at least 0, got -1"),
        ({"experimental_replication_mode": "PER_WORKER"}, TypeError, "PER_WORKER or .*PER_REPLICA"),
    ],
)
def test_bad_options_are_refused_at_construction_and_on_replace(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        InputOptions(**change)
    with pytest.raises(error, match=message):
        dataclasses.replace(InputOptions(), **change)


def test_in_11_the_policies_are_those_of_tf_data() -> None:
    assert [policy.name for policy in AutoShardPolicy] == ["OFF", "AUTO", "FILE", "DATA"]
