"""Arguments of TensorFlow 2.15 are taken, or refused with a reason.

`tensorflow_arguments.json` has, by the function, arguments by whose names its signature there could
once not be called here; compared by `inspect.signature` in both.
"""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import paceline.compat.tf as tf
import paceline.compat.tf.compat.v1 as tf1
from paceline.compat.tf.arguments import NO_EFFECT, NOT_TAKEN, RENAMED

STORED = json.loads((Path(__file__).parent / "tensorflow_arguments.json").read_text())


def meaning(name):
    value = tf
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def taken(name):
    """The names of arguments that a call may have."""
    function = meaning(name)
    own = function.__init__ if inspect.isclass(function) else function
    return {*inspect.signature(own).parameters}


@pytest.mark.parametrize("name", STORED)
def test_an_argument_is_taken_or_refused_with_a_reason(name):
    missing = [
        argument
        for argument in STORED[name]
        if argument not in taken(name)
        and f"{name}.{argument}".replace("tf.compat.v1.", "tf.") not in NOT_TAKEN
    ]
    assert not missing


@pytest.mark.parametrize("name", [*RENAMED, *NO_EFFECT])
def test_a_table_names_functions_that_there_are(name):
    assert {*RENAMED.get(name, {}), *NO_EFFECT.get(name, ())} <= taken(name)


def test_a_name_that_is_looked_up_twice_is_one_function():
    assert tf.keras.losses.get is tf.keras.losses.get
    assert tf.custom_gradient is tf1.custom_gradient


X = np.float32([[1.0, -2.0], [3.0, 0.5]])
MATRIX = np.float32([[2.0, 1.0], [0.0, 4.0]])
IMAGES = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: tf.subtract(y=1.0, x=3.0), 2.0),
        (lambda: tf.math.atan2(x=1.0, y=0.0), 0.0),
        (lambda: tf.math.pow(2.0, y=3.0, name="named"), 8.0),
        (lambda: tf.math.xdivy([0.0, 1.0, 4.0], [0.0, 2.0, 2.0]), [0.0, 0.5, 2.0]),
        (lambda: tf.argmin(np.uint8([1, 0, 2])), 1),
        (lambda: tf1.argmax(X, dimension=1), [0, 0]),
        (lambda: tf1.reduce_sum(X, reduction_indices=[1], keep_dims=True), [[-1.0], [3.5]]),
        (lambda: tf1.count_nonzero(X, reduction_indices=0), [2, 2]),
        (lambda: tf1.expand_dims([1.0], dim=0), [[1.0]]),
        (lambda: tf1.squeeze([[1.0]], squeeze_dims=[0]), [1.0]),
        (lambda: tf1.norm(X, axis=1, keep_dims=True), np.linalg.norm(X, axis=1, keepdims=True)),
        (lambda: tf1.cond(True, fn1=lambda: 1.0, fn2=lambda: 2.0, strict=True), 1.0),
        (lambda: tf1.ones_like(tensor=X, optimize=False), np.ones((2, 2))),
        (lambda: tf.eye(2, batch_shape=[3]), np.broadcast_to(np.eye(2), (3, 2, 2))),
        (lambda: tf.eye(1, 2, None, tf.int32), [[1, 0]]),
        (lambda: tf.searchsorted([1, 3], [2], out_type=tf.int64), [1]),
        (lambda: tf.convert_to_tensor([1], dtype_hint=tf.float32) / 2, [0.5]),
        (lambda: tf.convert_to_tensor([1.5], dtype_hint=tf.int32), [1.5]),
        (lambda: tf.math.top_k([1.0, 2.0], index_type=tf.int64)[1], [1]),
        (lambda: tf.linalg.diag([1, 2], k=1), np.diag([1, 2], 1)),
        (lambda: tf.linalg.diag([1, 2], k=-2), np.diag([1, 2], -2)),
        (lambda: tf.linalg.diag_part(np.arange(6).reshape(2, 3), k=1), [1, 5]),
        (lambda: tf.linalg.diag_part(np.arange(6).reshape(2, 3), k=-1), [3]),
        (lambda: tf.linalg.inv(MATRIX, adjoint=True), np.linalg.inv(MATRIX.T)),
        (
            lambda: tf.linalg.solve(MATRIX, [[1.0], [2.0]], adjoint=True),
            np.linalg.solve(MATRIX.T, [[1.0], [2.0]]),
        ),
        (lambda: tf.linalg.matvec(MATRIX, [1.0, 1.0], adjoint_a=True), [2.0, 5.0]),
        (lambda: tf.matmul(X, X, adjoint_b=True, output_type=tf.float64), X @ X.T),
        (lambda: tf.linalg.matrix_transpose(np.array([[1j, 2]]), conjugate=True), [[-1j], [2]]),
        (lambda: tf.transpose(np.array([[1j, 2]]), conjugate=True), [[-1j], [2]]),
        (lambda: tf.nn.silu(2.0, beta=0.0), 1.0),
        (lambda: tf1.nn.softmax([0.0, 0.0], dim=-1), [0.5, 0.5]),
        (lambda: tf.nn.embedding_lookup([X], [0], max_norm=1.0), X[:1] / np.sqrt(5)),
        (lambda: tf1.nn.embedding_lookup(X, [1], "div", "named"), X[1:]),
        (lambda: tf1.nn.in_top_k([[0.1, 0.9]], [1], 1), [True]),
        (lambda: tf1.nn.moments(X, [0], None, "named", keep_dims=True)[0], [[2.0, -0.75]]),
        (
            lambda: tf1.nn.softmax_cross_entropy_with_logits(
                labels=[1.0, 0], logits=[0.0, 0], dim=0
            ),
            np.log(2),
        ),
        (
            lambda: tf1.nn.max_pool(value=IMAGES, ksize=2, strides=2, padding="VALID").numpy()[
                0, 0, 0
            ],
            5,
        ),
        (
            lambda: tf.nn.conv_transpose(IMAGES, np.ones((2, 2, 1, 1)), [1, 7, 7, 1], 2, "SAME"),
            np.repeat(np.repeat(IMAGES, 2, 1), 2, 2)[:, :7, :7],
        ),
        (
            lambda: tf.while_loop(lambda i: True, lambda i: (i + 1,), [0], maximum_iterations=3)[0],
            3,
        ),
        (lambda: tf.switch_case(7, [lambda: 1.0, lambda: 2.0]), 2.0),
        (lambda: tf.image.convert_image_dtype(np.float32([0.5]), tf.uint8), [127]),
        (lambda: tf.image.convert_image_dtype(np.uint8([1, 255]), tf.uint16), [256, 65280]),
    ],
)
def test_arguments_have_the_meaning_that_they_have_in_tensorflow(found, expected):
    np.testing.assert_allclose(found(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: tf.abs(1.0, foo=2), "unexpected keyword argument 'foo'"),
        (lambda: tf.add(1.0), "missing a required argument: 'y'"),
        (lambda: tf1.argmax(X, axis=0, dimension=1), "dimension and axis mean the same"),
        (lambda: tf.nn.relu(X, nmae="x"), "unexpected keyword"),
        (lambda: tf.map_fn(abs, X, wrong=1), "unexpected keyword"),
    ],
)
def test_an_argument_that_nobody_knows_is_a_type_error(call, error):
    with pytest.raises(TypeError, match=error):
        call()


MANAGER = lambda **options: tf.train.CheckpointManager(tf.train.Checkpoint(), "runs", **options)  # noqa: E731


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: tf.constant([1, 2], shape=[2, 1], verify_shape=True), "value must have shape"),
        (lambda: tf.unstack(X, num=3), "num must be the length of axis 0, 2, got 3"),
        (lambda: tf.math.accumulate_n([X], shape=[1]), "shape must be that of the tensors"),
        (lambda: tf.linalg.diag([1], k=(0, 1)), "k must be one whole number"),
        (lambda: tf.linalg.diag([1], num_rows=3), "num_rows must be -1, got 3; pad the matrices"),
        (lambda: tf.linalg.diag([1], padding_value=3), "padding_value must be 0, got 3"),
        (lambda: tf.matmul(X, X, transpose_a=True, adjoint_a=True), "only one of transpose and"),
        (lambda: tf.nn.embedding_lookup([X, X], [0]), "params must be one table, got 2 parts"),
        (lambda: tf.nn.bias_add(IMAGES, [1.0], "NCHW"), "data_format must be None"),
        (lambda: tf.nn.conv_transpose(IMAGES, np.ones((2, 2, 1, 1)), [1, 9, 9, 1], 2), "strides"),
        (lambda: tf1.nn.dropout(X), "one of keep_prob and rate must be given"),
        (lambda: tf1.get_variable("v", [2], regularizer=abs), "add regularizer.variable. to the"),
        (lambda: tf1.get_variable("v", [2], custom_getter=abs), "use tf.variable_creator_scope"),
        (lambda: tf1.layers.batch_normalization(X, renorm=True), "renorm must be False"),
        (lambda: tf.io.TFRecordWriter("x", options="ZLIB"), 'compression_type must be "GZIP"'),
        (lambda: tf1.summary.FileWriter("x", filename_suffix="y"), "filename_suffix must be None"),
        (
            lambda: tf.summary.create_file_writer("x", filename_suffix="y"),
            "filename_suffix must be",
        ),
        (lambda: tf.summary.histogram("x", [1.0], buckets=3), "buckets must be None"),
        (lambda: tf.train.latest_checkpoint("x", "mine"), "latest_filename must be None"),
        (lambda: MANAGER(checkpoint_interval=5), "checkpoint_interval must be None"),
        (lambda: MANAGER(keep_checkpoint_every_n_hours=5), "every_n_hours must be None"),
        (
            lambda: tf.case([(True, int), (True, int)], exclusive=True),
            "only one condition may hold",
        ),
        (lambda: tf.case([(False, int)]), "no condition holds; pass default"),
        (lambda: tf1.Print(X, [X], first_n=3), "first_n must be None"),
        (lambda: tf.nest.map_structure(max, [1, 2], [3]), "the structures differ"),
        (lambda: tf.nest.assert_same_structure({"a": 1}, {"b": 1}), "the structures differ"),
        (lambda: tf.nest.assert_same_structure([1], (1,)), "the structures differ"),
    ],
)
def test_what_would_change_a_result_is_refused_by_its_name(call, error):
    with pytest.raises(ValueError, match=error):
        call()


def test_the_second_argument_of_dropout_is_that_of_its_version():
    zeros = {
        face: int(np.sum(face.nn.dropout(np.ones(2000, np.float32), 0.9, seed=1) == 0))
        for face in (tf, tf1)
    }
    assert zeros[tf] > 1700 > 300 > zeros[tf1]


@pytest.mark.parametrize(
    ("make", "deviation"),
    [
        (lambda: tf.random_normal_initializer(), 0.05),
        (lambda: tf1.random_normal_initializer(), 1.0),
        (lambda: tf1.truncated_normal_initializer(), 0.88),
        (lambda: tf1.random_uniform_initializer(), 12**-0.5),
        (lambda: tf.keras.initializers.RandomNormal(), 0.05),
    ],
)
def test_initializers_have_the_defaults_of_their_version(make, deviation):
    drawn = make()((10_000,), np.float32, np.random.default_rng(0))
    assert np.std(drawn) == pytest.approx(deviation, rel=0.05)


def test_an_initializer_may_be_named_where_a_variable_is_asked_for():
    assert tf1.get_variable("named", [2], initializer="ones").numpy().tolist() == [1.0, 1.0]


def test_print_of_tensorflow_1_gives_its_first_argument(capsys):
    assert tf1.Print(X, [tf.constant(2.0)], "found") is X
    assert capsys.readouterr().out == "found 2.0\n"


def test_session_settings_are_filled_attribute_by_attribute(caplog):
    config = tf.ConfigProto(log_device_placement=True, gpu_options=tf.GPUOptions(allow_growth=True))
    config.gpu_options.per_process_gpu_memory_fraction = 0.5
    config.intra_op_parallelism_threads += 1
    config.graph_options.optimizer_options.global_jit_level = 1
    with pytest.raises(AttributeError):
        config.no_such_setting = 1
    assert tf1.ConfigProto is type(config)
    run_config = tf.estimator.RunConfig("runs", session_config=config)
    tf.estimator.Estimator(lambda features, labels, mode: None, config=run_config)
    assert len([r for r in caplog.records if "session_config" in r.getMessage()]) == 1


def test_the_version_is_that_of_the_names():
    assert tf1.__version__ == tf.__version__ == tf1.VERSION == tf.VERSION
