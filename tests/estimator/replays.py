"""Runs of an Estimator with and without `replay_steps`, to be compared."""

import numpy as np

import paceline as pl

from ..hooks import Losses

CALLED_NO_MORE = "model_fn is called no more for batches of these shapes"


def config(replays, strategy=None, **options):
    return pl.RunConfig(
        tf_random_seed=1,
        replay_steps=replays,
        save_summary_steps=2,
        train_distribute=strategy,
        **options,
    )


def trained(estimator, data, num_steps, batch=5):
    """The losses of some steps, and the last checkpoint."""
    hook = Losses()

    def input_fn():
        return pl.Dataset.from_tensor_slices(data).batch(batch).repeat()

    estimator.train(input_fn, [hook], num_steps)
    path = pl.checkpoint.latest_checkpoint(estimator.model_dir)
    return hook.values, pl.checkpoint.load(path).arrays()


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)
