"""The steps of `gpu.py` by hand, in bare CuPy: what ours are compared with.

Written as somebody writes them who wants them fast and short: in place where that is easy, with no
kernels of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_timing import CLASSES, RATE, Sizes, Step, batch_of, resnet_blocks

Layer = Callable[[Any], tuple[Any, Callable[[Any], Any]]]
"""Gives its outputs, and its way back: from their gradient, to be called once, to that of its
inputs. On the way it changes its weights."""


def weights_of(*shapes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Small random weights on the device, and biases."""
    import cupy

    rng = np.random.default_rng(0)
    weights = [cupy.asarray(rng.normal(0, 0.05, shape).astype(np.float32)) for shape in shapes]
    return weights, biases_of(*(shape[-1] for shape in shapes))


def logits_gradient(z: Any, y: Any, examples: Any) -> Any:
    """That of the mean cross-entropy."""
    import cupy

    g = cupy.exp(z - z.max(axis=1, keepdims=True))
    g /= g.sum(axis=1, keepdims=True)
    g[examples, y] -= 1
    g /= len(z)
    return g


def descend(weight: Any, gradient: Any) -> None:
    """Change a weight, where it lies."""
    weight -= RATE * gradient


def descend_dense(weight: Any, bias: Any, x: Any, g: Any) -> None:
    """Change a dense layer with inputs `x`, whose outputs have the gradient `g`."""
    descend(weight, x.T @ g)
    descend(bias, g.sum(axis=0))


def mlp(sizes: Sizes) -> Step:
    import cupy

    x, y = (cupy.asarray(part) for part in batch_of(sizes.mlp[:1], sizes.mlp_batch))
    weights, biases = weights_of(*itertools.pairwise(sizes.mlp))
    examples = cupy.arange(len(x))

    def step() -> None:
        outputs = [x]
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            outputs.append(cupy.maximum(outputs[-1] @ w + b, 0))
        g = logits_gradient(outputs[-1] @ weights[-1] + biases[-1], y, examples)
        for i in reversed(range(len(weights))):
            before = g
            if i:
                g = (g @ weights[i].T) * (outputs[i] > 0)
            descend_dense(weights[i], biases[i], outputs[i], before)

    return step


def cnn(sizes: Sizes, which: int) -> Step:
    """3 x 3 convolution, relu, 2 x 2 max-pool, two dense layers."""
    import cupy

    batch, image, filters = sizes.cnn_batches[which], sizes.image, sizes.filters
    units = sizes.units
    x, y = (cupy.asarray(part) for part in batch_of(image, batch))
    rows, columns, channels = image[0] - 2, image[1] - 2, image[2]
    half = (batch, rows // 2, columns // 2, filters)
    flat = half[1] * half[2] * filters
    shapes = (9 * channels, filters), (flat, units), (units, CLASSES)
    (wc, w1, w2), (bc, b1, b2) = weights_of(*shapes)
    examples = cupy.arange(batch)
    kept = (slice(None), slice(0, 2 * half[1]), slice(0, 2 * half[2]))

    def step() -> None:
        strides = (*x.strides[:3], *x.strides[1:])
        windows = (batch, rows, columns, 3, 3, channels)
        view = cupy.lib.stride_tricks.as_strided(x, windows, strides)
        patches = view.reshape(batch * rows * columns, 9 * channels)
        c = cupy.maximum(patches @ wc + bc, 0).reshape(batch, rows, columns, filters)
        cells = c[kept].reshape(batch, half[1], 2, half[2], 2, filters)
        pooled = cells.max(axis=(2, 4))
        h0 = pooled.reshape(batch, flat)
        h1 = cupy.maximum(h0 @ w1 + b1, 0)
        g2 = logits_gradient(h1 @ w2 + b2, y, examples)
        g1 = (g2 @ w2.T) * (h1 > 0)
        g0 = (g1 @ w1.T).reshape(half)[:, :, None, :, None]
        most = pooled[:, :, None, :, None]
        gc = cupy.zeros(c.shape, np.float32)
        gc[kept] = (g0 * ((cells == most) & (cells > 0))).reshape(c[kept].shape)
        descend_dense(w2, b2, h1, g2)
        descend_dense(w1, b1, h0, g1)
        descend_dense(wc, bc, patches, gc.reshape(len(patches), filters))

    return step


def resnet(sizes: Sizes) -> Step:
    """The blocks of ResNet-18 behind a 3 x 3 convolution; images lie with their channels last."""
    import cupy

    x, y = (cupy.asarray(part) for part in batch_of(sizes.resnet_image, sizes.resnet_batch))
    width = sizes.resnet_width
    stem = convolution(3, sizes.resnet_image[2], width, needs_inputs=False)
    (stem_bias, bias), (weight,) = biases_of(width, CLASSES), weights_of((8 * width, CLASSES))[0]
    blocks = [block(*channels) for channels in resnet_blocks(width)]
    examples = cupy.arange(len(x))

    def step() -> None:
        h, stem_back = stem(x)
        h += stem_bias
        first = h = cupy.maximum(h, 0, out=h)
        ways_back = []
        for layer in blocks:
            h, back = layer(h)
            ways_back.append(back)
        pixels = h.shape[1] * h.shape[2]
        means = h.mean(axis=(1, 2))
        g = logits_gradient(means @ weight + bias, y, examples)
        of_means = g @ weight.T / pixels
        descend_dense(weight, bias, means, g)
        g = cupy.broadcast_to(of_means[:, None, None], h.shape)
        for back in reversed(ways_back):
            g = back(g)
        g = g * (first > 0)
        descend(stem_bias, g.sum(axis=(0, 1, 2)))
        stem_back(g)

    return step


def block(before: int, after: int, stride: int) -> Layer:
    """Two normalized convolutions around which the inputs go."""
    import cupy

    first, second = convolution(3, before, after, stride), convolution(3, after, after)
    normal_first, normal_second = normalization(after), normalization(after)
    is_same = before == after
    shortcut = None if is_same else convolution(1, before, after, stride)
    (bias,) = biases_of(after)

    def layer(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        h, first_back = first(x)
        h, normal_first_back = normal_first(h)
        inner = cupy.maximum(h, 0, out=h)
        h, second_back = second(inner)
        h, normal_second_back = normal_second(h)
        if shortcut is None:
            h += x
        else:
            kept, shortcut_back = shortcut(x)
            h += kept
            h += bias
        y = cupy.maximum(h, 0, out=h)

        def back(g: Any) -> Any:
            g = g * (y > 0)
            way = second_back(normal_second_back(g))
            way *= inner > 0
            way = first_back(normal_first_back(way))
            if shortcut is None:
                return way + g
            descend(bias, g.sum(axis=(0, 1, 2)))
            return way + shortcut_back(g)

        return y, back

    return layer


def convolution(
    size: int, before: int, after: int, stride: int = 1, needs_inputs: bool = True
) -> Layer:
    """Zeros around the images, their windows as lines of a matrix, and a product.

    Args:
        size: The windows' length and width.
        before: Channels of the images.
        after: Channels of what comes out.
        stride: From one window to the next.
        needs_inputs: Whether somebody needs the gradient of the images.
    """
    import cupy

    (w,), _ = weights_of((size * size * before, after))
    edge = size // 2

    def layer(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        batch, height, width, _ = x.shape
        rows, columns = ((n + 2 * edge - size) // stride + 1 for n in (height, width))
        inside = (slice(None), slice(edge, edge + height), slice(edge, edge + width))
        shape = (batch, height + 2 * edge, width + 2 * edge, before)
        padded = cupy.zeros(shape, x.dtype)
        padded[inside] = x
        image, row, column, channel = padded.strides
        strides = (image, stride * row, stride * column, row, column, channel)
        windows = (batch, rows, columns, size, size, before)
        view = cupy.lib.stride_tricks.as_strided(padded, windows, strides)
        patches = view.reshape(-1, size * size * before)
        y = (patches @ w).reshape(batch, rows, columns, after)

        def back(g: Any) -> Any:
            g = g.reshape(-1, after)
            of_patches = (g @ w.T).reshape(windows) if needs_inputs else None
            descend(w, patches.T @ g)
            if of_patches is None:
                return None
            found = cupy.zeros(shape, g.dtype)
            for i in range(size):
                for j in range(size):
                    to = found[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
                    to += of_patches[:, :, :, i, j]
            return found[inside]

        return y, back

    return layer


def normalization(channels: int) -> Layer:
    """Of a batch, with the means and variances that are kept for predictions."""
    import cupy

    scale = cupy.ones(channels, np.float32)
    offset, *kept = biases_of(channels, channels, channels)
    axes = (0, 1, 2)

    def layer(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        mean = x.mean(axis=axes)
        normal = x - mean
        variance = (normal * normal).mean(axis=axes)
        factor = 1 / cupy.sqrt(variance + 1e-3)
        normal *= factor
        for old, new in zip(kept, (mean, variance), strict=True):
            old += 0.01 * (new - old)

        def back(g: Any) -> Any:
            of_scale, of_offset = (g * normal).sum(axis=axes), g.sum(axis=axes)
            num = g.size // channels
            found = (scale * factor) * (g - of_offset / num - normal * (of_scale / num))
            descend(scale, of_scale)
            descend(offset, of_offset)
            return found

        return normal * scale + offset, back

    return layer


def biases_of(*lengths: int) -> list[Any]:
    import cupy

    return [cupy.zeros(length, np.float32) for length in lengths]


def embedding(sizes: Sizes) -> Step:
    """Adagrad of the rows that are read; atomic additions, and a wait for the number of rows."""
    import cupy

    rows, width, ids = sizes.rows, sizes.width, sizes.ids
    table = cupy.zeros((rows, width), np.float32)
    table += 0.01
    sums = cupy.zeros((rows, width), np.float32)
    sums += 0.1
    indices = cupy.asarray(np.random.default_rng(0).integers(0, rows, ids))

    def step() -> None:
        found = table[indices].sum(axis=1)
        g = cupy.broadcast_to((2 / found.size * found)[:, None], (*ids, width))
        own, places = cupy.unique(indices, return_inverse=True)
        gradient = cupy.zeros((len(own), width), np.float32)
        np.add.at(gradient, places.reshape(-1), g.reshape(-1, width))
        total = sums[own] + gradient * gradient
        sums[own] = total
        table[own] -= 0.1 * gradient / cupy.sqrt(total + 1e-7)

    return step
