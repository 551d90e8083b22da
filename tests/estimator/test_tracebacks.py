"""An error of the user's is shown with the user's frames and few of the package's."""

import traceback
from pathlib import Path

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.nn import layers, optimizers

PACKAGE = Path(pl.__file__).parent


def boom():
    raise KeyError("mine")


class Hook(SessionRunHook):
    def after_run(self, run_context, run_values):
        boom()


def good_input():
    return pl.Dataset.from_tensor_slices((np.ones((8, 3), "f4"), np.ones((8, 1), "f4"))).batch(4)


def bad_input():
    boom()


def good_model(features, labels, mode):
    outputs = layers.Dense(1)(features)
    loss = np.mean(np.square(outputs - (1 if labels is None else labels)))
    train_op = optimizers.SGD().minimize(loss)
    return pl.EstimatorSpec(mode, predictions=outputs, loss=loss, train_op=train_op)


def bad_model(features, labels, mode):
    boom()


def model_with_a_bad_layer(features, labels, mode):
    layers.Dense(1)(features) @ np.ones((7, 7), np.float32)


VERBS = {
    "train": lambda estimator, *given, **more: estimator.train(*given, **more),
    "evaluate": lambda estimator, *given, **more: estimator.evaluate(*given, **more),
    "predict": lambda estimator, *given, **more: list(
        estimator.predict(*given, **more, allow_untrained=True)
    ),
    "train_and_evaluate": lambda estimator, input_fn, hooks=(): pl.train_and_evaluate(
        estimator, pl.TrainSpec(input_fn, hooks=hooks), pl.EvalSpec(good_input)
    ),
}


@pytest.fixture(params=[1, 2], ids=["one replica", "two replicas"])
def config(request):
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(request.param)])
    return pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)


@pytest.mark.host  # frames of the stand-in are no frames of the package
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("model_fn", "input_fn", "hooks", "last", "deepest"),
    [
        (bad_model, good_input, [], ["bad_model", "boom"], 0),
        (good_model, bad_input, [], ["bad_input", "boom"], 0),
        (good_model, good_input, [Hook()], ["after_run", "boom"], 0),
        (model_with_a_bad_layer, good_input, [], ["model_with_a_bad_layer"], 1),
    ],
    ids=["model_fn", "input_fn", "hook", "a layer"],
)
def test_the_package_has_one_frame_above_the_user_s_and_at_most_one_below(
    tmp_path, config, monkeypatch, verb, model_fn, input_fn, hooks, last, deepest
):
    monkeypatch.delenv("PACELINE_TRACEBACK", raising=False)
    with pytest.raises((KeyError, ValueError)) as caught:
        VERBS[verb](pl.Estimator(model_fn, tmp_path, config), input_fn, hooks=hooks)
    frames = traceback.extract_tb(caught.value.__traceback__)
    names = [f.name for f in frames if f.filename == __file__]
    assert names[-len(last) :] == last
    ours = [f.name for f in frames if Path(f.filename).is_relative_to(PACKAGE)]
    assert ours[0] == verb
    assert len(ours) == 1 + deepest


def test_a_step_of_a_custom_loop_is_shown_alike(monkeypatch):
    monkeypatch.delenv("PACELINE_TRACEBACK", raising=False)
    with pytest.raises(KeyError) as caught:
        pl.MirroredStrategy(["CPU:0", "CPU:1"]).run(boom)
    assert [f.name for f in caught.traceback][-2:] == ["run", "boom"]


def test_all_frames_are_shown_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_TRACEBACK", "full")
    with pytest.raises(KeyError) as caught:
        pl.Estimator(bad_model, tmp_path).train(good_input)
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert len(names) > 10
    assert "_replica_step" in names


@pytest.mark.host  # frames of the stand-in are no frames of the package
def test_what_led_to_an_error_is_shortened_too(monkeypatch):
    monkeypatch.delenv("PACELINE_TRACEBACK", raising=False)

    def step():
        try:
            pl.Tensor(np.ones(2)) @ np.ones(3)
        except ValueError as error:
            raise RuntimeError("mine") from error

    with pytest.raises(RuntimeError) as caught:
        pl.OneDeviceStrategy("CPU:0").run(step)
    causes = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [f.name for f in causes if f.filename == __file__] == ["step"]
    assert len(causes) == 2
