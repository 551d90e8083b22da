"""Every differentiable function with inputs to try it on."""

from __future__ import annotations

import numpy as np

import paceline.autodiff as ad
from paceline.autodiff import lift

from . import matrix_cases  # noqa: F401 (which fills the table, too)
from .case_table import case, constant, ints, spaced

WINDOWS = np.lib.stride_tricks.sliding_window_view


for symbol, operator in {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "logaddexp": np.logaddexp,
    "maximum": np.maximum,
    "minimum": np.minimum,
}.items():
    for first, second in [  # all shapes are tried in test_broadcasting
        ((2, 3), (2, 3)),
        ((2, 1), (1, 3)),
        ((), (2, 3)),
        ((2, 3), (3,)),
    ]:
        case(f"x {symbol} y {first} {second}", operator, first, second, low=0.5)

case("x + 2", lambda x: x + 2, (3,))
case("2 - x", lambda x: 2 - x, (3,))
case("x - 2.5", lambda x: x - 2.5, (3,))
case("2.5 * x", lambda x: 2.5 * x, (3,))
case("3 / x", lambda x: 3 / x, (3,), low=0.5)
case("x / 3", lambda x: x / 3, (3,))
case("x % y", lambda x, y: x % y, np.array([5.3, -2.2, 0.4]), np.array([2.0, 1.5, -3.0]))
case("x ** 0", lambda x: x**0, (3,))
case("x ** 1", lambda x: x**1, (3,))
case("x ** 2", lambda x: x**2, (3,))
case("x ** 3", lambda x: x**3, ())
case("x ** -1", lambda x: x**-1, (3,), low=0.5)
case("x ** 0.5", lambda x: x**0.5, (3,), low=0.5)
case("x ** 2.5", lambda x: np.power(x, 2.5), (3,), low=0.5)
case("x ** array", lambda x: x ** constant([0, 1, 2.5], x), (2, 3), low=0.5)
case("x ** y", lambda x, y: x**y, (2, 3), (3,), low=0.5)
case("2 ** x", lambda x: 2**x, (3,))
case("+x", lambda x: +x, (3,))
case("-x", lambda x: -x, (3,))
case("abs(x)", abs, np.array([-1.0, 2.0, -0.5]))
case("clip", lambda x: np.clip(x, -1, 0.5), spaced(7))
case("clip from below", lambda x: np.clip(x, 0.5, None), spaced(7))
case("clip by keyword", lambda x: np.clip(x, max=0.5), spaced(7))
case(
    "clip by arrays",
    lambda x: np.clip(x, constant([-1, 0], x), constant([0, 1.5], x)),
    spaced(4, 2),
)
case(
    "clip by more arrays",
    lambda x: np.clip(x, constant([[-1], [-0.5], [0.3]], x), constant([[1], [2], [0.6]], x)),
    np.array([0.05, 0.45]),
)
case("where", lambda x, y: np.where(lift(x).data > 0, x, y), spaced(2, 3), (3,))
case("where with a number", lambda x: np.where(lift(x).data > 0, 1.0, x), spaced(5))

for ufunc in (
    *(np.negative, np.positive, np.square, np.exp, np.exp2, np.expm1, np.sin, np.cos, np.tan),
    *(np.arctan, np.sinh, np.cosh, np.tanh),
):
    case(ufunc.__name__, ufunc, (2, 3), low=-1.2, high=1.2)
for ufunc in (np.arcsin, np.arccos, np.arcsinh, np.arctanh, np.cbrt):
    case(ufunc.__name__, ufunc, (2, 3), low=0.1, high=0.8)
case("arccosh", np.arccosh, (2, 3), low=1.1)
for ufunc in (np.sqrt, np.log, np.log2, np.log10, np.log1p, np.reciprocal, np.absolute):
    case(ufunc.__name__, ufunc, (2, 3), low=0.3)

for function in (np.sum, np.mean, np.max, np.min, np.prod, np.var, np.std, ad.logsumexp):
    for options in (
        *({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)}, {"axis": (-1, 1)}),
        {"keepdims": True},
    ):
        case(
            f"{function.__name__} {options}",
            lambda x, function=function, options=options: function(x, **options),
            spaced(2, 3, 2),
        )
case("sum of a scalar", np.sum, ())
case("max of a vector", np.max, spaced(4))
case("prod with zeros", np.prod, np.array([2.0, 0.0, 3.0]))
case("prod with zeros by row", lambda x: np.prod(x, 1), np.array([[0.0, 2.0, 0.0], [1, 0, 3]]))
case("var ddof", lambda x: np.var(x, axis=0, ddof=1), (4, 2))
case("std ddof", lambda x: np.std(x, ddof=1), (4, 2))
case("cumsum", np.cumsum, (2, 3))
case("cumsum axis", lambda x: np.cumsum(x, axis=1), (2, 3))
case("methods", lambda x: x.sum(0) + x.mean(axis=0) + x.max(0) - x.min(0), spaced(3, 2))

case("reshape", lambda x: np.reshape(x, (3, -1)), (2, 3))
case("reshape method", lambda x: x.reshape(3, 2), (2, 3))
case("ravel", np.ravel, (2, 3))
case("transpose", np.transpose, (2, 3, 4))
case("transpose axes", lambda x: np.transpose(x, (1, -1, 0)), (2, 3, 4))
case("transpose method", lambda x: x.transpose(1, 0) + x.T, (2, 2))
case("swapaxes", lambda x: np.swapaxes(x, 0, -1), (2, 3, 2))
case("moveaxis", lambda x: np.moveaxis(x, 0, -1), (2, 3, 2))
case("moveaxis of several", lambda x: np.moveaxis(x, (0, 1), (2, 0)), (2, 3, 2))
case("expand_dims", lambda x: np.expand_dims(x, (0, -1)), (2, 3))
case("squeeze", np.squeeze, (1, 3, 1))
case("squeeze axis", lambda x: np.squeeze(x, 0), (1, 3, 1))
case("flip", np.flip, (2, 3))
case("flip axis", lambda x: np.flip(x, 1), (2, 3))
case("roll", lambda x: np.roll(x, 1, axis=1), (2, 3))
case("roll several", lambda x: np.roll(x, (1, -2), axis=(0, 1)), (2, 3))
case("roll by lists", lambda x: np.roll(x, [1, -2], axis=[0, 1]), (2, 3))
case("tril", np.tril, (3, 3))
case("tril of a vector", np.tril, (3,))
case("triu", lambda x: np.triu(x, 1), (2, 3, 3))
case("broadcast_to", lambda x: np.broadcast_to(x, (4, 2, 3)), (2, 1))
case("astype", lambda x: np.astype(x, np.float64) * 2, (2, 3))
case("copy", np.copy, (2, 3))
case("concatenate", lambda x, y: np.concatenate([x, y], axis=1), (2, 3), (2, 1))
case("concatenate flat", lambda x, y: np.concatenate([x, y], axis=None), (2, 3), (2,))
case("concatenate last", lambda x, y: np.concatenate((x, y), -1), (2, 3), (2, 2))
case("stack", lambda x, y: np.stack([x, y]), (2, 3), (2, 3))
case("stack last", lambda x, y: np.stack([x, y], axis=-1), (2, 3), (2, 3))
case("stack scalars", lambda x, y: np.stack([x, y]), (), ())
case("split", lambda x: np.split(x, 2)[0] * np.split(x, 2)[1], (4, 3))
case("split at", lambda x: np.split(x, [1, 3], axis=1)[1], (2, 4))
case("array_split", lambda x: np.concatenate(np.array_split(x, 3)[::-1]), (5, 2))
case("pad", lambda x: np.pad(x, 1), (2, 3))
case("pad each", lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=3.0), (2, 3))
case("pad of a scalar", lambda x: np.pad(x, 1), ())
case("pad by axis", lambda x: np.pad(x, {-1: (1, 2)}), (2, 3))
case("tile", lambda x: np.tile(x, 2), (2, 3))
case("tile more", lambda x: np.tile(x, (2, 1, 3)), (2, 2))
case("repeat", lambda x: np.repeat(x, 2), (2, 3))
case("repeat axis", lambda x: np.repeat(x, 3, axis=1), (2, 3))
case("repeat each", lambda x: np.repeat(x, [0, 2, 1], axis=1), (2, 3))

case("x[1]", lambda x: x[1], (3, 2))
case("x[-1, 0]", lambda x: x[-1, 0], (3, 2))
case("x[1:, ::-1]", lambda x: x[1:, ::-1], (3, 4))
case("x[..., None, 0]", lambda x: x[..., None, 0], (3, 2))
case("x[list]", lambda x: x[[0, 2, 0, -1]], (3, 2))
case("x[array]", lambda x: x[ints([[0, 2], [0, -1]], x)], (3, 2))
case("x[array] 1-d", lambda x: x[ints([2, 2, 0], x)], (3,))
case("x[arrays]", lambda x: x[ints([0, 1, 0], x), ints([1, 1, 1], x)], (2, 3))
case("x[:, array]", lambda x: x[:, ints([1, 1, 0], x)], (2, 3))
case("x[mask]", lambda x: x[lift(x).data > 0], spaced(2, 3))
case("rows read twice", lambda x: x[ints([0, 1], x)] * x[ints([1, 1], x)], (3, 2))
case("rows of a result", lambda x: (x * x)[ints([2, 2, 0], x)], (3, 2))
case("row and all", lambda x: x[ints([1], x)] * np.sum(x, 0) + x[0], (3, 2))
case("iteration", lambda x: sum(row * (i + 1) for i, row in enumerate(x)), (3, 2))
case("unpacking", lambda x: (lambda a, b: a * b)(*x), (2, 3))
case("take", lambda x: np.take(x, ints([3, 0, 3], x)), (2, 3))
case("take rows", lambda x: np.take(x, ints([[1, 0], [1, -1]], x), axis=0), (3, 2))
case("take columns", lambda x: x.take(ints([1, 0, 1], x), axis=1), (3, 2))
case(
    "take_along_axis",
    lambda x: np.take_along_axis(x, ints([[1, 1], [0, 2]], x), axis=1),
    (2, 3),
)
case("take_along_axis flat", lambda x: np.take_along_axis(x, ints([1, 1], x), axis=None), (2, 3))
case("gather", lambda x: ad.gather(x, ints([[2, 0], [2, 1]], x), axis=1), (2, 3, 2))
case(
    "gather by example",
    lambda x: ad.gather(x, ints([[2, 0], [1, 1]], x), axis=-1, batch_dims=1),
    (2, 4, 3),
)
case("gather_nd", lambda x: ad.gather_nd(x, ints([[0, 1], [1, 0], [0, 1]], x)), (2, 3, 2))
case("scatter_nd", lambda x: ad.scatter_nd([[2], [0], [2]], x, (4, 2)), (3, 2))
for reduction in ("sum", "mean", "max", "min", "prod"):
    case(
        f"segment {reduction}",
        lambda x, reduction=reduction: ad.segment(x, [2, 0, 2, -1], 3, reduction)[::2],
        spaced(4, 2),
    )
case("top_k", lambda x: ad.top_k(x, 2)[0], spaced(3, 4))
case("sort", lambda x: np.sort(x, axis=0), spaced(3, 2))

case("erf", ad.erf, np.array([[-5.0, -2.0, -0.4], [0.2, 0.47, 3.0]]))
case("sigmoid", ad.sigmoid, np.array([-30.0, -2.0, 0.5, 8.0]))
case("relu", ad.relu, spaced(2, 3))
case("leaky_relu", ad.leaky_relu, spaced(2, 3))
case("elu", lambda x: ad.elu(x, alpha=0.7), spaced(2, 3))
case("softplus", ad.softplus, np.array([-30.0, -2.0, 0.5, 40.0]))
case("silu", ad.silu, (2, 3))
case("gelu", ad.gelu, (2, 3), low=-3, high=3)
case("gelu approximate", lambda x: ad.gelu(x, approximate=True), (2, 3), low=-3, high=3)
case("softmax", ad.softmax, (2, 3))
case("softmax axis", lambda x: ad.softmax(x, axis=0), (2, 3))
case("softmax of all", lambda x: ad.softmax(x, axis=(0, 1)), (2, 3))
case("log_softmax", ad.log_softmax, (2, 3))
case("log_softmax axis", lambda x: ad.log_softmax(x, axis=0), (2, 3))

for activation in (None, "relu", "tanh", "sigmoid"):
    case(
        f"dense {activation}",
        lambda x, w, b, activation=activation: ad.dense(x, w, b, activation),
        *((4, 3), (3, 2), (2,)),
    )
case("dense without bias", ad.dense, (4, 3), (3, 2))
case("dense of 3 axes", lambda x, w, b: ad.dense(x, w, b, "tanh"), (2, 2, 3), (3, 2), (2,))
case("dense of 1 axis", lambda x, w, b: ad.dense(x, w, b, "tanh"), (3,), (3, 2), (2,))


def normalized(axes, gamma=True, beta=True):
    def apply(x, *weights):
        given = iter(weights)
        own = (next(given) if gamma else None, next(given) if beta else None)
        return ad.normalize(x, axes, 1e-3, *own)[0]

    return apply


case("normalize of channels", normalized((0, 1)), (3, 2, 2), (2,), (2,))
case("normalize of examples", normalized((1,)), (3, 4), (4,), (4,))
case("normalize of groups", normalized((1, 3)), (2, 3, 2, 2), (2, 2), (2, 2))
case("normalize with gamma", normalized((0,), beta=False), (4, 2), (2,))
case("normalize with beta", normalized((0,), gamma=False), (4, 2), (2,))
case("normalize", normalized((0, 1), gamma=False, beta=False), (4, 2))

case("softmax_cross_entropy", lambda z: ad.softmax_cross_entropy(z, ints([1, 0, 2], z)), (3, 3))
case(
    "softmax_cross_entropy of 3 axes",
    lambda z: ad.softmax_cross_entropy(z, ints([[1, 0], [3, 3]], z)),
    (2, 2, 4),
)
case(
    "softmax_cross_entropy one-hot",
    lambda z: ad.softmax_cross_entropy(z, constant([[0, 1, 0], [1, 0, 0]], z)),
    (2, 3),
)
case("softmax_cross_entropy soft", lambda z, t: ad.softmax_cross_entropy(z, t), (2, 3), (2, 3))
case("sigmoid_cross_entropy", ad.sigmoid_cross_entropy, (2, 3), (2, 3))
case(
    "sigmoid_cross_entropy of labels",
    lambda z: ad.sigmoid_cross_entropy(z, ints([1, 0, 1], z)),
    (3,),
)

case("atleast", lambda x: np.atleast_1d(x) + np.atleast_2d(x) + np.atleast_3d(x), ())
case("atleast of several", lambda x, y: np.hstack(np.atleast_1d(x, y)), (), (3,))
case("atleast_3d of a vector", np.atleast_3d, (3,))
case("vstack", lambda x, y: np.vstack([x, y]), (3,), (2, 3))
case("hstack of vectors", lambda x, y: np.hstack([x, y]), (3,), ())
case("hstack of matrices", lambda x, y: np.hstack([x, y]), (2, 1), (2, 3))
case("dstack", lambda x, y: np.dstack([x, y]), (2, 3), (2, 3))
case("column_stack", lambda x, y: np.column_stack([x, y]), (3,), (3, 2))
case("unstack", lambda x: (lambda a, b: a * b)(*np.unstack(x, axis=1)), (3, 2))
case("hsplit", lambda x: np.hsplit(x, 2)[1] * np.vsplit(x, 2)[0][0, 0], (2, 4))
case("dsplit", lambda x: np.dsplit(x, [1])[1], (2, 2, 3))
case("append", lambda x, y: np.append(x, y), (2, 2), (3,))
case("append along", lambda x, y: np.append(x, y, axis=1), (2, 2), (2, 1))
case("delete", lambda x: np.delete(x, [0, 2], axis=1), (2, 4))
case("delete flat", lambda x: np.delete(x, 1), (2, 2))
case("insert", lambda x, y: np.insert(x, 1, y, axis=1), (2, 3), (2,))
case("insert several", lambda x, y: np.insert(x, [0, 2], y, axis=0), (3, 2), (2, 2))
case("insert flat", lambda x: np.insert(x, 2, 5.0), (2, 2))
case("broadcast_arrays", lambda x, y: np.multiply(*np.broadcast_arrays(x, y)), (2, 1), (3,))
case("meshgrid", lambda x, y: np.divide(*np.meshgrid(x, y)), (2,), (3,), low=0.5)
case("meshgrid ij", lambda x, y: np.divide(*np.meshgrid(x, y, indexing="ij")), (2,), (3,), low=1)
case("sliding_window_view", lambda x: WINDOWS(x, 2, axis=1), (2, 4))
case("sliding windows of 2 axes", lambda x: WINDOWS(x, (2, 3)), (3, 4))

case("matrix_transpose", lambda x: np.matrix_transpose(x) * x.mT, (2, 2, 3))
case("flips", lambda x: np.flipud(x) * np.fliplr(x), (2, 3))
case("rot90", lambda x: np.rot90(x) * np.rot90(x, -1), (2, 3))
case("rot90 twice", lambda x: np.rot90(x, 2, (1, 0)), (2, 3))
case("rollaxis", lambda x: np.rollaxis(x, 2, 1), (2, 3, 4))
case("diff", np.diff, (2, 3))
case("diff of diff", lambda x: np.diff(x, 2, axis=0), (4, 2))
case("diff with edges", lambda x, y: np.diff(x, prepend=0.0, append=y), (2, 3), (2, 2))
case("interp", lambda x, y: np.interp(x, [0, 1, 2.5], y), np.array([-1, 0.2, 1.7, 3]), (3,))
case("interp with ends", lambda x: np.interp(x, [0, 1], [2, 4], -1.0, 7.0), (5,))
for mode in ("full", "same", "valid"):
    case(f"convolve {mode}", lambda x, y, mode=mode: np.convolve(x, y, mode), (5,), (3,))
case("convolve with a longer one", lambda x, y: np.convolve(x, y, "same"), (2,), (5,))
case("cumprod", np.cumprod, (2, 3))
case("cumprod with zeros", lambda x: np.cumprod(x, 1), np.array([[0.0, 2.0, 0.0], [1, 0, 3]]))
case("average", lambda x: np.average(x, 1), (2, 3))
case("average of weights", lambda x, y: np.average(x, weights=y), (2, 3), (2, 3), low=0.5)
case("average along", lambda x, y: np.average(x, 1, y), (2, 3), (3,), low=0.5)
case("average over axes", lambda x, y: np.average(x, (2, 0), y), (2, 3, 4), (4, 2), low=0.5)
case("median", np.median, spaced(5))
case("median axis", lambda x: np.median(x, 1, keepdims=True), spaced(2, 4))
case("median axes", lambda x: np.median(x, (0, -1)), spaced(2, 4, 3))
case("ptp", lambda x: np.ptp(x, 0), spaced(4, 2))
case(
    "select",
    lambda x, y: np.select([lift(x).data > 1, lift(x).data > 0], [x * 2, y], -1.0),
    *(spaced(5), (5,)),
)
case("nan_to_num", np.nan_to_num, np.array([1.0, -2.0]))
case("arctan2", np.arctan2, np.array([1.0, -1, -2, 0.5]), np.array([-1.0, -1, 1, 2]))
case("hypot", np.hypot, (2, 3), (3,))
case("fmax", np.fmax, spaced(2, 3), (3,))
case("fmin", np.fmin, spaced(2, 3), (3,))
case("copysign", np.copysign, spaced(6), spaced(2, 3).reshape(-1)[::-1].copy())
case("fabs", np.fabs, spaced(5))
case("degrees", lambda x: np.degrees(x) + np.rad2deg(x), (3,))
case("radians", lambda x: np.radians(x) + np.deg2rad(x), (3,))
case(
    "methods of shape",
    lambda x: (
        x.ravel() * x.flatten() + x.swapaxes(0, 1).reshape(-1) * x[None].squeeze().copy()[0, 0]
    ),
    (2, 2),
)
case(
    "methods along axes",
    lambda x: x.var(0) + x.std(axis=0) + x.prod(0) + x.cumsum(0)[1] + x.cumprod(0)[1],
    (3, 2),
)
case(
    "methods of products",
    lambda x: x.clip(-1, 1).dot(x.T).repeat(2, 0),
    (2, 3),
)

IMAGE, FILTERS = (2, 5, 4, 2), (3, 2, 2, 3)
case("conv2d", ad.conv2d, IMAGE, FILTERS, (3,))
case("conv2d without bias", ad.conv2d, IMAGE, FILTERS)
case(
    "conv2d relu strided same",
    lambda x, w, b: ad.conv2d(x, w, b, (2, 1), "same", activation="relu"),
    *(IMAGE, FILTERS, (3,)),
)
case(
    "conv2d_relu_max_pool2d",
    lambda x, w, b: ad.conv2d_relu_max_pool2d(x, w, b, padding="same"),
    *(IMAGE, FILTERS, (3,)),
)
case("max_pool2d", ad.max_pool2d, spaced(*IMAGE))
case("max_pool2d same", lambda x: ad.max_pool2d(x, (3, 2), (2, 2), "same"), spaced(*IMAGE))
case("max_pool2d by one number", lambda x: ad.max_pool2d(x, 2, 1), spaced(*IMAGE))
case("conv2d by one number", lambda x, w: ad.conv2d(x, w, strides=2), IMAGE, FILTERS)
case(
    "conv of a sequence", lambda x, w, b: ad.conv(x, w, b, 2, "causal"), (2, 5, 2), (3, 2, 3), (3,)
)
case(
    "conv of groups, dilated",
    lambda x, w: ad.conv(x, w, padding="same", dilation=2, groups=2, activation="relu"),
    *((2, 5, 4, 4), (3, 2, 2, 2)),
)
case("conv of volumes", ad.conv, (1, 3, 3, 2, 2), (2, 2, 2, 2, 2))
case("depthwise_conv", lambda x, w: ad.depthwise_conv(x, w, 2, "same"), IMAGE, (3, 2, 2, 2))
case("conv_transpose", lambda x, w: ad.conv_transpose(x, w, 2), IMAGE, (3, 2, 3, 2))
case(
    "conv_transpose same",
    lambda x, w: ad.conv_transpose(x, w, (2, 1), "same"),
    *(IMAGE, (3, 2, 3, 2)),
)
case("max_pool of a sequence", lambda x: ad.max_pool(x, 3, 2, "same"), spaced(2, 6, 2))
case("avg_pool of volumes", lambda x: ad.avg_pool(x, 2, 1, "same"), (1, 3, 2, 3, 2))
case("relu of all options", lambda x: ad.relu(x, 0.1, 1.2, 0.3), spaced(2, 4))
case("avg_pool2d", ad.avg_pool2d, IMAGE)
case("avg_pool2d same", lambda x: ad.avg_pool2d(x, (3, 2), (2, 2), "same"), IMAGE)
