"""Training steps written by hand in plain NumPy: the limit that the framework is measured against.

No autodiff, no layers: each step is one straight line of arithmetic for one model, fused across
layers, with every buffer allocated beforehand and work cut into pieces that stay in the processor's
second-level cache. Each step is a real one nonetheless: a batch goes in, the weights are updated by
plain SGD on the mean sparse softmax cross-entropy, the loss comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from workloads import LEARNING_RATE, WORKLOADS, Data, Loop, loop_of

Params: TypeAlias = dict[str, np.ndarray]
Step: TypeAlias = Callable[[np.ndarray, np.ndarray], float]


def cnn_params(
    seed: int = 0,
    image: tuple[int, int] = (28, 28),
    filters: int = 32,
    hidden: int = 64,
    classes: int = 10,
    dtype: np.typing.DTypeLike = np.float32,
) -> Params:
    """Initial weights of the tutorial CNN (Glorot uniform, biases zero).

    Its layers: Conv2D(filters, 3x3, relu), MaxPool 2x2, Flatten, Dense(hidden, relu),
    Dense(classes), on images of one channel with even height and width.
    """
    rng = np.random.default_rng(seed)
    features = (image[0] - 2) // 2 * ((image[1] - 2) // 2) * filters
    return {
        "conv/w": _glorot(rng, (3, 3, 1, filters), dtype),
        "conv/b": np.zeros(filters, dtype),
        "dense_0/w": _glorot(rng, (features, hidden), dtype),
        "dense_0/b": np.zeros(hidden, dtype),
        "dense_1/w": _glorot(rng, (hidden, classes), dtype),
        "dense_1/b": np.zeros(classes, dtype),
    }


def mlp_params(
    sizes: Sequence[int], seed: int = 0, dtype: np.typing.DTypeLike = np.float32
) -> Params:
    """Initial weights of an MLP (Glorot uniform, biases zero), e.g. sizes (784, 256, 10)."""
    rng = np.random.default_rng(seed)
    params: Params = {}
    for index, shape in enumerate(pairwise(sizes)):
        params[f"dense_{index}/w"] = _glorot(rng, shape, dtype)
        params[f"dense_{index}/b"] = np.zeros(shape[1], dtype)
    return params


class HandwrittenCnn:
    """One training step of the tutorial CNN.

    A row of pools is carried through the whole of forward, and later through the whole of backward,
    before the next one: its convolution, pool, bias, relu and its share of the first dense layer;
    its share of that layer's gradients, update included, and of the convolution's. Memory between
    the layers is ordered rows, columns, batch, channels. Bias and relu come after the pool, on a
    quarter of the elements.

    The four cells of a pool are called a b / c d. All cells a of a row of pools lie together, then
    all cells c, b and d: maxima of contiguous blocks are three times faster than of interleaved
    ones.
    """

    def __init__(
        self,
        params: Mapping[str, np.ndarray],
        image: tuple[int, int] = (28, 28),
        batch: int = 64,
        learning_rate: float = LEARNING_RATE,
    ) -> None:
        self.params = {name: value.copy() for name, value in params.items()}
        dtype = params["conv/w"].dtype
        filters, hidden = params["conv/b"].size, params["dense_0/b"].size
        rows, columns = (image[0] - 2) // 2, (image[1] - 2) // 2
        self._rate_of_mean = dtype.type(learning_rate / batch)

        self._pixels = np.empty((*image, batch), dtype)
        windows = np.lib.stride_tricks.sliding_window_view(self._pixels, (3, 3), axis=(0, 1))
        windows = windows.reshape(rows, 2, columns, 2, batch, 3, 3)
        self._windows = list(windows.transpose(0, 5, 6, 3, 1, 2, 4))
        # Nine lines of patches, one of ones for the gradient of the bias, and two of zeros: the
        # matrix product works in fours.
        self._patches = np.zeros((12, 4 * columns * batch), dtype)
        self._patches[9] = 1
        self._nine_patches = self._patches[:9].reshape(3, 3, 2, 2, columns, batch)

        self._cells = np.empty((4, columns, batch, filters), dtype)
        self._pooled = np.empty((columns, batch, filters), dtype)
        self._bias, self._zeros = np.empty_like(self._pooled), np.zeros_like(self._pooled)
        self._winners = list(np.empty((rows, *self._cells.shape), bool))
        self._flat = list(np.empty((rows, batch, columns * filters), dtype))
        self._g_flat = np.empty((batch, columns * filters), dtype)
        # Exchanging columns and batch is a third faster with all channels as one large element.
        pixel = np.dtype((np.void, filters * dtype.itemsize))
        self._pooled_by_example = self._pooled.view(pixel)[..., 0].T
        self._flat_pixels = [flat.view(pixel) for flat in self._flat]
        self._g_flat_by_position = self._g_flat.view(pixel).T
        self._dense_w = list(self.params["dense_0/w"].reshape(rows, columns * filters, hidden))
        self._block = np.empty((columns * filters, hidden), dtype)
        self._hidden, self._part = np.empty((2, batch, hidden), dtype)
        self._sums, self._sums_part = np.empty((2, 12, filters), dtype)
        self._ones = np.ones(batch, dtype)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        """Train on images (batch, height, width, 1) and labels (batch,); return the loss."""
        self._pixels[...] = x[..., 0].transpose(1, 2, 0)
        hidden = self._forward()
        params = self.params
        logits = hidden @ params["dense_1/w"] + params["dense_1/b"]
        loss, g = softmax_cross_entropy(logits, y)
        g *= self._rate_of_mean
        g_hidden = g @ params["dense_1/w"].T
        g_hidden *= hidden > 0
        params["dense_1/w"] -= hidden.T @ g
        params["dense_1/b"] -= self._ones @ g
        params["dense_0/b"] -= self._ones @ g_hidden
        self._backward(g_hidden)
        return loss

    def _forward(self) -> np.ndarray:
        """From `_pixels` to the activations of the first dense layer."""
        bias, zeros, pooled = self._bias, self._zeros, self._pooled
        bias[...] = self.params["conv/b"]
        z = self._cells.reshape(-1, bias.shape[-1])
        ac, bd = self._cells[:2], self._cells[2:]
        ab_max, cd_max = ac
        nine_w = self.params["conv/w"].reshape(9, -1)
        hidden, part = self._hidden, self._part
        hidden[...] = self.params["dense_0/b"]
        for row, winners in enumerate(self._winners):
            np.copyto(self._nine_patches, self._windows[row])
            np.matmul(self._patches[:9].T, nine_w, out=z)
            passes, bottom, is_ac, is_bd = winners[0], winners[1], winners[:2], winners[2:]
            np.greater(bd, ac, out=is_bd)
            np.maximum(ac, bd, out=ac)
            np.greater(cd_max, ab_max, out=bottom)
            np.maximum(ab_max, cd_max, out=pooled)
            np.add(pooled, bias, out=pooled)
            np.maximum(pooled, zeros, out=pooled)
            # On truth values `greater` is "and not".
            np.greater(pooled, 0, out=passes)
            np.logical_and(bottom, passes, out=bottom)
            np.greater(passes, bottom, out=passes)
            np.logical_and(is_bd, is_ac, out=is_bd)
            np.greater(is_ac, is_bd, out=is_ac)
            np.copyto(self._flat_pixels[row], self._pooled_by_example)
            np.matmul(self._flat[row], self._dense_w[row], out=part)
            np.add(hidden, part, out=hidden)
        return np.maximum(hidden, 0, out=hidden)

    def _backward(self, g_hidden: np.ndarray) -> None:
        """Update the first dense layer and the convolution; the rate is in `g_hidden`."""
        cells, g_pooled, g_flat = self._cells, self._pooled, self._g_flat
        z = cells.reshape(-1, cells.shape[-1])
        to_g_pooled = self._pooled_by_example.T
        sums, part, block = self._sums, self._sums_part, self._block
        sums[...] = 0
        for row, winners in enumerate(self._winners):
            w = self._dense_w[row]
            np.matmul(g_hidden, w.T, out=g_flat)
            np.matmul(self._flat[row].T, g_hidden, out=block)
            np.subtract(w, block, out=w)
            np.copyto(to_g_pooled, self._g_flat_by_position)
            np.copyto(cells, winners)
            np.multiply(cells, g_pooled, out=cells)
            np.copyto(self._nine_patches, self._windows[row])
            np.matmul(self._patches, z, out=part)
            np.add(sums, part, out=sums)
        self.params["conv/w"] -= sums[:9].reshape(3, 3, 1, -1)
        self.params["conv/b"] -= sums[9]


class HandwrittenMlp:
    """One training step of an MLP with relu between its layers.

    A layer's weights are updated block by block: the gradient of a block is taken from the cache
    that it was just written to.
    """

    def __init__(
        self,
        params: Mapping[str, np.ndarray],
        batch: int = 64,
        learning_rate: float = LEARNING_RATE,
    ) -> None:
        self.params = {name: value.copy() for name, value in params.items()}
        dtype = params["dense_0/w"].dtype
        self._rate_of_mean = dtype.type(learning_rate / batch)
        num_layers = len(params) // 2
        self._w = [self.params[f"dense_{i}/w"] for i in range(num_layers)]
        self._b = [self.params[f"dense_{i}/b"] for i in range(num_layers)]
        self._y = [np.empty((batch, b.size), dtype) for b in self._b]
        self._g = [np.empty_like(y) for y in self._y]
        self._zeros = [np.zeros_like(b) for b in self._b]
        self._ones = np.ones(batch, dtype)
        self._blocks = [np.empty((_block_lines(w), w.shape[1]), dtype) for w in self._w]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        """Train on features (batch, size) and labels (batch,); return the loss."""
        inputs = [x, *self._y[:-1]]
        last = len(self._w) - 1
        for i, (w, b, out) in enumerate(zip(self._w, self._b, self._y, strict=True)):
            np.matmul(inputs[i], w, out=out)
            np.add(out, b, out=out)
            if i < last:
                np.maximum(out, self._zeros[i], out=out)
        loss, g = softmax_cross_entropy(self._y[-1], y)
        g *= self._rate_of_mean
        for i in range(last, -1, -1):
            if i > 0:
                below = np.matmul(g, self._w[i].T, out=self._g[i - 1])
                np.multiply(below, inputs[i] > 0, out=below)
            self._update(i, inputs[i], g)
            g = self._g[i - 1]
        return loss

    def _update(self, i: int, x: np.ndarray, g: np.ndarray) -> None:
        """Subtract `x.T @ g`, with the learning rate in `g`, from the weights of layer `i`."""
        w, block = self._w[i], self._blocks[i]
        for first in range(0, len(w), len(block)):
            part = w[first : first + len(block)]
            out = block[: len(part)]
            np.matmul(x[:, first : first + len(block)].T, g, out=out)
            np.subtract(part, out, out=part)
        self._b[i] -= self._ones @ g


def make_trainer(name: str) -> HandwrittenCnn | HandwrittenMlp:
    """Of a workload; see workloads.py."""
    workload = WORKLOADS[name]
    if workload.sizes:
        return HandwrittenMlp(mlp_params(workload.sizes), workload.batch)
    return HandwrittenCnn(cnn_params())


def make_loop(name: str, data: Data) -> Loop:
    """The loop of a workload."""
    return loop_of(make_trainer(name), data)


def make_loop_of_replicas(name: str, data: Data) -> Loop:
    """Two threads, each with weights and data of its own; after each step weights are averaged.

    For plain SGD that is the same as averaging gradients. Each thread averages a half of them.
    """
    trainers = [make_trainer(name) for _ in range(2)]
    sources = [data, Data(WORKLOADS[name])]
    flat = [[w.reshape(-1) for w in trainer.params.values()] for trainer in trainers]
    pairs = list(zip(*flat, strict=True))
    halves = [
        [(a[: a.size // 2], b[: b.size // 2]) for a, b in pairs],
        [(a[a.size // 2 :], b[b.size // 2 :]) for a, b in pairs],
    ]
    threads = ThreadPoolExecutor(2)

    def train(trainer: Step, source: Data) -> float:
        return trainer(*source.batch())

    def average(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        for a, b in pairs:
            np.add(a, b, out=a)
            np.multiply(a, a.dtype.type(0.5), out=a)
            np.copyto(b, a)

    def loop(num_steps: int, after_step: Callable[[], object]) -> None:
        for _ in range(num_steps):
            list(threads.map(train, trainers, sources))
            list(threads.map(average, halves))
            after_step()

    return loop


def softmax_cross_entropy(logits: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean over the examples, and the gradient of their sum, which overwrites `logits`.

    By bare ufuncs: for few examples half of the time of `max` and `sum` is their wrappers'.
    """
    batch, classes = logits.shape
    flat, of_labels = logits.reshape(-1), np.arange(0, batch * classes, classes)
    of_labels += y
    np.subtract(logits, np.maximum.reduce(logits, axis=1, keepdims=True), out=logits)
    losses = flat[of_labels]
    np.exp(logits, out=logits)
    sums = np.add.reduce(logits, axis=1, keepdims=True)
    np.subtract(np.log(sums[:, 0]), losses, out=losses)
    np.divide(logits, sums, out=logits)
    flat[of_labels] -= 1
    return float(np.add.reduce(losses)) / batch, logits


def _glorot(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.typing.DTypeLike
) -> np.ndarray:
    field = int(np.prod(shape[:-2]))
    limit = np.sqrt(6 / (field * (shape[-2] + shape[-1])))
    return rng.uniform(-limit, limit, shape).astype(dtype)


def _block_lines(w: np.ndarray) -> int:
    """Lines of `w` in about 512 KiB."""
    return max(1, min(len(w), 2**19 // (w.shape[1] * w.itemsize)))
