"""Expressions in TensorFlow's names, to be evaluated there and here: see `make_tensorflow.py`."""

X = "tf.constant([[1.0, -2.0, 3.0], [0.5, 4.0, -1.5]])"
Y = "tf.constant([[2.0, 2.0, -1.0], [1.5, -0.5, 3.0]])"
IMAGES = "tf.reshape(tf.range(32.0), [1, 4, 4, 2])"
KERNEL = "tf.reshape(tf.range(24.0), [2, 2, 2, 3])"
LOSSES = "tf.compat.v1.losses"
N = "tf.constant([[3, 1, 2], [0, 5, 4]])"
ELEMENTWISE = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor is_finite is_inf "
    "is_nan log log1p log_sigmoid negative reciprocal round rsqrt sigmoid sign sin sinh softplus "
    "sqrt square tan tanh"
)
OF_TWO = (
    "add atan2 divide divide_no_nan equal floordiv floormod greater greater_equal less less_equal "
    "maximum minimum multiply multiply_no_nan not_equal pow squared_difference subtract truediv"
)
REDUCTIONS = (
    "reduce_euclidean_norm reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod "
    "reduce_std reduce_sum reduce_variance"
)
POSITIVE = {"acosh": " + 5", "log": " + 5", "log1p": " + 5", "rsqrt": " + 5", "sqrt": " + 5"}
SMALL = {"acos", "asin", "atanh"}


def of_one(name):
    x = f"{X}{POSITIVE.get(name, '')}" if name not in SMALL else f"{X} / 5"
    return f"tf.math.{name}({x})"


CASES = [
    *[of_one(name) for name in ELEMENTWISE.split()],
    *[
        f"tf.math.{name}(tf.abs({X}), {Y})" if name == "pow" else f"tf.math.{name}({X}, {Y})"
        for name in OF_TWO.split()
    ],
    *[f"tf.math.{name}({X}{at})" for name in REDUCTIONS.split() for at in ("", ", axis=1")],
    *[f"tf.math.{name}({X}, axis=[0, 1], keepdims=True)" for name in REDUCTIONS.split()],
    *[f"tf.{name}({N}, axis=0)" for name in ("reduce_sum", "reduce_mean", "reduce_max")],
    f"tf.reduce_any({X} > 3)",
    f"tf.reduce_all({X} > -3, axis=0)",
    f"tf.argmax({X})",
    f"tf.argmax({X}, axis=1, output_type=tf.int32)",
    f"tf.argmin({X}, axis=1)",
    f"tf.cumsum({X}, axis=1)",
    f"tf.cumsum({X}, axis=1, exclusive=True, reverse=True)",
    f"tf.add_n([{X}, {Y}, {X}])",
    f"tf.math.count_nonzero({X} > 0, axis=1)",
    "tf.math.confusion_matrix([0, 1, 2, 2], [0, 2, 2, 1])",
    "tf.math.in_top_k([0, 1], [[0.3, 0.5, 0.2], [0.1, 0.6, 0.3]], k=1)",
    f"tf.math.top_k({X}, k=2)",
    f"tf.math.l2_normalize({X}, axis=1)",
    f"tf.math.unsorted_segment_sum({X}, [1, 1], 3)",
    f"tf.math.segment_sum({X}, [0, 1])",
    f"tf.math.segment_mean({X}, [1, 1])",
    f"tf.math.unsorted_segment_max({X}, [1, 1], 2)[1]",
    f"tf.gather({X}, [[1, 1], [2, 0]], batch_dims=1, axis=1)",
    f"tf.math.zero_fraction({X} * 0)",
    "tf.constant(1)",
    "tf.constant([1.5, 2])",
    "tf.constant(3, shape=[2, 2])",
    "tf.constant([1, 2, 3, 4], shape=[2, 2], dtype=tf.float32)",
    "tf.zeros([2, 3])",
    "tf.ones((2,), dtype=tf.int32)",
    f"tf.zeros_like({N})",
    f"tf.ones_like({X}, dtype=tf.int64)",
    "tf.fill([2, 2], 7.0)",
    "tf.eye(2, 3)",
    "tf.range(5)",
    "tf.range(3, 18, 5)",
    "tf.range(0.0, 1.0, 0.25)",
    "tf.linspace(0.0, 1.0, 5)",
    "tf.one_hot([0, 2, -1], 3)",
    "tf.one_hot([[0], [1]], depth=2, on_value=5.0, off_value=-1.0, axis=0)",
    f"tf.shape({X})",
    f"tf.size({X})",
    f"tf.rank({X})",
    f"tf.reshape({X}, [3, -1])",
    f"tf.reshape({X}, (tf.shape({X})[1], -1))",
    f"tf.expand_dims({X}, -1)",
    f"tf.squeeze(tf.expand_dims({X}, 0))",
    f"tf.squeeze(tf.reshape({X}, [1, 6, 1]), axis=[0])",
    f"tf.transpose({X})",
    f"tf.transpose(tf.reshape({X}, [1, 2, 3]), perm=[2, 0, 1])",
    f"tf.concat([{X}, {Y}], axis=1)",
    f"tf.stack([{X}, {Y}], axis=-1)",
    f"tf.unstack({X}, axis=1)",
    f"tf.split({X}, 3, axis=1)",
    f"tf.split({X}, [1, 2], axis=1)",
    f"tf.slice({X}, [0, 1], [-1, 2])",
    f"tf.tile({X}, [2, 1])",
    f"tf.repeat({X}, 2, axis=0)",
    "tf.repeat([1, 2], [2, 1])",
    f"tf.reverse({X}, axis=[1])",
    f"tf.roll({X}, shift=1, axis=1)",
    f"tf.pad({X}, [[1, 0], [0, 2]])",
    f"tf.pad({X}, [[0, 0], [1, 1]], mode='REFLECT')",
    f"tf.broadcast_to({X}, [2, 2, 3])",
    f"tf.where({X} > 0, {X}, 0.0)",
    f"tf.where({X} > 0)",
    f"tf.boolean_mask({X}, [True, False])",
    f"tf.gather({X}, [2, 0], axis=1)",
    f"tf.gather({X}, [[1], [2]], batch_dims=1)",
    f"tf.gather_nd({X}, [[0, 1], [1, 2]])",
    "tf.scatter_nd([[1], [3], [1]], [9.0, 10.0, 11.0], [5])",
    f"tf.cast({X}, tf.int32)",
    f"tf.cast({N}, tf.float64)",
    f"tf.matmul({X}, {Y}, transpose_b=True)",
    f"tf.matmul({X}, {Y}, transpose_a=True)",
    f"tf.tensordot({X}, {Y}, axes=[[1], [1]])",
    f"tf.einsum('ij,kj->ik', {X}, {Y})",
    f"tf.norm({X})",
    f"tf.norm({X}, ord=1, axis=1)",
    f"tf.clip_by_value({X}, -1.0, 1.0)",
    f"tf.clip_by_norm({X}, 2.0)",
    f"tf.clip_by_global_norm([{X}, {Y}], 3.0)",
    f"tf.linalg.global_norm([{X}, {Y}])",
    f"tf.sort({X}, direction='DESCENDING')",
    "tf.searchsorted([1.0, 3.0, 5.0], [2.0, 3.0, 6.0])",
    "tf.unique([3, 1, 3, 2, 1])",
    "tf.meshgrid([1, 2], [3, 4, 5])",
    "tf.sequence_mask([1, 3], 4)",
    f"tf.linalg.matvec({X}, [1.0, 2.0, 3.0])",
    f"tf.linalg.diag({X})",
    f"tf.linalg.diag_part(tf.matmul({X}, {Y}, transpose_b=True))",
    f"tf.linalg.trace(tf.matmul({X}, {Y}, transpose_b=True))",
    f"tf.linalg.band_part(tf.matmul({X}, {Y}, transpose_a=True), 0, 1)",
    f"tf.nn.relu({X})",
    f"tf.nn.relu6({X} * 3)",
    f"tf.nn.leaky_relu({X})",
    f"tf.nn.leaky_relu({X}, alpha=0.1)",
    f"tf.nn.elu({X})",
    f"tf.nn.gelu({X})",
    f"tf.nn.silu({X})",
    f"tf.nn.softmax({X})",
    f"tf.nn.softmax({X}, axis=0)",
    f"tf.nn.log_softmax({X})",
    f"tf.nn.softplus({X})",
    f"tf.nn.relu(features={X}, name='named')",
    f"tf.nn.softmax(logits={X}, axis=0, name='named')",
    "tf.nn.tanh([0.5, 1.0])",
    f"tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 2], logits={X})",
    f"tf.nn.softmax_cross_entropy_with_logits(labels=[[1.0, 0, 0], [0.2, 0.3, 0.5]], logits={X})",
    f"tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.sigmoid({Y}), logits={X})",
    f"tf.nn.weighted_cross_entropy_with_logits(tf.sigmoid({Y}), {X}, 2.0)",
    f"tf.nn.bias_add({X}, [1.0, 2.0, 3.0])",
    f"tf.nn.l2_loss({X})",
    f"tf.nn.l2_normalize({X}, axis=1)",
    f"tf.nn.moments({X}, axes=[0])",
    f"tf.nn.batch_normalization({X}, {X}[0], tf.abs({Y}[0]), {Y}[1], None, 1e-3)",
    f"tf.nn.embedding_lookup({X}, [1, 0, 1])",
    f"tf.nn.conv2d({IMAGES}, {KERNEL}, strides=[1, 2, 2, 1], padding='SAME')",
    f"tf.nn.conv2d({IMAGES}, {KERNEL}, strides=1, padding='VALID')",
    f"tf.nn.max_pool2d({IMAGES}, 2, 2, 'VALID')",
    f"tf.nn.avg_pool2d({IMAGES}, [1, 2, 2, 1], [1, 2, 2, 1], 'SAME')",
    "tf.io.decode_raw(tf.constant(b'\\x01\\x00\\x02\\x00'), tf.int16)",
    "tf.io.decode_csv('1,2.5,,4', [0, 0.0, 7.0, [0]])",
    "tf.strings.to_number('2.5')",
    "tf.strings.length(['ab', 'abc'])",
    f"tf.image.flip_left_right(tf.reshape({X}, [1, 2, 3, 1]))",
    "tf.image.per_image_standardization(tf.reshape(tf.range(12.0), [2, 2, 3]))",
    "tf.image.convert_image_dtype(tf.constant([[0, 128, 255]], tf.uint8), tf.float32)",
    "tf.image.resize_with_crop_or_pad(tf.reshape(tf.range(12.0), [3, 4, 1]), 5, 2)",
    "tf.nest.flatten({'b': [1, 2], 'a': (3,)})",
    "tf.nest.map_structure(lambda x: x + 1, {'b': [1, 2], 'a': (3,)})['b']",
    "tf.cond(tf.constant(2) > 1, lambda: tf.constant(1.0), lambda: tf.constant(0.0))",
    "tf.while_loop(lambda i: i < 10, lambda i: (i + 3,), [tf.constant(0)])",
    f"tf.map_fn(lambda row: row * 2, {X})",
    "tf.cast(tf.keras.utils.to_categorical([0, 2, 1]), tf.float32)",
    f"{LOSSES}.mean_squared_error([[1.0], [2.0]], [[0.5], [4.0]])",
    f"{LOSSES}.mean_squared_error([[1.0], [2.0]], [[0.5], [4.0]], weights=[[2.0], [0.0]])",
    f"{LOSSES}.absolute_difference([1.0, 2.0], [0.5, 4.0])",
    f"{LOSSES}.huber_loss([1.0, 2.0], [0.5, 4.0])",
    f"{LOSSES}.log_loss([1.0, 0.0], [0.7, 0.4])",
    f"{LOSSES}.hinge_loss([[1.0, 0, 1], [0, 0, 1]], {X})",
    f"{LOSSES}.sparse_softmax_cross_entropy([0, 2], {X})",
    f"{LOSSES}.softmax_cross_entropy([[1, 0, 0], [0, 1, 0]], {X}, label_smoothing=0.1)",
    f"{LOSSES}.sigmoid_cross_entropy([[1, 0, 0], [0, 1, 0]], {X}, label_smoothing=0.1)",
]
