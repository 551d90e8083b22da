"""What hooks ask for, by name and by object, is what one process has on the whole batch."""

from collections import namedtuple

import numpy as np
import pytest

import paceline as pl
import paceline.compat.tf as tf
from paceline.estimator import (
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    SessionRunArgs,
    SessionRunHook,
)
from paceline.inputs import nest
from paceline.nn import metrics, optimizers

BATCH = 4  # per replica
NUM_STEPS = 4
Pair = namedtuple("Pair", ["first", "second"])


class Asks(SessionRunHook):
    """Asks for the same at each step."""

    def __init__(self, fetches, found):
        self.fetches = fetches
        self.found = found

    def before_run(self, run_context):
        return SessionRunArgs(self.fetches)

    def after_run(self, run_context, run_values):
        self.found.append(run_values.results)


def made(fetch, found, chief_alone=False):
    """A `model_fn` whose hook asks for what `fetch` makes of what it has computed."""

    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (3, 1), np.float64, lambda *_: np.full((3, 1), 0.5))
        outputs = features @ w
        if mode == pl.ModeKeys.PREDICT:
            hooks = [Asks(outputs, found)]
            return pl.EstimatorSpec(mode, predictions=outputs, prediction_hooks=hooks)
        errors = outputs - labels
        close = metrics.Mean(name="close")
        close.update_state(np.abs(labels[:, 0]) < 1)
        computed = {
            "w": w,
            "loss": np.mean(np.square(errors)),
            "rows": outputs,
            "number": np.mean(np.abs(errors)),
            "array": np.mean(np.abs(features), axis=0),
            "metric": close,
        }
        hook = Asks(fetch(computed), found)
        return pl.EstimatorSpec(
            mode,
            loss=computed["loss"],
            train_op=optimizers.SGD(0.1).minimize(computed["loss"]),
            eval_metric_ops={"close": close},
            training_hooks=[] if chief_alone else [hook],
            training_chief_hooks=[hook] if chief_alone else [],
            evaluation_hooks=[hook],
        )

    return model_fn


ASKED = {
    "a name": lambda c: "loss",
    "the loss": lambda c: c["loss"],
    "a variable": lambda c: c["w"],
    "rows": lambda c: c["rows"],
    "a number": lambda c: c["number"],
    "an array of one shape": lambda c: c["array"],
    "a metric": lambda c: c["metric"],
    "a nesting": lambda c: {"a": [c["number"], "loss"], "b": Pair(c["metric"], (c["rows"],))},
}


def everything(computed):
    return {what: asked(computed) for what, asked in ASKED.items()}


def examples_of(worker, num_replicas):
    """Those of the last worker end in the middle of a batch, or a whole step before the others."""
    size = [NUM_STEPS * BATCH * num_replicas - 1, 3 * BATCH * num_replicas][worker]
    rng = np.random.default_rng(worker)
    return rng.normal(size=(size, 3)), rng.normal(size=(size, 1))


def batches_of_all(num_workers, num_replicas):
    """The batches of one process that sees what all replicas of a step see."""
    of_each = [examples_of(w, num_replicas) for w in range(num_workers)]
    width = BATCH * num_replicas
    for step in range(NUM_STEPS):
        parts = [[a[step * width :][:width] for a in arrays] for arrays in of_each]
        yield tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def run(verb, fetch, input_fn, strategy, directory, chief_alone=False):
    config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    found = []
    estimator = pl.Estimator(made(fetch, found, chief_alone), directory, config)
    getattr(estimator, verb)(input_fn)
    return found


@pytest.mark.parametrize("verb", ["train", "evaluate"])
@pytest.mark.parametrize(("workers", "replicas"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_b8_fetches_are_what_one_process_has(on_workers, tmp_path, verb, workers, replicas):
    def work(strategy, index):
        data = pl.Dataset.from_tensor_slices(examples_of(index, replicas)).batch(BATCH)
        return run(verb, everything, lambda: data, strategy, tmp_path / "all")

    one = pl.Dataset.from_generator(lambda: batches_of_all(workers, replicas))
    expected = run(verb, everything, lambda: one, None, tmp_path / "one")
    assert len(expected) == NUM_STEPS
    for found in on_workers(workers, replicas, work):
        for step, mine in enumerate(found):
            names = nest.paths(expected[step])
            assert nest.paths(mine) == names
            leaves = zip(names, nest.flatten(mine), nest.flatten(expected[step]), strict=True)
            for name, own, other in leaves:
                np.testing.assert_allclose(own, other, rtol=1e-12, err_msg=f"{name} at {step}")
    if verb == "train":
        assert len(found) == NUM_STEPS


def test_a_hook_of_the_chief_alone_sees_the_value_over_all(on_workers, tmp_path):
    def work(strategy, index):
        data = pl.Dataset.from_tensor_slices(examples_of(index, 1)).batch(BATCH)
        fetch = ASKED["a nesting"]
        return run("train", fetch, lambda: data, strategy, tmp_path / "all", chief_alone=True)

    one = pl.Dataset.from_generator(lambda: batches_of_all(2, 1))
    expected = run("train", ASKED["a nesting"], lambda: one, None, tmp_path / "one")
    on_chief, on_other = on_workers(2, 1, work)
    assert on_other == []
    for own, other in zip(nest.flatten(on_chief), nest.flatten(expected), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)


def test_a_prediction_s_hook_sees_the_tensors_of_each_batch(tmp_path, one_pass):
    found = []
    estimator = pl.Estimator(made(ASKED["rows"], found), tmp_path)
    predictions = list(estimator.predict(_float64(one_pass), allow_untrained=True))
    np.testing.assert_array_equal(np.concatenate(found), predictions)


def _float64(input_fn):
    return lambda: input_fn().map(lambda x, y: (x.astype(np.float64), y.astype(np.float64)))


def test_metrics_of_an_evaluation_can_be_asked_for_by_name(tmp_path, one_pass):
    found = []
    asks = Asks({"so far": "close"}, found)
    estimator = pl.Estimator(made(ASKED["a name"], []), tmp_path)
    results = estimator.evaluate(_float64(one_pass), hooks=[asks])
    assert found[-1]["so far"] == pytest.approx(results["close"])
    assert found[0] != found[-1]


@pytest.mark.parametrize("chief_alone", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_logged_at_the_end_is_of_the_last_step(
    on_workers, tmp_path, lines, workers, chief_alone
):
    """Also where only the chief asks for it: the others read their part."""
    found = []

    def work(strategy, index):
        def model_fn(features, labels, mode):
            w = pl.get_variable("w", (3, 1), np.float64, lambda *_: np.zeros((3, 1)))
            errors = np.abs(features @ w - labels)
            loss = np.mean(np.square(errors))
            hooks = [Asks(np.mean(errors), found if index == 0 else [])]
            at_end = [LoggingTensorHook({"error": np.mean(errors)}, at_end=True)]
            return pl.EstimatorSpec(
                mode,
                loss=loss,
                train_op=optimizers.SGD(0.1).minimize(loss),
                training_hooks=hooks + ([] if chief_alone else at_end),
                training_chief_hooks=at_end if chief_alone else [],
            )

        data = pl.Dataset.from_tensor_slices(examples_of(index, 1)).batch(BATCH)
        config = pl.RunConfig(train_distribute=strategy)
        pl.Estimator(model_fn, tmp_path, config).train(lambda: data)

    on_workers(workers, 1, work)
    logged = {line for line in lines() if line.startswith("error = ")}
    assert logged == {f"error = {found[-1]:.8g}"}


STALE = {
    "it was made once": lambda kept, other: kept.setdefault("hook", Asks(other, [])),
    "it holds nothing that is seen": lambda kept, other: Asks([object()], []),
    "it has gone": lambda kept, other: Asks(
        {"x": other} if not kept else {}, kept.setdefault(0, [])
    ),
}


@pytest.mark.parametrize("why", STALE)
def test_a_tensor_of_an_earlier_call_is_never_passed_off_as_one_of_this(one_pass, tmp_path, why):
    kept = {}

    def model_fn(features, labels, mode):
        loss = np.mean(np.square(features * pl.get_variable("w", (), initializer=0.5)))
        train_op = optimizers.SGD().minimize(loss)
        hooks = [STALE[why](kept, loss * 2)]
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)

    with pytest.raises(TypeError, match=r"makes? (it|the hook)? ?in (model_fn, in )?each call"):
        pl.Estimator(model_fn, tmp_path).train(one_pass)


REFUSED = {
    "no arguments": (lambda: "loss", TypeError, r"before_run of \w+ must return SessionRunArgs"),
    "a feed": (lambda: SessionRunArgs("loss", {"x": 1}), ValueError, "let input_fn give"),
    "options": (lambda: SessionRunArgs("loss", options=1), ValueError, "feed_dict or options"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_before_run_returns_is_checked(estimator, one_pass, what):
    returned, kind, words = REFUSED[what]

    class Hook(SessionRunHook):
        def before_run(self, run_context):
            return returned()

    with pytest.raises(kind, match=words):
        estimator.train(one_pass, hooks=[Hook()])


@pytest.mark.parametrize("fails", [True, False])
def test_b8_nan_tensor_watches_any_tensor(one_pass, tmp_path, lines, fails):
    def model_fn(features, labels, mode):
        w = pl.get_variable("w", (), initializer=0.5)
        loss = np.mean(np.square(features * w))
        step = pl.get_or_create_global_step()
        other = np.float32(np.nan if int(step) == 2 else 1)
        hook = NanTensorHook(other, fail_on_nan_loss=fails)
        train_op = optimizers.SGD().minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])

    estimator = pl.Estimator(model_fn, tmp_path)
    if fails:
        with pytest.raises(NanLossDuringTrainingError, match="step 3"):
            estimator.train(one_pass)
    else:
        estimator.train(one_pass)
        assert int(estimator.get_variable_value("global_step")) == 3


def named_model_fn(features, labels, mode):
    """One of TensorFlow 1: hooks know tensors by the names of their operations."""
    w = pl.get_variable("w", (3, 1), np.float32, lambda *_: np.full((3, 1), 0.5, np.float32))
    outputs = tf.identity(tf.matmul(features, w), name="outputs")
    probabilities = tf.nn.sigmoid(outputs, name="probabilities")
    tf.nn.sigmoid(-outputs, name="probabilities")
    loss = tf.reduce_mean(tf.square(outputs - (0 if labels is None else labels)), name="error")
    return tf.estimator.EstimatorSpec(
        mode,
        predictions=probabilities,
        loss=loss,
        train_op=tf.train.GradientDescentOptimizer(0.1).minimize(loss),
    )


NAMED = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)


@pytest.mark.parametrize("replay_steps", [False, True])
@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_hooks_ask_for_tensors_by_the_names_of_their_operations(
    tmp_path, verb, num_replicas, replay_steps
):
    names = ["outputs", "probabilities:0", "probabilities_1", "error:0"]
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    config = pl.RunConfig(
        tmp_path,
        train_distribute=strategy,
        eval_distribute=strategy,
        replay_steps=replay_steps,
    )
    width = 8 if verb == "predict" else 8 // num_replicas
    data = (NAMED, np.ones((32, 1), np.float32))
    found, estimator = [], pl.Estimator(named_model_fn, config=config)
    options = {"allow_untrained": True} if verb == "predict" else {}
    result = getattr(estimator, verb)(
        lambda: pl.Dataset.from_tensor_slices(data).batch(width),
        hooks=[Asks(names, found)],
        **options,
    )
    list(result if verb == "predict" else ())
    assert len(found) == 4
    for step, (outputs, probabilities, others, error) in enumerate(found):
        assert outputs.shape == (8, 1)
        np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-outputs)), rtol=1e-5)
        np.testing.assert_allclose(others, 1 - probabilities, atol=1e-6)
        labels = 0 if verb == "predict" else 1
        assert error == pytest.approx(np.mean(np.square(outputs - labels)), rel=1e-5)
        if verb != "train":
            expected = NAMED[8 * step : 8 * step + 8] @ np.full((3, 1), 0.5)
            np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


def model_fn_that_names_what_every_run_has(features, mode):
    """Its operations are called like the loss, a metric and a variable."""
    w = pl.get_variable("w", (), np.float32, 1.0)
    loss = tf.square(tf.reduce_mean(2 * features * w, name="loss"))
    tf.reduce_sum(features, name="mean")
    tf.identity(features, name="w")
    mean = metrics.Mean(name="mean")
    mean.update_state(3.0)
    train_op = optimizers.SGD(0.0).minimize(loss)
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"mean": mean})


@pytest.mark.parametrize(
    ("verb", "expected"),
    [("train", {"loss": 4, "w": 1}), ("evaluate", {"loss": 4, "w": 1, "mean": 3})],
)
def test_a_name_of_an_operation_hides_no_loss_metric_or_variable(tmp_path, verb, expected):
    found = []
    getattr(pl.Estimator(model_fn_that_names_what_every_run_has, tmp_path), verb)(
        lambda: pl.Dataset.from_tensor_slices(np.ones((4, 1), np.float32)).batch(2),
        hooks=[Asks({name: name for name in expected}, found)],
    )
    assert found == [expected] * 2


def test_a_name_that_no_operation_has_is_refused_with_those_that_there_are(tmp_path):
    data = (NAMED, np.ones((32, 1), np.float32))
    hook = LoggingTensorHook({"p": "probabilties"}, every_n_iter=1)
    with pytest.raises(ValueError, match=r"asks for 'probabilties'; there are .*probabilities,.*w"):
        pl.Estimator(named_model_fn, tmp_path).train(
            lambda: pl.Dataset.from_tensor_slices(data).batch(8), hooks=[hook]
        )
