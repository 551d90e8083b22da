"""Premade models on parameter servers, to which only the rows of a batch travel."""

import pytest

from paceline import checkpoint
from paceline.strategies import FixedShardsPartitioner

from ..columns import classifier, dealt_out, require_close


def values_in(model_dir):
    return checkpoint.load(checkpoint.latest_checkpoint(model_dir)).arrays()


@pytest.mark.parametrize("partitioner", [None, FixedShardsPartitioner(2)], ids=["", "2 shards"])
@pytest.mark.parametrize("num_trainers", [1, 2])
def test_b1_canned_servers_hold_what_one_process_learns(
    servers, tmp_path, partitioner, num_trainers
):
    classifier(tmp_path / "one").train(lambda: dealt_out().repeat(2))
    job = servers(2, num_trainers, 0, partitioner=partitioner)

    def train(strategy, rank):
        estimator = classifier(tmp_path / "servers", strategy)
        estimator.train_and_report(lambda: dealt_out(num_trainers, 1, rank).repeat(2))

    job.train(train)
    require_close(values_in(tmp_path / "servers"), values_in(tmp_path / "one"))
