"""chief_first: the chief prepares what all need, and the others find it (D-10)."""

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
