"""At parameter servers a chief whose data end goes on saving what the others learn."""

import threading

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import latest_checkpoint, load
from paceline.estimator import CheckpointSaverListener
from paceline.estimator.saving import CheckpointShards
from paceline.nn import optimizers

from ..threads import in_threads

X = np.ones((2, 1), np.float32)
CHIEF, OTHER = 1, 3  # steps


def model_fn(features, labels, mode):
    w = pl.get_variable("w", (1, 1), initializer=0.0)
    loss = np.mean(np.square(features @ w - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


class Saved(CheckpointSaverListener):
    """Counts checkpoints, and lets others wait for them."""

    def __init__(self):
        self._num, self._changed = 0, threading.Condition()

    def after_save(self, session, global_step_value):
        with self._changed:
            self._num += 1
            self._changed.notify_all()

    def has_come_to(self, num):
        """Whether there are so many within 20 s."""
        with self._changed:
            return self._changed.wait_for(lambda: self._num >= num, timeout=20)


@pytest.mark.parametrize("max_staleness", [None, 0])
def test_what_others_learn_is_saved_while_they_train(server_job, tmp_path, max_staleness):
    saved, is_saved = Saved(), []

    def batches_of_other():
        yield X, X
        assert saved.has_come_to(2)  # the beginning, and the chief's step
        yield X, X
        is_saved.append(saved.has_come_to(3))
        yield X, X

    def train(rank):
        config = pl.RunConfig(
            model_dir=str(tmp_path), train_distribute=job.strategy(rank), save_checkpoints_steps=1
        )
        batches = batches_of_other if rank else [(X, X)] * CHIEF
        listeners = () if rank else (saved,)
        estimator = pl.Estimator(model_fn, config=config)
        estimator.train_and_report(
            lambda: pl.Dataset.from_generator(batches), (), None, None, listeners
        )
        config.train_distribute.extended.job.share_result("")

    job = server_job(2, 2, max_staleness, storage=CheckpointShards(3, str(tmp_path)))
    in_threads(2, train)
    assert is_saved == [True]
    num_steps = OTHER if max_staleness == 0 else CHIEF + OTHER
    assert load(latest_checkpoint(tmp_path)).step == num_steps
