"""Hooks that say how long they need not be told of steps, and are not."""

import math

import numpy as np
import pytest

import paceline as pl
from paceline.estimator.hooks.timer import SecondOrStepTimer
from paceline.nn import optimizers
from paceline.training import Rest, SessionRunHook


class Resting(SessionRunHook):
    """Notes of which steps it is told, and says behind the first one how long it rests."""

    def __init__(self, rest):
        self.rest = rest
        self.before, self.after = [], []

    def before_run(self, run_context):
        self.before.append(run_context.session.global_step + 1)

    def after_run(self, run_context, run_values):
        self.after.append(run_context.session.global_step)

    def may_rest(self, session):
        return self.rest


class Overriding(Resting):
    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)


def told(hook, model_dir, steps=12, loss_of=lambda x, step: np.mean(x), **options):
    """The global steps before and after which a hook is told, in a run of so many."""

    def model_fn(features, mode):
        w = pl.get_variable("w", (), np.float32, 1.0)
        step = int(pl.get_or_create_global_step().numpy())
        loss = loss_of(features * w, step)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.0).minimize(loss))

    def input_fn():
        return pl.Dataset.from_tensors(np.ones((2, 1), np.float32)).repeat()

    config = pl.RunConfig(
        save_summary_steps=0, log_step_count_steps=None, save_checkpoints_steps=1000, **options
    )
    pl.Estimator(model_fn, model_dir, config).train(input_fn, hooks=[hook], steps=steps)
    return hook.before, hook.after


EACH = list(range(1, 13))


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        pytest.param(Rest(step=9), [1, 9, 10, 11, 12], id="until a global step"),
        pytest.param(Rest(num_steps=6), [1, 8], id="for some steps, again and again"),
        pytest.param(Rest(), [1], id="for good"),
        pytest.param(Rest(secs=0), EACH, id="for no time"),
        pytest.param(Rest(step=3), EACH, id="for too few steps"),
        pytest.param(None, EACH, id="not at all"),
    ],
)
def test_a_hook_is_told_of_no_step_in_which_it_rests(rest, expected, tmp_path):
    # The run itself has a hook that wants to know of its end, at step 12, and wakes all some
    # steps before: they may be told earlier than they have asked for.
    before, after = told(Resting(rest), tmp_path)
    wakened = [step for step in (8, 12) if step not in expected]
    assert [step for step in before if step not in wakened] == expected
    assert [step for step in after if step not in wakened] == expected


def test_a_subclass_that_overrides_what_it_is_told_by_does_not_rest(tmp_path):
    before, after = told(Overriding(Rest()), tmp_path)
    assert (before, after) == (EACH, EACH)


def test_a_hook_that_is_told_by_a_method_of_its_own_does_not_rest(tmp_path):
    hook, seen = Resting(Rest()), []
    hook.after_run = lambda run_context, run_values: seen.append(run_context.session.global_step)
    told(hook, tmp_path)
    assert seen == EACH


def test_of_a_loss_that_is_no_number_hooks_are_told_that_rest(tmp_path):
    hook = Resting(Rest())
    with pytest.raises(pl.estimator.NanLossDuringTrainingError, match="step 6"):
        told(hook, tmp_path, loss_of=lambda x, step: np.mean(x) * (math.nan if step == 5 else 1.0))
    assert hook.before == [1]


def test_a_timer_says_how_long_it_is_not_due():
    now = 100.0
    steps, secs = SecondOrStepTimer(None, 20), SecondOrStepTimer(5.0, None, clock=lambda: now)
    assert steps.rest() is None
    assert secs.rest() is None
    steps.update_last_triggered_step(3)
    secs.update_last_triggered_step(3)
    now = 102.0
    assert steps.rest() == Rest(step=23)
    assert secs.rest() == Rest(secs=3.0)
    often = SecondOrStepTimer(None, 1)
    often.update_last_triggered_step(3)
    assert often.rest() is None
