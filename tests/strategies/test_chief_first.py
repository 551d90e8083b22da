"""The chief: it prepares what all need (chief_first, D-10), and writes files."""

import pytest

import paceline as pl


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_d_10_the_chief_has_ended_the_block_when_the_others_begin_it(
    on_workers, tmp_path, num_workers
):
    prepared = tmp_path / "vocabulary"
    who = []

    def work(strategy, index):
        for number in range(2):  # also a second time
            with pl.chief_first(strategy):
                if not prepared.exists() or int(prepared.read_text()) < number:
                    who.append(index)
                    prepared.write_text(str(number))
            assert int(prepared.read_text()) == number
            strategy.extended.workers.gather_numbers(0, "all have read it")

    on_workers(num_workers, 1, work)
    assert who == [0, 0]


def test_the_others_do_not_begin_a_block_in_which_the_chief_failed(on_workers):
    began = []

    def work(strategy, index):
        with pl.chief_first(strategy):
            began.append(index)
            raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        on_workers(2, 1, work)
    assert began == [0]


def test_it_takes_the_current_strategy():
    with pl.MirroredStrategy(["CPU:0", "CPU:1"]).scope(), pl.chief_first():
        pass


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_one_worker_writes_checkpoints_and_summaries(on_workers, num_workers):
    writes = {}

    def work(strategy, index):
        extended = strategy.extended
        writes[index] = extended.should_checkpoint, extended.should_save_summary

    on_workers(num_workers, 1, work)
    assert writes == {i: (i == 0, i == 0) for i in range(num_workers)}


def test_one_trainer_at_parameter_servers_writes_and_no_server_does(server_job):
    job = server_job(1, 2)
    trainers = [job.strategy(index).extended.should_checkpoint for index in range(2)]
    assert trainers == [True, False]
    cluster = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    resolver = pl.cluster.SimpleClusterResolver(cluster, task_type="ps", task_id=0)
    server = pl.strategies.ParameterServerStrategy(resolver).extended
    assert (server.should_checkpoint, server.should_save_summary) == (False, False)
