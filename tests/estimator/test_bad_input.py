"""What a user may get wrong, and the error that names the argument and the fix."""

import re

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.nn import layers, losses, metrics, optimizers


def trained(model_fn, tmp_path, input_fn, **arguments):
    return pl.Estimator(model_fn, tmp_path / "m").train(input_fn, **{"steps": 1, **arguments})


def a_loss(features):
    return np.mean(features * pl.get_variable("w", (), initializer=1.0))


HOOK = SessionRunHook()


def batches(*arrays, size=4):
    return lambda: pl.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0]).batch(
        size
    )


FEATURES = np.ones((8, 3), np.float32)
LABELS = np.zeros(8, np.int64)


def no_loss(features, labels, mode):
    op = optimizers.SGD().minimize(a_loss(features))
    return pl.EstimatorSpec(mode, train_op=op)


def no_train_op(features, labels, mode):
    return pl.EstimatorSpec(mode, loss=a_loss(features))


def loss_per_example(features, labels, mode):
    loss = features * pl.get_variable("w", (), initializer=1.0)
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(np.mean(loss)))


def loss_of_no_variable(features, labels, mode):
    loss = pl.Tensor(np.float32(1.0))
    pl.get_variable("w", (), initializer=1.0)
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))


def loss_outside_the_graph(features, labels, mode):
    loss = a_loss(features).numpy()
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))


def nothing(features, labels, mode):
    return None


def wrong_mode(features, labels, mode):
    return pl.EstimatorSpec(pl.ModeKeys.EVAL, loss=a_loss(features))


@pytest.mark.parametrize(
    ("model_fn", "error", "message"),
    [
        (no_loss, ValueError, "without loss in mode ModeKeys.TRAIN; pass loss="),
        (no_train_op, ValueError, r"without train_op .* pass train_op=optimizer.minimize\(loss\)"),
        (loss_per_example, ValueError, r"loss must be a scalar, its shape is \(4, 3\).*np.mean"),
        (loss_of_no_variable, ValueError, "depends on no variable"),
        (loss_outside_the_graph, TypeError, "loss must be a tensor.*left the gradient graph"),
        (nothing, TypeError, "must return an EstimatorSpec, it returned None"),
        (wrong_mode, ValueError, "called in mode ModeKeys.TRAIN .* ModeKeys.EVAL; pass mode=mode"),
    ],
)
def test_es_04_what_a_model_fn_may_forget(model_fn, error, message, tmp_path):
    with pytest.raises(error, match=message):
        trained(model_fn, tmp_path, batches(FEATURES, LABELS))


def test_an_error_in_one_replica_names_it(tmp_path):
    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])
    config = pl.RunConfig(train_distribute=strategy)
    with pytest.raises(ValueError, match="without loss") as caught:
        pl.Estimator(no_loss, tmp_path, config).train(batches(FEATURES, LABELS, size=2))
    assert re.match(r"Raised in replica [01] of 2", caught.value.__notes__[0])


def test_es_05_the_tutorials_predict_branch_is_refused_with_the_right_fields():
    with pytest.raises(TypeError, match=r"no field labels; its fields are mode, predictions, loss"):
        pl.EstimatorSpec(labels=None, predictions={"logits": FEATURES})


def test_predictions_are_needed_to_predict(tmp_path):
    def model_fn(features):
        return pl.EstimatorSpec("infer", loss=1.0)

    with pytest.raises(ValueError, match=r"without predictions in mode ModeKeys.PREDICT"):
        next(pl.Estimator(model_fn, tmp_path).predict(batches(FEATURES), allow_untrained=True))


def test_features_and_labels_of_unequal_length(tmp_path):
    def input_fn():
        return pl.Dataset.from_tensors((FEATURES, LABELS[:5]))

    with pytest.raises(ValueError, match=r"features.*8.*labels.*5|labels.*5.*features.*8"):
        trained(no_loss, tmp_path, input_fn)


@pytest.mark.host  # the loss of such a label is "not a number" on a card
@pytest.mark.parametrize("label", [10, -1])
def test_a_label_out_of_range(tmp_path, label):
    def model_fn(features, labels, mode):
        logits = layers.Dense(10)(features)
        loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))

    labels = LABELS.copy()
    labels[2] = label
    with pytest.raises(
        ValueError, match=rf"labels must lie in \[0, 10\).*found {label} at position 2"
    ):
        trained(model_fn, tmp_path, batches(FEATURES, labels))


def test_b1_construction_an_unknown_argument_of_model_fn(tmp_path):
    def model_fn(features, labels, mode, learning_rate):
        raise AssertionError

    with pytest.raises(ValueError, match=r"argument\(s\) learning_rate, .* it may name .*params"):
        pl.Estimator(model_fn, tmp_path)


def test_an_unknown_argument_of_input_fn(tmp_path):
    def input_fn(batch_size):
        raise AssertionError

    with pytest.raises(ValueError, match=r"input_fn has the argument\(s\) batch_size"):
        trained(no_loss, tmp_path, input_fn)


def test_b1_construction_params_that_model_fn_does_not_take(tmp_path):
    with pytest.raises(ValueError, match="no argument named params; add it"):
        pl.Estimator(no_loss, tmp_path, params={"a": 1})


def test_labels_that_model_fn_does_not_take(tmp_path):
    def model_fn(features, mode):
        raise AssertionError

    with pytest.raises(ValueError, match="gives labels but model_fn has no argument named labels"):
        trained(model_fn, tmp_path, batches(FEATURES, LABELS))


def test_b1_train_takes_steps_or_max_steps(tmp_path):
    with pytest.raises(ValueError, match="steps=1 and max_steps=2 exclude each other"):
        trained(no_loss, tmp_path, batches(FEATURES, LABELS), max_steps=2)


@pytest.mark.parametrize("arguments", [{"steps": 0}, {"steps": None, "max_steps": -1}])
def test_steps_that_are_not_positive(tmp_path, arguments):
    with pytest.raises(ValueError, match="must be > 0 or None"):
        trained(no_loss, tmp_path, batches(FEATURES, LABELS), **arguments)


def data():
    return None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pl.TrainSpec(data, hooks=[3]), "hooks must be objects of SessionRun"),
        (lambda: pl.TrainSpec(data, hooks=3), "hooks must be a list of SessionRunHooks"),
        (
            lambda: pl.TrainSpec(data, hooks=HOOK),
            "hooks must be a list of SessionRunHooks, it is <",
        ),
        (lambda: pl.TrainSpec(data, saving_listeners=[HOOK]), "saving_listeners must be .* is <"),
        (lambda: pl.EvalSpec(data, hooks=[SessionRunHook]), "hooks must be objects"),
        (lambda: pl.EvalSpec(data, name=3), "EvalSpec: name must be a str or None, it is 3"),
        (
            lambda: pl.EstimatorSpec("train", loss=1.0, train_op=[], training_hooks=["a"]),
            "training_hooks must be objects of SessionRunHook .* one is 'a'",
        ),
        (
            lambda: pl.EstimatorSpec("eval", loss=1.0, evaluation_hooks=HOOK),
            "evaluation_hooks must be a list",
        ),
    ],
)
def test_hooks_listeners_and_names_of_other_types_are_refused_where_they_are_given(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize("value", [None, "5", -1])
@pytest.mark.parametrize("name", ["start_delay_secs", "throttle_secs"])
def test_a_delay_that_is_no_number_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"EvalSpec: {name} must be a number ≥ 0, it is"):
        pl.EvalSpec(data, **{name: value})


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_an_empty_dataset(tmp_path, verb):
    """D-29."""
    estimator = pl.Estimator(no_loss, tmp_path)
    with pytest.raises(ValueError, match=r"the input gave no batch.*the dataset is empty"):
        getattr(estimator, verb)(batches(FEATURES[:0], LABELS[:0]))


def test_a_variable_whose_shape_changed_since_the_checkpoint(tmp_path):
    def model_of(units):
        def model_fn(features, labels, mode):
            loss = np.mean(np.square(layers.Dense(units)(features)))
            return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))

        return model_fn

    trained(model_of(4), tmp_path, batches(FEATURES, LABELS))
    expected = r"'dense/kernel' has shape \(3, 4\).*model.ckpt-1.*with shape \(3, 5\)"
    with pytest.raises(ValueError, match=expected):
        trained(model_of(5), tmp_path, batches(FEATURES, LABELS))


def test_a_variable_that_is_not_in_the_checkpoint(tmp_path):
    def model_of(name):
        def model_fn(features, labels, mode):
            loss = np.mean(features * pl.get_variable(name, (), initializer=1.0))
            return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))

        return model_fn

    trained(model_of("old"), tmp_path, batches(FEATURES, LABELS))
    with pytest.raises(ValueError, match=r"'new' is not in checkpoint .*old.*warm_start_from"):
        trained(model_of("new"), tmp_path, batches(FEATURES, LABELS))


def test_es_01_model_dirs_that_differ_are_refused(tmp_path):
    config = pl.RunConfig(model_dir=tmp_path / "a")
    with pytest.raises(ValueError, match=r"/b' in the call and .*/a' in config"):
        pl.Estimator(no_loss, tmp_path / "b", config)
    assert pl.Estimator(no_loss, tmp_path / "a", config).model_dir == str(tmp_path / "a")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((FEATURES, LABELS, LABELS), "must return a Dataset"),
        (3, "must return a Dataset"),
        (pl.Dataset.from_tensors((FEATURES, LABELS, LABELS)), "gave a tuple of 3"),
    ],
)
def test_what_input_fn_may_return(tmp_path, result, message):
    """IN-02."""
    with pytest.raises(ValueError, match=message):
        trained(no_loss, tmp_path, lambda: result)


def test_a_dataset_in_the_place_of_input_fn(tmp_path):
    with pytest.raises(TypeError, match="must be a function"):
        trained(no_loss, tmp_path, pl.Dataset.range(3))
    with pytest.raises(TypeError, match="input_fn must be a function that returns a Dataset"):
        pl.TrainSpec(pl.Dataset.range(3))


def test_metrics_must_not_take_reserved_names():
    metric = pl.nn.metrics.Mean()
    for name in ("loss", "global_step"):
        with pytest.raises(ValueError, match=f"the name '{name}' is taken"):
            pl.EstimatorSpec("eval", loss=1.0, eval_metric_ops={name: metric})


def test_metrics_must_be_metrics():
    with pytest.raises(TypeError, match=r"must be a paceline.nn.metrics.Metric"):
        pl.EstimatorSpec("eval", loss=1.0, eval_metric_ops={"a": 0.5})


def test_a_metric_that_is_never_updated_is_refused(tmp_path):
    """B1.spec: it would read 0.0."""

    def model_fn(features, labels, mode):
        return pl.EstimatorSpec(mode, loss=0.0, eval_metric_ops={"m": metrics.Mean()})

    estimator = pl.Estimator(model_fn, tmp_path)
    with pytest.raises(
        ValueError, match=r"eval_metric_ops\['m'\] was never updated .*update_state"
    ):
        estimator.evaluate(batches((FEATURES, FEATURES)))
