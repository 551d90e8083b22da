"""What a run leaves in memory: nothing that waits for Python to look for cycles.

Such garbage holds all arrays of a model, and Python may look for it some models later.
"""

import gc
import weakref

import pytest

import paceline as pl
from paceline.estimator import SessionRunHook


class References(SessionRunHook):
    """The session and its variables, without keeping them."""

    def after_create_session(self, session, coord):
        assert coord.session is session
        self.found = {"session": weakref.ref(session), "store": weakref.ref(session.store)}

    @property
    def alive(self):
        return [name for name, reference in self.found.items() if reference() is not None]


@pytest.fixture
def without_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]], ids=["1 replica", "2"])
@pytest.mark.parametrize("call", ["train", "evaluate", "predict"])
def test_a_run_is_gone_when_its_call_returns(
    linear_model_fn, input_fn, tmp_path, without_collection, devices, call
):
    config = pl.RunConfig(train_distribute=pl.MirroredStrategy(devices))
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    hook = References()
    if call == "train":
        estimator.train(input_fn, hooks=[hook], steps=3)
    elif call == "evaluate":
        estimator.train(input_fn, steps=1)
        estimator.evaluate(input_fn, hooks=[hook], steps=3)
    else:
        estimator.train(input_fn, steps=1)
        predictions = estimator.predict(input_fn, hooks=[hook])
        next(predictions)
        predictions.close()
    # An evaluation's variables are kept for the next one.
    assert hook.alive == ([] if call == "train" else ["store"])


def test_a_run_that_fails_is_gone_with_its_error(
    linear_model_fn, input_fn, tmp_path, without_collection
):
    class Fails(SessionRunHook):
        def after_run(self, run_context, run_values):
            raise RuntimeError("on purpose")

    hook = References()
    with pytest.raises(RuntimeError, match="on purpose") as failure:
        pl.Estimator(linear_model_fn, tmp_path).train(input_fn, hooks=[hook, Fails()], steps=3)
    failure.value.__traceback__ = None
    del failure
    assert hook.alive == []
