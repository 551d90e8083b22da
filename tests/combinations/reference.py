"""What one process computes on the same global batches, without strategies, layers or optimizers.

Gradients come from the `autodiff` package, everything else is written out here: the model, batch
normalization by replica, the masks of dropout, the update rules, and what is counted.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scenarios import (
    NUM_FEATURES,
    NUM_PLACES,
    NUM_ROWS,
    NUM_TASKS,
    NUM_WORDS,
    Run,
    Scenario,
    Topology,
    initial_value,
)

from paceline.autodiff import IndexedSlices, Tensor, backward

LEARNING_RATE, DROPOUT_SEED, CLIP = 0.02, 11, 0.3
MOMENTUM, EPSILON = 0.9, 1e-3  # of batch normalization
PENALTY = 0.01
MAX_NORM = 0.8  # of a column of the hidden kernel
WIDTH_OF_CELLS, WIDTH_OF_WIDE = 2, 3_000  # the latter times features: 72 kB
FIRST_SCALE, GROWTH_STEPS = 2.0**10, 2  # of the loss
SECOND_RATE = 0.01


def learning_rate(scenario: Scenario, num_updates: int) -> float:
    """The rate of the update after so many."""
    if scenario.schedule == "exponential":
        return LEARNING_RATE * 0.5 ** (num_updates / 2)
    if scenario.schedule == "piecewise":
        return LEARNING_RATE * (1.0 if num_updates <= 1 else 0.5 if num_updates <= 3 else 0.25)
    if scenario.schedule == "warm-up":
        if num_updates < 2:
            return LEARNING_RATE * (1 / 4 + 3 / 4 * num_updates / 2)
        cosine = 0.5 * (1 + np.cos(np.pi * min(num_updates - 2, 6) / 6))
        return LEARNING_RATE * (0.9 * cosine + 0.1)
    return LEARNING_RATE


def width(scenario: Scenario) -> int:
    """How long the vector is that the last layers take."""
    cells = WIDTH_OF_CELLS if scenario.sequences else 0
    return 4 + (2 if scenario.embedding else 0) + cells


def trainable_shapes(scenario: Scenario) -> dict[str, tuple[int, ...]]:
    shapes = {"hidden/kernel": (NUM_FEATURES, 4), "hidden/bias": (4,)}
    if scenario.embedding:
        shapes["table/embeddings"] = (NUM_ROWS, 2)
    if scenario.sequences:
        gates = 4 * WIDTH_OF_CELLS
        shapes |= {
            "words/embeddings": (NUM_WORDS, 2),
            "cells/kernel": (2, gates),
            "cells/recurrent_kernel": (WIDTH_OF_CELLS, gates),
            "cells/bias": (gates,),
        }
    if scenario.wide:
        shapes["wide"] = (NUM_FEATURES, WIDTH_OF_WIDE)
    if scenario.unused:
        shapes["unused"] = (2,)
    if scenario.norm:
        shapes |= {"norm/gamma": (width(scenario),), "norm/beta": (width(scenario),)}
    shapes |= {"out/kernel": (width(scenario), 1), "out/bias": (1,)}
    if scenario.heads:
        shapes |= {f"head_{t}": (width(scenario), 1) for t in range(NUM_TASKS)}
    return shapes


def is_of_second(name: str) -> bool:
    """Whether a variable belongs to the second optimizer, where there is one."""
    return name.startswith(("out/", "head_"))


RULE_SLOTS = {
    "sgd": {},
    "momentum": {"momentum": 0.0},
    "nesterov": {"momentum": 0.0},
    "adam": {"m": 0.0, "v": 0.0},
    "adamw": {"m": 0.0, "v": 0.0},
    "adagrad": {"accumulator": 0.1},
    "rmsprop": {"rms": 0.0, "average_gradient": 0.0, "momentum": 0.0},
    "ftrl": {"accumulator": 0.1, "linear": 0.0},
}


def updated(rule: str, w, g, slots, rate: float, step: int):
    """The new value and slots, by the formulas of the papers."""
    if rule == "sgd":
        return w - rate * g, []
    if rule in ("momentum", "nesterov"):
        velocity = 0.9 * slots[0] - rate * g
        return w + (0.9 * velocity - rate * g if rule == "nesterov" else velocity), [velocity]
    if rule in ("adam", "adamw"):
        decayed = w * (1 - rate * 0.1) if rule == "adamw" else w
        m, v = 0.9 * slots[0] + 0.1 * g, 0.999 * slots[1] + 0.001 * g**2
        corrected = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        return decayed - corrected * m / (np.sqrt(v) + 1e-7), [m, v]
    if rule == "adagrad":
        total = slots[0] + g**2
        return w - rate * g / np.sqrt(total + 1e-7), [total]
    if rule == "rmsprop":
        rms, mean = 0.9 * slots[0] + 0.1 * g**2, 0.9 * slots[1] + 0.1 * g
        velocity = 0.5 * slots[2] + rate * g / np.sqrt(rms - mean**2 + 1e-2)
        return w - velocity, [rms, mean, velocity]
    assert rule == "ftrl"
    total = slots[0] + g**2
    linear = slots[1] + g - (np.sqrt(total) - np.sqrt(slots[0])) / rate * w
    shrunk = np.clip(linear, -0.01, 0.01) - linear
    return shrunk / (np.sqrt(total) / rate + 2 * 0.01), [total, linear]


@dataclass(frozen=True)
class After:
    """What is so after a step: its loss, the sum of the run's labels so far, a checkpoint."""

    loss: float
    labels: float
    values: dict[str, np.ndarray]


class Reference:
    """The model, as it is after the runs so far."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.weights: dict[str, np.ndarray] = {}
        self._begin_anew({})

    def _begin_anew(self, weights: dict[str, np.ndarray]) -> None:
        s = self.scenario
        self.weights = {n: initial_value(n, shape) for n, shape in trainable_shapes(s).items()}
        if s.norm:
            self.weights["norm/gamma"] = np.ones(width(s))
            self.weights["norm/beta"] = np.zeros(width(s))
        self.weights |= weights
        self.moving = {"mean": np.zeros(width(s)), "variance": np.ones(width(s))}
        self.mean = 0.0
        self.num_steps = self.num_seen = self.num_seen_by_replicas = 0
        self.rate_factor = 1.0
        self.slots = {
            f"{optimizer}/{name}/{slot}": np.full_like(value, start)
            for name, value in self.weights.items()
            for optimizer in self._optimizers_of(name)
            for slot, start in RULE_SLOTS[self._rule_of(optimizer)].items()
        }

    def _optimizers_of(self, name: str) -> list[str]:
        s, is_of_first = self.scenario, not is_of_second(name)
        if not s.second_optimizer:
            return ["first"]
        of_first = ["first"] if is_of_first else []
        return of_first + (["second"] if s.has_all_weights or not is_of_first else [])

    def _rule_of(self, optimizer: str) -> str:
        return "momentum" if optimizer == "second" else self.scenario.optimizer

    def values(self) -> dict[str, np.ndarray]:
        """All that a checkpoint has, by name."""
        s = self.scenario
        found = {**self.weights, **self.slots, "first/iterations": self.num_steps}
        if s.second_optimizer:
            found["second/iterations"] = self.num_steps
        if s.scaled:
            num_doubled, num_good = divmod(self.num_steps, GROWTH_STEPS)
            found |= {
                "first/loss_scale": FIRST_SCALE * 2**num_doubled,
                "first/good_steps": num_good,
            }
        if s.norm:
            found |= {f"norm/moving_{name}": value for name, value in self.moving.items()}
        if s.counts:
            found |= {"seen_on_read": self.num_seen_by_replicas, "seen_on_write": self.num_seen}
            found["mean"] = self.mean
        found = found if s.custom_loop else {**found, "global_step": self.num_steps}
        return {name: np.array(value) for name, value in found.items()}

    def train(self, index: int) -> list[After]:
        """Make a run; what is so after each step, and at first before them all."""
        run = self.scenario.together(self.scenario.runs[index])
        if "warm" in run.begins:
            part = "kernel" if run.begins == "partly warm" else ""
            self._begin_anew({name: w for name, w in self.weights.items() if part in name})
        copies = [dict(self.moving) for _ in _sharing(run.topology)]
        history = [After(0.0, 0.0, self.values())]
        for step, (sizes, batch) in enumerate(_steps(run, self.scenario.examples(index))):
            if self.scenario.assigns and step == 1:
                self.rate_factor /= 2
            time = (0, step) if self.scenario.custom_loop else (self.num_steps, 0)
            loss = self._step(run.topology, sizes, batch, copies, time)
            self.num_seen += sum(sizes)
            self.mean = self._mean_of_means(run.topology, sizes, batch["x"])
            is_chiefs = run.topology.kind == "servers"
            self.num_seen_by_replicas += sum(sizes[: run.topology.replicas] if is_chiefs else sizes)
            if self.scenario.norm:
                read = copies[:1] if run.topology.kind == "servers" else copies
                self.moving = {name: np.mean([c[name] for c in read], 0) for name in self.moving}
            labels = history[-1].labels + batch["y"].sum()
            history.append(After(loss, labels, self.values()))
        return history

    def _mean_of_means(self, topology: Topology, sizes, x) -> float:
        """The mean over replicas of their means; servers weigh those of workers by examples.

        A replica without examples does not count; in a loop of the user's own it gives 0.
        """
        is_custom = self.scenario.custom_loop
        groups = topology.by_worker if topology.kind == "servers" else lambda values: [values]
        means = [part.mean() if len(part) else 0.0 for part in np.split(x, np.cumsum(sizes)[:-1])]
        counts = [1 if is_custom or n else 0 for n in sizes]
        pairs = zip(groups(means), groups(counts), strict=True)
        by_worker = [
            np.average(own, weights=weights) if any(weights) else 0.0 for own, weights in pairs
        ]
        weights = [1 if is_custom else sum(own) for own in groups(sizes)]
        return float(np.average(by_worker, weights=weights))

    def _step(self, topology, sizes, batch, copies, time) -> float:
        tensors = {name: Tensor(value, True) for name, value in self.weights.items()}
        replicas = list(enumerate(pairwise(np.cumsum([0, *sizes]).tolist())))
        loss, moments = self._loss(tensors, batch, self._parts(topology, replicas), replicas, time)
        for copy, sharing in zip(copies, _sharing(topology), strict=True):
            here = [found for members, found in moments if set(members) & set(sharing)]
            for name, old in copy.items() if here else ():
                copy[name] = MOMENTUM * old + (1 - MOMENTUM) * np.mean([m[name] for m in here], 0)
        self._update(loss, tensors, batch)
        return loss.item()

    def _parts(self, topology, replicas):
        """What is normalized together: replicas, and the examples from the first to the last."""
        if self.scenario.norm == "plain":
            together = [[replica] for replica, _ in replicas]
        elif topology.kind == "servers":
            together = _sharing(topology)
        else:
            together = [range(topology.num_replicas)]
        return [
            (members, replicas[members[0]][1][0], replicas[members[-1]][1][1])
            for members in together
        ]

    def _loss(self, tensors, batch, parts, replicas, time):
        """The loss, and the moments of each part of the batch that is normalized together."""
        s, moments = self.scenario, []
        h = np.tanh(batch["x"] @ tensors["hidden/kernel"] + tensors["hidden/bias"])
        if s.embedding:
            table = tensors["table/embeddings"]
            h = np.concatenate([h, np.eye(NUM_ROWS)[batch["row"]] @ table], axis=1)
        if s.sequences:
            h = np.concatenate([h, _last_outputs(tensors, batch["words"])], axis=1)
        if s.norm:
            normalized = []
            for members, start, stop in parts:
                if start == stop:
                    continue
                part = h[start:stop]
                mean = part.mean(axis=0)
                variance = np.square(part - mean).mean(axis=0)
                moments.append((members, {"mean": mean.numpy(), "variance": variance.numpy()}))
                normalized.append((part - mean) / np.sqrt(variance + EPSILON))
            h = np.concatenate(normalized) * tensors["norm/gamma"] + tensors["norm/beta"]
        if s.dropout:
            masks = [_mask(replica, time, (b - a, h.shape[1])) for replica, (a, b) in replicas]
            h = h * np.concatenate(masks)
        out = h @ tensors["out/kernel"] + tensors["out/bias"]
        for task in np.unique(batch["task"]) if s.heads else ():
            out = out + (batch["task"] == task)[:, None] * (h @ tensors[f"head_{task}"])
        if s.wide:
            out = out + _of_wide(batch["x"], tensors["wide"])
        loss = (np.square(out[:, 0] - batch["y"]) * _weights(s, batch)).mean()
        if s.embedding == "penalized":
            loss = loss + PENALTY * np.square(table).sum()
        return loss, moments

    def _update(self, loss, tensors, batch) -> None:
        s = self.scenario
        names = {id(tensor): name for name, tensor in tensors.items()}
        found = {}
        backward(loss, on_ready=lambda leaf, g: found.__setitem__(names[id(leaf)], _dense(g)))
        for optimizer in ("first", "second"):
            gradients = {n: g for n, g in found.items() if optimizer in self._optimizers_of(n)}
            if optimizer == "first":
                gradients = _clipped(gradients, s.clipping)
            for name, gradient in gradients.items():
                is_lazy = s.embedding == "lazy" and optimizer == "first"
                looked_up = _looked_up(name) if is_lazy else None
                rows = np.unique(batch[looked_up]) if looked_up else ...
                self._update_rows(optimizer, name, gradient, rows)
        self.num_steps += 1

    def _update_rows(self, optimizer, name, gradient, rows) -> None:
        rule, is_second = self._rule_of(optimizer), optimizer == "second"
        slots = [self.slots[f"{optimizer}/{name}/{slot}"] for slot in RULE_SLOTS[rule]]
        rate = self.rate_factor * learning_rate(self.scenario, self.num_steps)
        value, changed = updated(
            rule,
            self.weights[name][rows],
            gradient[rows] * (2.0 if is_second else 1.0),
            [slot[rows] for slot in slots],
            SECOND_RATE if is_second else rate,
            self.num_steps + 1,
        )
        self.weights[name] = self.weights[name].copy()
        self.weights[name][rows] = value
        for slot, new in zip(slots, changed, strict=True):
            slot[rows] = new
        if self.scenario.constrained and name == "hidden/kernel":
            norms = np.sqrt(np.square(self.weights[name]).sum(axis=0))
            self.weights[name] *= np.minimum(norms, MAX_NORM) / (norms + 1e-7)

    def evaluate(self, index: int) -> dict[str, float]:
        """The loss and the metrics over all examples of a run; -1: of the evaluation."""
        s = self.scenario
        batch = s.examples(index)
        found = self.predicted(batch)
        squares = np.square(found - batch["y"])
        loss = (squares * _weights(s, batch)).mean()
        if s.embedding == "penalized":
            loss += PENALTY * np.square(self.weights["table/embeddings"]).sum()
        results = {"loss": loss, "global_step": self.num_steps}
        if s.metrics:
            results |= {"mse": squares.mean(), "mean": batch["y"].mean(), "sum": batch["y"].sum()}
        return results

    def predicted(self, batch):
        s, w = self.scenario, self.weights
        h = np.tanh(batch["x"] @ w["hidden/kernel"] + w["hidden/bias"])
        if s.embedding:
            h = np.concatenate([h, w["table/embeddings"][batch["row"]]], axis=1)
        if s.sequences:
            tensors = {name: Tensor(value) for name, value in w.items()}
            h = np.concatenate([h, _last_outputs(tensors, batch["words"]).numpy()], axis=1)
        if s.norm:
            h = (h - self.moving["mean"]) / np.sqrt(self.moving["variance"] + EPSILON)
            h = h * w["norm/gamma"] + w["norm/beta"]
        out = (h @ w["out/kernel"] + w["out/bias"])[:, 0]
        if s.heads:
            heads = np.concatenate([h @ w[f"head_{t}"] for t in range(NUM_TASKS)], axis=1)
            out = out + heads[np.arange(len(out)), batch["task"]]
        if s.wide:
            out = out + _of_wide(batch["x"], w["wide"])[:, 0]
        return out


def _last_outputs(tensors, words):
    """The LSTM of Hochreiter and Schmidhuber over the words that there are."""
    h = c = np.zeros((len(words), WIDTH_OF_CELLS))
    for place in range(NUM_PLACES):
        x = np.eye(NUM_WORDS)[words[:, place]] @ tensors["words/embeddings"]
        gates = x @ tensors["cells/kernel"] + h @ tensors["cells/recurrent_kernel"]
        parts = np.split(gates + tensors["cells/bias"], 4, axis=1)
        put_in, kept, shown = (1 / (1 + np.exp(-parts[i])) for i in (0, 1, 3))
        new = kept * c + put_in * np.tanh(parts[2])
        is_word = (words[:, place] > 0)[:, None]
        h, c = is_word * shown * np.tanh(new) + (1 - is_word) * h, is_word * new + (1 - is_word) * c
    return h


def _of_wide(x, wide):
    return np.tanh(x @ wide).sum(axis=1, keepdims=True) / np.sqrt(WIDTH_OF_WIDE)


def _looked_up(name):
    """The feature by which a variable's rows are looked up."""
    return {"table/embeddings": "row", "words/embeddings": "words"}.get(name)


def _weights(s: Scenario, batch):
    return batch["weight"] if s.weighted else 1.0


def _steps(run: Run, examples):
    """The sizes and the global batch of each step that has examples."""
    start = 0
    for sizes in run.steps:
        stop = start + sum(sizes)
        if stop > start:
            yield sizes, {k: v[start:stop] for k, v in examples.items()}
        start = stop


def _sharing(topology: Topology) -> list[list[int]]:
    """The replicas that have one copy of the moving moments together."""
    size = topology.replicas if topology.shares_copies else 1
    return [list(range(i, i + size)) for i in range(0, topology.num_replicas, size)]


def _mask(replica, time, shape):
    """What dropout with rate 1/2 multiplies the examples of a replica by."""
    key = [DROPOUT_SEED, zlib.crc32(b"dropout"), replica, *time]
    return 2.0 * (np.random.default_rng(key).random(shape, np.float32) >= 0.5)


def _dense(gradient):
    return gradient.to_dense() if isinstance(gradient, IndexedSlices) else np.array(gradient)


def _clipped(gradients, clipping):
    if clipping is None:
        return gradients
    if clipping == "clipvalue":
        return {name: np.clip(g, -CLIP, CLIP) for name, g in gradients.items()}
    norms = {name: np.sqrt(np.square(g).sum()) for name, g in gradients.items()}
    if clipping == "global_clipnorm":
        norms = dict.fromkeys(norms, np.sqrt(sum(norm**2 for norm in norms.values())))
    return {name: g * min(1.0, CLIP / (norms[name] or 1.0)) for name, g in gradients.items()}
