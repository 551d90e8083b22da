"""Which checkpoints a run keeps (CK-05, D-12, D-30), by the settings of RunConfig."""

import copy
import os
import pickle

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import list_checkpoints, read_metrics
from paceline.estimator import SessionRunHook
from paceline.nn import metrics, optimizers


@pytest.fixture
def kept(linear_model_fn, input_fn, tmp_path):
    """`kept(**settings)`: the steps that are left of a run of 10 steps that saves each of them."""

    def train(**settings):
        config = pl.RunConfig(save_checkpoints_steps=1, **settings)
        pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, steps=10)
        return [step for _, step in list_checkpoints(tmp_path)]

    return train


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, [6, 7, 8, 9, 10]),
        ({"keep_checkpoint_max": 2}, [9, 10]),
        ({"keep_checkpoint_max": None}, [*range(11)]),
        ({"keep_checkpoint_max": 2, "keep_checkpoint_steps": {3, 5}}, [3, 5, 9, 10]),
        ({"keep_checkpoint_max": 1, "keep_checkpoint_steps": range(0, 10**9, 4)}, [0, 4, 8, 10]),
    ],
)
def test_what_is_left_of_a_run(kept, settings, steps):
    assert kept(**settings) == steps


def test_a_lowered_limit_deletes_down_to_it(kept):
    """D-12."""
    assert len(kept(keep_checkpoint_max=None)) == 11
    assert kept(keep_checkpoint_max=2) == [19, 20]


LOSSES = {0: 9.0, 1: 5.0, 2: 3.0, 3: 4.0, 4: 1.0, 5: 2.0, 6: 6.0, 7: 7.0, 8: 8.0}


def model_fn(features, labels, mode):
    """Its loss and its score when it is evaluated are those of LOSSES."""
    w = pl.get_variable("w", (), initializer=0.0)
    if mode == pl.ModeKeys.EVAL:
        value = LOSSES[int(pl.get_or_create_global_step().numpy())]
        score = metrics.Mean(name="score")
        score.update_state(np.float32(value))
        loss = w * 0 + value
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"score": score})
    loss = np.mean(features) * w
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


def ones():
    return pl.Dataset.from_tensors((np.ones(2, np.float32), np.ones(2, np.float32))).repeat(8)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"keep_checkpoint_best": "loss"}, [4, 8]),
        ({"keep_checkpoint_best": "loss", "keep_checkpoint_best_max": 3}, [2, 4, 5, 8]),
        ({"keep_checkpoint_best": "score", "keep_checkpoint_best_mode": "max"}, [7, 8]),
        ({"keep_checkpoint_best": "unknown"}, [8]),
    ],
)
def test_d_30_the_best_are_kept_while_training_evaluates(tmp_path, settings, steps):
    """D-30. The first checkpoint is not evaluated."""
    config = pl.RunConfig(save_checkpoints_steps=1, keep_checkpoint_max=1, **settings)
    pl.train_and_evaluate(
        pl.Estimator(model_fn, tmp_path, config),
        pl.TrainSpec(ones, 8),
        pl.EvalSpec(ones, steps=1, throttle_secs=0, start_delay_secs=0),
    )
    assert [step for _, step in list_checkpoints(tmp_path)] == steps


def test_evaluate_notes_the_metrics_beside_the_checkpoint(tmp_path):
    estimator = pl.Estimator(model_fn, tmp_path)
    estimator.train(ones, steps=4)
    estimator.evaluate(ones)
    estimator.evaluate(ones, name="test")
    estimator.evaluate(ones)
    found = read_metrics(estimator.latest_checkpoint())
    assert found == {"loss": 1, "score": 1, "test/loss": 1, "test/score": 1}


def test_a_checkpoint_that_cannot_be_written_to_can_be_evaluated(tmp_path, lines):
    estimator = pl.Estimator(model_fn, tmp_path)
    estimator.train(ones, steps=4)
    path = estimator.latest_checkpoint()
    os.mkdir(os.path.join(path, "metrics.json"))
    assert estimator.evaluate(ones)["loss"] == 1
    assert read_metrics(path) == {}
    assert any("metrics are not noted beside the checkpoint: cannot write" in x for x in lines())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_checkpoint_best_max": 2}, "keep_checkpoint_best_max .*give keep_checkpoint_best"),
        ({"keep_checkpoint_best_mode": "max"}, "keep_checkpoint_best_mode"),
        ({"keep_checkpoint_best": "loss", "keep_checkpoint_best_max": 0}, "greater than or equal"),
        ({"keep_checkpoint_best": "loss", "keep_checkpoint_best_mode": "most"}, "'min' or 'max'"),
        ({"keep_checkpoint_steps": ["a"]}, "keep_checkpoint_steps"),
        ({"keep_checkpoint_every_n_hours": 0}, "greater than 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        pl.RunConfig(**settings)


def test_settings_are_plain_data():
    """ES-25."""
    config = pl.RunConfig(keep_checkpoint_steps=range(0, 100, 10), keep_checkpoint_best="loss")
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config)), config.replace()):
        assert other.keep_checkpoint_steps == range(0, 100, 10)
        assert other.keep_checkpoint_best == "loss"


def test_a_restart_forgets_no_metrics(tmp_path):
    """What a run was restored from is not saved again."""
    config = pl.RunConfig(keep_checkpoint_max=1, keep_checkpoint_best="loss")
    first = pl.Estimator(model_fn, tmp_path, config)
    first.train(ones, steps=4)
    first.evaluate(ones)
    before = os.stat(first.latest_checkpoint())
    pl.Estimator(model_fn, tmp_path, config).train(ones, max_steps=8)
    assert [step for _, step in list_checkpoints(tmp_path)] == [4, 8]
    assert os.path.samestat(os.stat(tmp_path / "model.ckpt-4"), before)


def test_an_evaluator_s_metrics_count(tmp_path):
    """What another estimator of the same directory found, as an evaluator beside does."""

    class Evaluates(SessionRunHook):
        def after_run(self, run_context, run_values):
            step = run_context.session.global_step
            if step in (2, 5):
                path = estimator.latest_checkpoint()
                pl.Estimator(model_fn, tmp_path).evaluate(ones, steps=1, checkpoint_path=path)

    config = pl.RunConfig(
        save_checkpoints_steps=1, keep_checkpoint_max=1, keep_checkpoint_best="loss"
    )
    estimator = pl.Estimator(model_fn, tmp_path, config)
    estimator.train(ones, steps=8, hooks=[Evaluates()])
    assert [step for _, step in list_checkpoints(tmp_path)] == [5, 8]
