"""Who is told what, and when: the life of hooks as a table (B8)."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import NanLossDuringTrainingError, SessionRunHook
from paceline.nn import optimizers


class Tells(SessionRunHook):
    """Writes into a common list what it is told."""

    def __init__(self, name, told):
        self.name = name
        self.told = told

    def begin(self):
        self.told.append(f"begin {self.name}")

    def after_create_session(self, session, coord=None):
        self.told.append(f"created {self.name}")

    def before_run(self, run_context):
        self.told.append(f"before {self.name}")

    def after_run(self, run_context, run_values):
        self.told.append(f"after {self.name}")

    def end(self, session):
        self.told.append(f"end {self.name}")


FIELDS = {
    "train": {"chief": "training_chief_hooks", "spec": "training_hooks"},
    "evaluate": {"spec": "evaluation_hooks"},
    "predict": {"spec": "prediction_hooks"},
}

# Of whom hooks are told, in this order. As in TensorFlow the chief's precede those of the call, and
# those of the spec come last. What the spec brings begins when it is there.
ORDER = {
    ("train", "chief"): ["chief", "call", "spec"],
    ("train", "other worker"): ["call", "spec"],
    ("evaluate", "chief"): ["call", "spec"],
    ("evaluate", "other worker"): ["call", "spec"],
    ("predict", "chief"): ["call", "spec"],
}


def life(verb, who, num_steps):
    """The model is called once before the first step is announced: it makes variables and hooks.

    Training goes on with what that call has computed, the others call the model again.
    """
    all_told = lambda what: [f"{what} {name}" for name in who]  # noqa: E731
    brought = [f"begin {name}" for name in who if name != "call"]
    start = ["begin call", "model", *brought, *all_told("created")]
    first = [] if verb == "train" else ["model"]
    calls = [first, *[["model"]] * (num_steps - 1)]
    return start + [e for call in calls for e in [*all_told("before"), *call, *all_told("after")]]


def made(verb, told):
    def model_fn(features, labels, mode):
        told.append("model")
        outputs = features * pl.get_variable("w", (), initializer=1.0)
        hooks = {field: [Tells(who, told)] for who, field in FIELDS[verb].items()}
        if mode == pl.ModeKeys.PREDICT:
            return pl.EstimatorSpec(mode, predictions=outputs, **hooks)
        loss = np.mean(outputs)
        op = optimizers.SGD().minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=op, **hooks)

    return model_fn


def told_of(verb, strategy, index, directory):
    told = []
    config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    data = pl.Dataset.from_tensors(np.ones((4, 3), np.float32)).repeat(2)
    estimator = pl.Estimator(made(verb, told), directory, config)
    arguments = {"allow_untrained": True} if verb == "predict" else {}
    result = getattr(estimator, verb)(lambda: data, hooks=[Tells("call", told)], **arguments)
    list(result) if verb == "predict" else None
    return told


@pytest.mark.parametrize(
    ("verb", "num_workers"),
    [("train", 1), ("train", 2), ("evaluate", 1), ("evaluate", 2), ("predict", 1)],
)
def test_b8_life_cycle_and_order(on_workers, tmp_path, verb, num_workers):
    told = on_workers(num_workers, 1, lambda s, index: told_of(verb, s, index, tmp_path))
    for index, mine in enumerate(told):
        who = ORDER[verb, "other worker" if index else "chief"]
        ends = [f"end {name}" for name in who]
        # Training announces a step before it knows that the data have ended.
        announced = [f"before {name}" for name in who] if verb == "train" else []
        stood_in = ["model"] if verb == "train" and num_workers > 1 else []
        assert mine == [*life(verb, who, 2), *announced, *stood_in, *ends]


def test_b8_order_the_loss_is_watched_before_anybody_is_told_of_the_step(tmp_path, one_pass):
    """B12.nan_checkpoint: nor is the step saved, although one is due."""
    told = []

    def model_fn(features, labels, mode):
        told.append("model")
        w = pl.get_variable("w", (), initializer=1.0)
        loss = np.mean(features) * w * (np.nan if told.count("model") == 2 else 1.0)
        op = optimizers.SGD().minimize(loss)
        hooks = [Tells("chief", told)]
        return pl.EstimatorSpec(mode, loss=loss, train_op=op, training_chief_hooks=hooks)

    config = pl.RunConfig(save_checkpoints_steps=1)
    estimator = pl.Estimator(model_fn, tmp_path, config)
    with pytest.raises(NanLossDuringTrainingError):
        estimator.train(one_pass)
    assert told[-2:] == ["before chief", "model"]
    assert estimator.latest_checkpoint().endswith("model.ckpt-1")


class Given(SessionRunHook):
    """Whatever methods the object is given."""

    def __init__(self, **methods):
        self.__dict__ |= methods


def test_b8_a_hook_is_told_whether_its_methods_are_those_of_its_class_or_its_own(
    linear_model_fn, input_fn, tmp_path
):
    told = []
    only_asks = Given(before_run=lambda context: told.append("before"))
    only_hears = Given(after_run=lambda context, values: told.append("after"))
    pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=2, hooks=[only_asks, only_hears])
    assert told == ["before", "after"] * 2


def test_b8_what_nobody_can_answer_is_refused_also_where_the_hook_does_not_listen(
    linear_model_fn, input_fn, tmp_path
):
    asks = Given(before_run=lambda context: pl.estimator.SessionRunArgs("weights"))
    with pytest.raises(ValueError, match="a hook asks for 'weights'; there are loss"):
        pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=1, hooks=[asks])


def test_b8_a_hook_that_takes_part_twice_hears_twice(linear_model_fn, input_fn, tmp_path):
    told = []
    hook = Tells("one", told)
    pl.Estimator(linear_model_fn, tmp_path).train(input_fn, steps=1, hooks=[hook, hook])
    assert [line for line in told if line[0] in "ba" and "run" not in line] == [
        *["begin one"] * 2,
        *["before one"] * 2,
        *["after one"] * 2,
    ]
