"""Early stopping where trainers make steps of their own (B9)."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import SessionRunHook, make_early_stopping_hook
from paceline.nn import layers, optimizers

STEP = 5


class Steps(SessionRunHook):
    """Counts the steps of one trainer, and notes the global step that it ends at."""

    def __init__(self):
        self.made = 0
        self.last = 0

    def after_run(self, run_context, run_values):
        self.made += 1
        self.last = run_context.session.global_step


def model_fn(features, labels, mode):
    loss = np.mean(np.square(layers.Dense(1)(features)))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


@pytest.mark.parametrize("max_staleness", [None, 0, 2])
@pytest.mark.parametrize("num_trainers", [1, 2, 3])
def test_b9_all_trainers_stop_when_the_chief_has_decided(
    servers, tmp_path, num_trainers, max_staleness
):
    counts = [Steps() for _ in range(num_trainers)]

    def train(strategy, rank):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(model_fn, tmp_path / "model", config)
        hook = make_early_stopping_hook(estimator, lambda: counts[rank].made >= STEP, None, 1)
        data = pl.Dataset.from_tensors(np.ones((4, 3), np.float32)).repeat()
        # Only the chief is asked: the others would stop long before.
        stop = hook if rank == 0 else make_early_stopping_hook(estimator, lambda: True, None, 1)
        estimator.train_and_report(lambda: data, hooks=[counts[rank], stop])

    servers(2, num_trainers, max_staleness).train(train)
    assert counts[0].made == STEP + 1
    assert all(count.made >= 1 for count in counts)
    if max_staleness == 0:  # as all make the steps of the chief, and no other
        assert {count.last for count in counts} == {STEP + 1}


class StopAhead(SessionRunHook):
    """Has the chief announce in its third step that all stop after the sixth one."""

    def before_run(self, run_context):
        job = run_context.session.strategy.extended.job
        if job.is_chief and run_context.session.global_step == 2:
            job.stop_all(6)


@pytest.mark.parametrize("num_trainers", [1, 2, 3])
def test_b9_in_step_all_end_at_the_step_that_was_announced_however_early_they_hear_of_it(
    servers, tmp_path, num_trainers
):
    counts = [Steps() for _ in range(num_trainers)]

    def train(strategy, rank):
        estimator = pl.Estimator(
            model_fn, tmp_path / "model", pl.RunConfig(train_distribute=strategy)
        )
        data = pl.Dataset.from_tensors(np.ones((4, 3), np.float32)).repeat()
        estimator.train_and_report(lambda: data, hooks=[counts[rank], StopAhead()])

    servers(2, num_trainers, 0).train(train)
    assert [(count.made, count.last) for count in counts] == [(6, 6)] * num_trainers
