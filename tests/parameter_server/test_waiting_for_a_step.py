"""B8.GlobalStepWaiter: a trainer of parameter servers begins when others have made some steps."""

import threading

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import GlobalStepWaiterHook, SessionRunHook
from paceline.nn import layers, optimizers

MAX_STEPS = 20


class First(SessionRunHook):
    """Notes the global step before the first step, as the servers know it."""

    def __init__(self):
        self.step = None

    def before_run(self, run_context):
        if self.step is None:
            run_context.session.strategy.extended.job.refresh()
            self.step = int(run_context.session.store.variables["global_step"].numpy())


def model_fn(features, labels, mode):
    loss = np.mean(np.square(layers.Dense(1)(features)))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


def train(strategy, directory, hooks):
    config = pl.RunConfig(train_distribute=strategy)
    data = pl.Dataset.from_tensors(np.ones((4, 3), np.float32)).repeat()
    estimator = pl.Estimator(model_fn, directory / "model", config)
    estimator.train_and_report(lambda: data, hooks=hooks, max_steps=MAX_STEPS)


def test_b8_global_step_waiter_waits_for_the_step_and_the_chief_for_nobody(servers, tmp_path):
    firsts = [First(), First()]

    def call(strategy, rank):
        waiter = GlobalStepWaiterHook(5, sleep=threading.Event().wait)
        train(strategy, tmp_path, [waiter, firsts[rank]])

    servers(1, 2, None).train(call)
    assert firsts[0].step < 5 <= firsts[1].step


def test_it_waits_no_longer_where_nobody_makes_steps(servers, tmp_path, caplog):
    """Else it and the chief, which ends when all have, would wait for each other."""
    caplog.set_level("INFO", logger="paceline")
    now = [0.0]

    def sleep(secs):
        now[0] += 30
        threading.Event().wait(0.01)

    def call(strategy, rank):
        train(strategy, tmp_path, [GlobalStepWaiterHook(1000, lambda: now[0], sleep)])

    servers(1, 2, None).train(call)
    told = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("Waiting for global step 1000; it is ") for line in told)
    assert any("this trainer does not wait for step 1000 any longer" in line for line in told)


def test_it_is_refused_where_all_make_each_step_together(servers, tmp_path):
    def call(strategy, rank):
        with pytest.raises(ValueError, match="nobody makes one while this worker waits"):
            train(strategy, tmp_path, [GlobalStepWaiterHook(5)])

    servers(1, 1, 0).train(call)
