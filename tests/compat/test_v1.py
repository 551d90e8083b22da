"""Scripts of TensorFlow 1: a model_fn in its names trains, evaluates and predicts."""

import inspect
import logging
import sys
from pathlib import Path

import numpy as np
import pytest

import paceline as pl
import paceline.compat.tf as tf
import paceline.compat.tf.compat.v1 as tf1


def model_fn(features, labels, mode, params):
    net = tf1.layers.dense(features["x"], 16, activation=tf.nn.relu, name="hidden")
    net = tf1.layers.dropout(net, 0.1, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = tf1.layers.dense(net, 3)
    classes = tf.argmax(logits, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"class": classes})
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    accuracy = tf1.metrics.accuracy(labels, classes)
    tf1.summary.scalar("loss_again", loss)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": accuracy, "mean_x": tf1.metrics.mean(features["x"])}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    step = tf1.train.get_or_create_global_step()
    rate = tf1.train.exponential_decay(params["rate"], step, 100, 0.9, staircase=True)
    train_op = tf1.train.AdamOptimizer(rate).minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def clusters(num_examples):
    labels = np.arange(num_examples) % 3
    x = np.eye(3, 4)[labels] + 0.1 * np.random.default_rng(0).standard_normal((num_examples, 4))
    return {"x": x.astype(np.float32)}, labels


def input_fn():
    return tf.data.Dataset.from_tensor_slices(clusters(90)).shuffle(90).repeat().batch(15)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_mb_24_a_model_fn_of_layers_losses_metrics_and_train(num_replicas, tmp_path):
    strategy = tf.contrib.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    config = tf.estimator.RunConfig(tmp_path, train_distribute=strategy, tf_random_seed=1)
    classifier = tf.estimator.Estimator(model_fn, config=config, params={"rate": 0.05})
    hook = tf1.train.StopAtStepHook(last_step=60)
    classifier.train(input_fn, hooks=[hook])
    found = classifier.evaluate(lambda: tf.data.Dataset.from_tensor_slices(clusters(90)).batch(40))
    assert found["accuracy"] > 0.95
    np.testing.assert_allclose(found["mean_x"], clusters(90)[0]["x"].mean(), rtol=1e-5)
    assert found["global_step"] == 60
    predicted = classifier.predict(
        lambda: tf.data.Dataset.from_tensor_slices(clusters(6)[0]).batch(6)
    )
    assert [int(p["class"]) for p in predicted] == [0, 1, 2, 0, 1, 2]
    assert dict(tf.train.list_variables(str(tmp_path)))["hidden/kernel"] == [4, 16]
    last = tf.train.latest_checkpoint(str(tmp_path))
    assert tf.train.load_variable(last, "global_step") == 60


def test_mb_24_metrics_are_pairs_whose_value_is_of_all_batches():
    value, update = tf1.metrics.mean_squared_error([1.0, 2.0], [1.0, 4.0], weights=[1.0, 3.0])
    update()
    assert float(value.result()) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("optimizer", "ours"),
    [
        (lambda: tf1.train.GradientDescentOptimizer(0.1), pl.nn.optimizers.SGD),
        (lambda: tf1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True), pl.nn.optimizers.SGD),
        (lambda: tf1.train.AdamOptimizer(beta1=0.5), pl.nn.optimizers.Adam),
        (lambda: tf1.train.AdagradOptimizer(0.1), pl.nn.optimizers.Adagrad),
        (lambda: tf1.train.RMSPropOptimizer(0.1, centered=True), pl.nn.optimizers.RMSprop),
        (lambda: tf1.train.FtrlOptimizer(0.1), pl.nn.optimizers.Ftrl),
        (lambda: tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9), pl.nn.optimizers.SGD),
    ],
)
def test_mb_24_optimizers_of_the_old_names_minimize(optimizer, ours):
    made = optimizer()
    assert isinstance(made, ours)
    variable = tf.Variable(3.0)
    before = 9.0
    for _ in range(3):
        made.minimize(tf.square(variable), var_list=[variable])()
    assert float(variable) ** 2 < before


@pytest.mark.parametrize(
    ("decay", "rate"),
    [
        (lambda step: tf1.train.exponential_decay(1.0, step, 10, 0.5), 0.5**1.5),
        (lambda step: tf1.train.exponential_decay(1.0, step, 10, 0.5, staircase=True), 0.5),
        (lambda step: tf1.train.inverse_time_decay(1.0, step, 10, 0.5), 1 / 1.75),
        (lambda step: tf1.train.polynomial_decay(1.0, step, 20, 0.0), 0.25),
        (lambda step: tf1.train.cosine_decay(1.0, step, 30), 0.5),
        (lambda step: tf1.train.piecewise_constant(step, [10, 20], [1.0, 0.5, 0.1]), 0.5),
    ],
)
def test_mb_24_rates_decay_with_the_step(decay, rate):
    assert decay(tf.constant(15)) == pytest.approx(rate)


def test_mb_24_flags_and_the_program(monkeypatch):
    flags = tf1.app.flags
    flags.DEFINE_integer("num_steps_of_test", 5, "how many")
    flags.DEFINE_bool("is_test", False, "whether")
    seen = []
    with pytest.raises(SystemExit):
        tf1.app.run(seen.append, argv=["train.py", "--num_steps_of_test=7", "--is_test", "rest"])
    assert (flags.FLAGS.num_steps_of_test, flags.FLAGS.is_test) == (7, True)
    assert seen == [["train.py", "rest"]]


def test_mb_24_the_verbosity_is_that_of_our_log():
    before = tf1.logging.get_verbosity()
    tf1.logging.set_verbosity(tf1.logging.ERROR)
    assert logging.getLogger("paceline").level == logging.ERROR
    tf1.logging.set_verbosity(before)


def test_mb_24_examples_are_written_and_read(tmp_path):
    path = str(tmp_path / "data.tfrecord")
    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[3])),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"three"])),
    }
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(2):
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    form = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
    }
    data = tf.data.TFRecordDataset(path).map(lambda r: tf.io.parse_single_example(r, form))
    rows = list(data.batch(2))
    assert rows[0]["x"].tolist() == [[1.0, 2.0]] * 2
    assert (rows[0]["label"].tolist(), rows[0]["name"].tolist()) == ([3, 3], ["three"] * 2)


def test_mb_24_files_and_summaries_of_a_writer(tmp_path):
    with tf.io.gfile.GFile(tmp_path / "a.txt", "w") as file:
        file.write("1,2\n3,4\n")
    assert tf.io.gfile.exists(tmp_path / "a.txt")
    lines = tf.data.TextLineDataset(str(tmp_path / "a.txt"))
    pairs = lines.map(lambda line: tf.io.decode_csv(line, [0, 0.0])[1])
    assert [float(value) for value in pairs] == [2.0, 4.0]
    writer = tf.summary.create_file_writer(str(tmp_path / "logs"))
    with writer.as_default():
        tf.summary.scalar("loss", tf.constant(0.5), step=3)
        with pytest.raises(ValueError, match="needs step="):
            tf.summary.scalar("loss", 0.5)
    assert list((tmp_path / "logs").iterdir())


def test_mb_24_pixels_need_pillow_and_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="pip install pillow"):
        tf.io.decode_png(b"\x89PNG")


def test_mb_24_a_checkpoint_by_its_prefix_and_a_manager_of_some(tmp_path):
    v = tf.Variable(1.0)
    saved = tf.train.Checkpoint(v=v)
    path = saved.save(str(tmp_path / "ckpt"))
    v.assign(2.0)
    saved.restore(tf.train.latest_checkpoint(str(tmp_path))).assert_consumed()
    assert (float(v), path) == (1.0, tf.train.latest_checkpoint(str(tmp_path)))
    manager = tf.train.CheckpointManager(saved, tmp_path, max_to_keep=2)
    for value in (3.0, 4.0, 5.0):
        v.assign(value)
        manager.save()
    v.assign(0.0)
    assert manager.restore_or_initialize() == manager.checkpoints[-1]
    assert (float(v), len(manager.checkpoints), saved.save_counter) == (5.0, 2, 4)
    assert saved.restore(None).expect_partial()


def test_mb_24_arrays_are_an_input_fn():
    x, y = clusters(10)
    made = tf.estimator.inputs.numpy_input_fn(x, y, batch_size=4, num_epochs=2, shuffle=False)
    assert [len(labels) for _, labels in made()] == [4, 4, 4, 4, 4]
    assert np.concatenate([labels for _, labels in made()]).tolist() == [*y, *y]


def test_mb_24_updates_of_normalization_are_a_collection_that_is_empty():
    with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
        assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []
    with pytest.raises(ValueError, match=r"no collection 'losses'.*model\.losses"):
        tf.compat.v1.get_collection("losses")


OPTIMIZERS = [
    (lambda: tf1.train.GradientDescentOptimizer(0.1), [0.512, -1.458]),
    (lambda: tf1.train.MomentumOptimizer(0.1, 0.9), [0.062, -0.972]),
    (lambda: tf1.train.AdagradOptimizer(0.1), [0.7823, -1.7777]),
    (lambda: tf1.train.AdagradOptimizer(0.1, 1e-12), [0.78046, -1.77582]),
    (lambda: tf1.train.RMSPropOptimizer(0.1), [0.57452, -1.54464]),
    (lambda: tf1.train.RMSPropOptimizer(0.1, momentum=0.5, centered=True), [0.36832, -1.31987]),
]
"""Each with what three steps of TensorFlow 1's make of [1, -2] under `w[0]² + w[1]² / 2`."""


def three_steps(optimizer, place):
    w = tf.Variable(np.float32([1.0, -2.0]), name="w")
    for _ in range(3):
        place.run(lambda: optimizer.minimize(tf.reduce_sum(w * w * [1.0, 0.5]), var_list=[w])())
    return w.numpy()


@pytest.mark.parametrize(("make", "expected"), OPTIMIZERS)
def test_optimizers_of_the_old_names_start_as_tensorflow_1_starts_them(make, expected):
    found = three_steps(make(), pl.get_strategy())
    np.testing.assert_allclose(found, expected, atol=3e-5)


@pytest.mark.parametrize(("make", "expected"), OPTIMIZERS)
def test_parameter_servers_start_them_so_too(make, expected, server_job):
    strategy = server_job(2, 1).strategy()
    with strategy.scope():
        np.testing.assert_allclose(three_steps(make(), strategy), expected, atol=3e-5)


@pytest.mark.parametrize(
    "make", [OPTIMIZERS[1][0], OPTIMIZERS[3][0], lambda: tf1.train.FtrlOptimizer(0.1)]
)
def test_rows_that_a_step_does_not_read_stay_as_they_are(make):
    table = tf.Variable(np.ones((3, 2), np.float32))
    optimizer = make()
    optimizer.apply_gradients([(tf.IndexedSlices(np.ones((1, 2), np.float32), [0], (3, 2)), table)])
    optimizer.apply_gradients([(tf.IndexedSlices(np.ones((1, 2), np.float32), [1], (3, 2)), table)])
    np.testing.assert_array_equal(table.numpy()[0], table.numpy()[1])
    np.testing.assert_array_equal(table.numpy()[2], [1.0, 1.0])


def test_an_accumulator_that_starts_at_zero_is_refused_as_tensorflow_1_does():
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive, got 0"):
        tf1.train.AdagradOptimizer(0.1, initial_accumulator_value=0.0)


COLUMNS = [tf.feature_column.numeric_column("x", shape=(4,))]
CANNED = {
    "BaselineClassifier": lambda face, **options: face.BaselineClassifier(n_classes=3, **options),
    "BaselineRegressor": lambda face, **options: face.BaselineRegressor(**options),
    "DNNClassifier": lambda face, **options: face.DNNClassifier(
        [4], COLUMNS, n_classes=3, **options
    ),
    "DNNRegressor": lambda face, **options: face.DNNRegressor([4], COLUMNS, **options),
    "DNNLinearCombinedClassifier": lambda face, **options: face.DNNLinearCombinedClassifier(
        linear_feature_columns=COLUMNS, n_classes=3, **options
    ),
    "DNNLinearCombinedRegressor": lambda face, **options: face.DNNLinearCombinedRegressor(
        linear_feature_columns=COLUMNS, **options
    ),
    "LinearClassifier": lambda face, **options: face.LinearClassifier(
        COLUMNS, n_classes=3, **options
    ),
    "LinearRegressor": lambda face, **options: face.LinearRegressor(COLUMNS, **options),
}


@pytest.mark.parametrize("name", CANNED)
@pytest.mark.parametrize(
    ("face", "options", "factor"),
    [
        (tf.estimator, {}, 1),
        (tf1.estimator, {}, 30),
        (tf1.estimator, {"loss_reduction": tf1.losses.Reduction.SUM_OVER_BATCH_SIZE}, 1),
        (tf.estimator, {"loss_reduction": tf.losses.Reduction.SUM}, 30),
    ],
)
def test_canned_estimators_of_tensorflow_1_sum_the_loss(name, face, options, factor, tmp_path):
    estimator = CANNED[name](face, model_dir=str(tmp_path), **options)
    assert isinstance(estimator, getattr(pl.estimator, name))

    def whole():
        return tf.data.Dataset.from_tensor_slices(clusters(30)).batch(30)

    estimator.train(whole, steps=1)
    found = estimator.evaluate(whole)
    assert found["loss"] == pytest.approx(factor * found["average_loss"], rel=1e-5)


@pytest.mark.parametrize("reduction", ["MEAN", "SUM_BY_NONZERO_WEIGHTS"])
def test_reductions_that_heads_do_not_have_are_refused(reduction):
    with pytest.raises(ValueError, match="reduction must be"):
        tf1.estimator.LinearRegressor(
            COLUMNS, loss_reduction=getattr(tf1.losses.Reduction, reduction)
        )


@pytest.mark.parametrize("face", [tf.losses, tf1.losses])
@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("NONE", [2.0, 0.0, 9.0]), ("SUM", 11.0), ("SUM_OVER_BATCH_SIZE", 11 / 3), ("MEAN", 11 / 3)],
)
def test_losses_take_the_reductions_of_either_version(face, reduction, expected):
    how = getattr(face.Reduction, reduction)
    labels, predictions, weights = [0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [2.0, 0.0, 1.0]
    found = tf1.losses.mean_squared_error(labels, predictions, weights, reduction=how)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_reductions_have_the_values_of_their_version():
    assert tf.losses.Reduction.SUM == tf.keras.losses.Reduction.SUM == "sum"
    assert tf1.losses.Reduction.SUM == "weighted_sum"
    with pytest.raises(ValueError, match="reduction must be one of 'none', 'weighted_sum'"):
        tf1.losses.absolute_difference([1.0], [2.0], reduction="mean")


@pytest.mark.parametrize("shuffle", [{}, {"shuffle": None}])
def test_arrays_are_an_input_fn_only_with_a_word_about_shuffling(shuffle):
    with pytest.raises(ValueError, match="shuffle must be True"):
        tf1.estimator.inputs.numpy_input_fn({"x": np.ones(3)}, **shuffle)


def untrained():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(2, input_shape=(3,)), tf.keras.layers.Dense(2)]
    )
    return model, tf.keras.optimizers.Adam(0.1)


def step(model, optimizer):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(np.ones((4, 3), np.float32)) ** 2)
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_checkpoint_is_restored_into_objects_made_anew_in_the_process(steps_before, tmp_path):
    tf.random.set_seed(1)
    model, optimizer = untrained()
    step(model, optimizer)
    path = tf.train.Checkpoint(optimizer=optimizer, model=model).save(tmp_path / "ckpt")
    step(model, optimizer)

    new_model, new_optimizer = untrained()
    for _ in range(steps_before):
        step(new_model, new_optimizer)
    restored = tf.train.Checkpoint(optimizer=new_optimizer, model=new_model).restore(path)
    if not steps_before:
        with pytest.raises(AssertionError, match="variables that do not exist yet: optimizer/"):
            restored.assert_consumed()
    step(new_model, new_optimizer)
    restored.assert_consumed()
    for found, expected in zip(new_model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_checkpoint_of_objects_that_do_not_exist_yet_says_what_begins_anew(tmp_path, caplog):
    def made():
        return tf.keras.Sequential([tf.keras.layers.Dense(2)])

    tf.random.set_seed(1)
    model = made()
    model(np.ones((1, 3), np.float32))
    path = tf.train.Checkpoint(model=model).save(tmp_path / "ckpt")
    new = made()
    tf.train.Checkpoint(model=new).restore(path)
    new(np.ones((1, 3), np.float32))
    assert "Variable 'dense_1/kernel' begins anew" in caplog.text


def test_a_variable_is_restored_by_the_name_of_its_part(tmp_path):
    path = tf.train.Checkpoint(v=tf.Variable(3.0)).save(tmp_path / "ckpt")
    other = tf.Variable(0.0, name="other")
    tf.train.Checkpoint(v=other).restore(path).assert_consumed()
    assert float(other) == 3.0


@pytest.fixture
def model():
    """The store of a model, as a `model_fn` has one."""
    return pl.strategies.VariableStore(seed=1)


def test_scopes_tell_variables_and_layers_of_one_name_apart(model):
    def call():
        for name in ("a", "b"):
            with (
                tf1.variable_scope(name),
                tf1.variable_scope("inner", reuse=tf1.AUTO_REUSE) as scope,
            ):
                tf1.get_variable("w", [2], initializer="zeros")
                tf1.layers.dense(np.ones((1, 3), np.float32), 2, name="fc")
            with tf1.variable_scope(scope):
                assert tf1.get_variable("w", [2]).name == f"{name}/inner/w"

    for _ in range(2):  # the second call finds what the first has made
        with model.building():
            call()
    assert set(model.variables) == {
        f"{name}/inner/{variable}"
        for name in ("a", "b")
        for variable in ("w", "fc/kernel", "fc/bias")
    }


def test_a_scope_without_a_name_has_one_that_is_free(model):
    with model.building():
        for expected in ("block", "block_1"):
            with tf1.variable_scope(None, "block") as scope:
                assert scope.name == expected


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: tf1.variable_scope("a", initializer=abs), "initializer must be None"),
        (lambda: tf1.variable_scope("a", dtype=tf.float16), "dtype must be None"),
        (lambda: tf1.variable_scope(), "name_or_scope or default_name must be given"),
    ],
)
def test_a_scope_that_would_change_variables_is_refused(call, error):
    with pytest.raises(ValueError, match=error), call():
        pass


def test_a_layer_that_is_to_be_found_again_needs_a_name():
    with tf1.variable_scope("a", reuse=True), pytest.raises(ValueError, match="pass name="):
        tf1.layers.dense(np.ones((1, 3), np.float32), 2)


def test_a_vector_of_conditions_chooses_rows():
    x, y = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    assert tf1.where([True, False], x, y).numpy().tolist() == [[1, 1], [0, 0]]
    assert tf.where([True, False], x, y).numpy().tolist() == [[1, 0], [1, 0]]


def test_areas_are_summed_as_tensorflow_1_sums_them():
    labels, predictions = np.array([0, 0, 1, 1]), np.float32([0.1, 0.4, 0.35, 0.8])
    value, update = tf1.metrics.auc(labels, predictions)
    update()
    assert float(value.result()) == pytest.approx(0.75, abs=1e-3)
    with pytest.raises(ValueError, match="pass summation_method='careful_interpolation'"):
        tf1.metrics.auc(labels, predictions, curve="PR")


def test_images_of_a_batch_are_mirrored_one_by_one():
    images = np.tile(np.arange(2, dtype=np.float32).reshape(1, 1, 2, 1), (64, 1, 1, 1))
    firsts = tf.image.random_flip_left_right(images, seed=1).numpy()[:, 0, 0, 0]
    assert 10 < firsts.sum() < 54


@pytest.mark.parametrize(
    ("face", "value", "third"),
    [(tf1.summary, "tensor", "max_outputs"), (tf.summary, "data", "step")],
)
def test_summaries_take_the_names_of_their_version(face, value, third):
    assert value in inspect.signature(face.scalar).parameters
    assert list(inspect.signature(face.image).parameters)[2] == third


def test_checkpoints_of_tensorflows_are_listed_and_read_by_name():
    prefix = str(Path(__file__).parents[1] / "peers" / "tensorflow_checkpoints" / "keras")
    assert ("hidden/bias", [4]) in tf.train.list_variables(prefix)
    bias = tf.train.load_variable(prefix, "hidden/bias")
    np.testing.assert_array_equal(bias, tf.train.load_checkpoint(prefix).read("hidden/bias"))
