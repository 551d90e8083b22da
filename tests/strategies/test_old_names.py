"""ST-46, ST-47: what scripts for older versions of TensorFlow call."""

import numpy as np
import pytest

from paceline.cluster import ClusterError
from paceline.inputs import Dataset, InputReplicationMode
from paceline.observe import forget_logged
from paceline.strategies import MultiWorkerMirroredStrategy, get_replica_context


@pytest.fixture(autouse=True)
def said_once(log_lines):
    """Each old name is said to be one in one line, however often it is called."""
    forget_logged()
    yield
    lines = [line for line in log_lines() if "is an old name" in line]
    assert len(lines) == len(set(lines))


def test_st_46_run_as_it_was_called_before(every_strategy, log_lines):
    def fn(x, y=0):
        return x + y + get_replica_context().replica_id_in_sync_group

    for _ in range(2):
        new = every_strategy.run(fn, (1,), {"y": 2})
        old = every_strategy.experimental_run_v2(fn, args=(1,), kwargs={"y": 2})
        assert every_strategy.reduce("SUM", old) == every_strategy.reduce("SUM", new)
    assert any("write run" in line for line in log_lines())


def test_st_46_a_loop_of_tensorflow_1_takes_global_batches(every_strategy):
    iterator = every_strategy.make_dataset_iterator(Dataset.range(12).batch(4))
    totals = [
        every_strategy.reduce("SUM", every_strategy.experimental_run(np.sum, iterator))
        for _ in range(3)
    ]
    assert totals == [6, 22, 38]
    assert every_strategy.experimental_run(lambda: 1) is not None


@pytest.mark.parametrize("mode", InputReplicationMode)
def test_st_46_an_input_fn_gives_the_batches_of_a_replica(every_strategy, mode):
    n = every_strategy.num_replicas_in_sync
    iterator = every_strategy.make_input_fn_iterator(
        lambda context: (
            Dataset.range(4 * n)
            .shard(context.num_input_pipelines, context.input_pipeline_id)
            .batch(2)
        ),
        mode,
    )
    found = every_strategy.experimental_run(lambda batch: batch.sum(), iterator)
    assert len(every_strategy.experimental_local_results(found)) == n
    old = every_strategy.experimental_distribute_datasets_from_function(
        lambda context: Dataset.range(2 * n).batch(2)
    )
    assert len(every_strategy.experimental_local_results(next(iter(old)))) == n


def test_st_47_a_strategy_of_one_process_is_for_no_cluster(every_strategy):
    every_strategy.configure(session_config=object())
    every_strategy.configure(cluster_spec={"worker": ["localhost:1"]}, task_type="worker")
    with pytest.raises(ClusterError, match="take MultiWorkerMirroredStrategy"):
        every_strategy.configure(cluster_spec={"worker": ["localhost:1", "localhost:2"]})


def test_st_47_without_a_cluster_nothing_changes():
    strategy = MultiWorkerMirroredStrategy()
    before = strategy.cluster_resolver
    strategy.configure(session_config=object())
    assert strategy.cluster_resolver is before
