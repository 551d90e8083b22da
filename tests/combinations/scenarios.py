"""`Scenario`: a small model, its optimizers, and the runs that train it, as one plain value.

A scenario prints as one line, which can be pasted into `hunt.py --replay`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields, replace

import numpy as np
from hypothesis import strategies as st

NUM_FEATURES, NUM_ROWS, NUM_TASKS = 3, 5, 2

KINDS = ("default", "one device", "mirrored", "central storage", "workers", "servers")
WEIGHTED_KINDS = (*KINDS[:2], *KINDS[2:4] * 3, *("workers", "servers") * 4)
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw", "adagrad", "rmsprop", "ftrl")
CLIPPING = (None, "clipnorm", "clipvalue", "global_clipnorm")
EMBEDDINGS = (None, "sparse", "dense", "penalized")
NORMS = (None, "plain", "synchronized")


@dataclass(frozen=True)
class Topology:
    """A strategy and its size.

    Args:
        kind: One of `KINDS`; "servers" are parameter servers that keep their workers in step.
        workers, replicas: How many workers, and replicas of each.
    """

    kind: str
    workers: int = 1
    replicas: int = 1

    @property
    def num_replicas(self) -> int:
        return self.workers * self.replicas

    @property
    def shares_copies(self) -> bool:
        """Whether the replicas of a worker have one copy of each variable together."""
        return self.kind in ("central storage", "servers")


@dataclass(frozen=True)
class Run:
    """One run of training, or of evaluation.

    Args:
        topology: Where.
        steps: For each step the number of examples of each replica of all workers.
        begins: "anew", "resumed" from the last run's checkpoint, or "warm", a new model that
            begins with the last one's weights.
    """

    topology: Topology
    steps: tuple[tuple[int, ...], ...]
    begins: str = "anew"

    @property
    def num_examples(self) -> int:
        return sum(map(sum, self.steps))

    @property
    def is_valid(self) -> bool:
        """Whether each worker can build the model in its first step, and no step is empty.

        Workers that meet at parameter servers end with their first step without an example.
        """
        by_worker = [self.by_worker(step) for step in self.steps]
        every = by_worker if self.topology.kind == "servers" else by_worker[:1]
        return all(all(map(any, step)) for step in every) and all(map(any, self.steps))

    def by_worker(self, step: tuple[int, ...]) -> list[tuple[int, ...]]:
        size = self.topology.replicas
        return [step[i : i + size] for i in range(0, len(step), size)]


@dataclass(frozen=True)
class Scenario:
    """What is trained, how, and where.

    Args:
        seed: Of the examples.
        runs: One after another.
        evaluation: How the last checkpoint is evaluated, if at all.
        custom_loop: Whether the loop is the user's, with `apply_gradients`; then there is one run.
        optimizer, clipping, decays: The rule, how gradients are kept within bounds, and whether
            the learning rate has a schedule.
        second_optimizer: Whether the last layers have an optimizer and a loss of their own.
        embedding: How rows of a table are read: "sparse" has a gradient of the rows that were
            read, "dense" one of the whole table, "penalized" both.
        heads: Whether the model takes a branch for each task of which its batch has examples.
        unused: Whether there is a variable on which the loss does not depend.
        norm: Batch normalization.
        dropout, metrics: Whether there are such.
    """

    seed: int
    runs: tuple[Run, ...]
    evaluation: Run | None = None
    custom_loop: bool = False
    optimizer: str = "sgd"
    clipping: str | None = None
    decays: bool = False
    second_optimizer: bool = False
    embedding: str | None = None
    heads: bool = False
    unused: bool = False
    norm: str | None = None
    dropout: bool = False
    metrics: bool = False

    @property
    def all_runs(self) -> tuple[Run, ...]:
        return (*self.runs, *([self.evaluation] if self.evaluation else []))

    @property
    def depends_on_dealing(self) -> bool:
        """Whether it matters, by definition, which replica has which examples."""
        return self.norm == "plain" or self.dropout

    def examples(self, run_index: int) -> dict[str, np.ndarray]:
        """The examples of a run in the order of steps and, within a step, of replicas.

        With -1 those of the evaluation. Tasks come in streaks, so that many batches have one only.
        """
        run = self.evaluation if run_index < 0 else self.runs[run_index]
        rng = np.random.default_rng([self.seed, run_index + 1])
        n = run.num_examples
        x = rng.normal(size=(n, NUM_FEATURES))
        return {
            "x": x,
            "row": rng.integers(0, NUM_ROWS, n),
            "task": np.repeat(rng.integers(0, NUM_TASKS, n), rng.integers(1, 6, n))[:n],
            "y": np.sin(x.sum(axis=1)) + rng.normal(size=n),
        }


def initial_value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """What a weight of this name begins with."""
    return np.random.default_rng(zlib.crc32(name.encode())).normal(0.0, 0.5, shape)


def topologies(kinds: tuple[str, ...] = KINDS) -> st.SearchStrategy[Topology]:
    counts = st.integers(1, 3)
    sizes = {
        "default": st.just((1, 1)),
        "one device": st.just((1, 1)),
        "mirrored": st.tuples(st.just(1), counts),
        "central storage": st.tuples(st.just(1), counts),
        "workers": st.tuples(counts, counts),
        "servers": st.tuples(counts, st.integers(1, 2)),
    }
    return st.sampled_from(kinds).flatmap(lambda k: sizes[k].map(lambda size: Topology(k, *size)))


@st.composite
def runs(draw, topology: Topology, begins: str, num_steps: int) -> Run:
    """A run whose batches are uneven, and which may end at another step on each worker.

    Each worker has an example in its first step, from which it builds the model.
    """
    steps = []
    for index in range(num_steps):
        least = 1 if index == 0 or topology.kind == "servers" else 0
        sizes = st.lists(st.integers(0, 3), min_size=topology.replicas, max_size=topology.replicas)
        own = [draw(sizes.filter(lambda s, n=least: sum(s) >= n)) for _ in range(topology.workers)]
        step = tuple(n for worker in own for n in worker)
        steps.append(step if any(step) else (1, *step[1:]))
    return Run(topology, tuple(steps), begins)


@st.composite
def scenarios(draw, excluded=lambda scenario: False) -> Scenario:
    """Any scenario that is not `excluded`."""
    custom_loop = draw(st.booleans().map(lambda b: b and draw(st.booleans())))
    kinds = tuple(k for k in WEIGHTED_KINDS if not custom_loop or k != "servers")
    num_runs = 1 if custom_loop else draw(st.sampled_from((1, 1, 2, 2, 3)))
    begins = ["anew", *[draw(st.sampled_from(("resumed", "resumed", "warm"))) for _ in range(2)]]
    all_runs = tuple(
        draw(runs(draw(topologies(kinds)), begins[i], draw(st.integers(1, 4))))
        for i in range(num_runs)
    )
    evaluation = None
    if not custom_loop and draw(st.booleans()):
        evaluation = draw(runs(draw(topologies(KINDS[:-1])), "resumed", draw(st.integers(1, 3))))
    flag = st.booleans()
    scenario = Scenario(
        seed=draw(st.integers(0, 2**31)),
        runs=all_runs,
        evaluation=evaluation,
        custom_loop=custom_loop,
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        clipping=draw(st.sampled_from(CLIPPING)),
        decays=draw(flag),
        second_optimizer=draw(flag),
        embedding=draw(st.sampled_from(EMBEDDINGS)),
        heads=draw(flag),
        unused=draw(flag),
        norm=draw(st.sampled_from(NORMS)),
        dropout=draw(flag),
        metrics=not custom_loop and draw(flag),
    )
    return without_excluded(scenario, excluded)


def without_excluded(scenario: Scenario, excluded) -> Scenario:
    """The scenario, made simpler until it is not excluded."""
    if not excluded(scenario):
        return scenario
    for simpler in simpler_scenarios(scenario):
        if not excluded(simpler):
            return simpler
    first = next(simpler_scenarios(scenario))
    return without_excluded(first, excluded)


def simpler_scenarios(scenario: Scenario):
    """Scenarios that have one thing less."""
    return (s for s in _simpler_scenarios(scenario) if all(r.is_valid for r in s.all_runs))


def _simpler_scenarios(scenario: Scenario):
    defaults = {f.name: f.default for f in fields(Scenario) if f.name not in ("seed", "runs")}
    for name, default in defaults.items():
        if getattr(scenario, name) != default:
            yield replace(scenario, **{name: default})
    if len(scenario.runs) > 1:
        yield replace(scenario, runs=scenario.runs[:-1])
        yield replace(scenario, runs=(replace(scenario.runs[1], begins="anew"), *scenario.runs[2:]))
    for index, run in enumerate(scenario.runs):
        for simpler in simpler_runs(run):
            changed = (*scenario.runs[:index], simpler, *scenario.runs[index + 1 :])
            yield replace(scenario, runs=changed)
    if scenario.evaluation:
        for simpler in simpler_runs(scenario.evaluation):
            yield replace(scenario, evaluation=simpler)


def simpler_runs(run: Run):
    """Runs that have a step, a worker or a replica less, or a simpler strategy."""
    top = run.topology
    if len(run.steps) > 1:
        yield replace(run, steps=run.steps[:-1])
        yield replace(run, steps=run.steps[1:])
    if top.workers > 1:
        smaller = replace(top, workers=top.workers - 1)
        yield Run(smaller, tuple(s[: smaller.num_replicas] for s in run.steps), run.begins)
    if top.replicas > 1:
        keep = [i for i in range(top.num_replicas) if i % top.replicas]
        smaller = replace(top, replicas=top.replicas - 1)
        yield Run(smaller, tuple(tuple(s[i] for i in keep) for s in run.steps), run.begins)
    if top.workers == 1 and top.kind in ("workers", "servers", "central storage"):
        yield replace(run, topology=replace(top, kind="mirrored"))
    if any(n > 1 for step in run.steps for n in step):
        yield replace(run, steps=tuple(tuple(min(n, 1) for n in s) for s in run.steps))


def _has_empty(scenario: Scenario, *kinds: str) -> bool:
    """Whether, under one of these strategies, a replica among several has no examples."""
    return any(
        run.topology.kind in kinds
        and run.topology.num_replicas > 1
        and any(0 in step for step in run.steps)
        for run in scenario.all_runs
    )


def _has_unused(scenario: Scenario) -> bool:
    """Whether a variable may have no gradient, and its rule changes something nevertheless."""
    is_harmless = scenario.optimizer in ("sgd", "adagrad")
    of_heads = scenario.heads and (scenario.second_optimizer or not is_harmless)
    return of_heads or (scenario.unused and not is_harmless)


def _several_workers(scenario: Scenario) -> list[Run]:
    return [r for r in scenario.runs if r.topology.kind == "workers" and r.topology.workers > 1]


def _several_servers(scenario: Scenario) -> bool:
    return any(r.topology.kind == "servers" and r.topology.workers > 1 for r in scenario.runs)


KNOWN = {
    "no gradient": _has_unused,
    "order of gradients": lambda s: s.heads and bool(_several_workers(s)),
    "resumed dropout": lambda s: s.dropout and any(r.begins == "resumed" for r in s.runs),
    "empty replica, synchronized": lambda s: (
        s.norm == "synchronized"
        and _has_empty(s, "mirrored", "workers", "central storage", "servers")
    ),
    "empty replica, one copy": lambda s: (
        (s.norm is not None or s.metrics) and _has_empty(s, "central storage", "servers")
    ),
    "empty batch, custom loop": lambda s: (
        s.custom_loop and s.norm is not None and any(0 in step for step in s.runs[0].steps)
    ),
    "empty worker, evaluation": lambda s: (
        bool(s.evaluation)
        and not all(all(map(any, s.evaluation.by_worker(step))) for step in s.evaluation.steps)
    ),
    "servers, clipping": lambda s: bool(s.clipping) and _several_servers(s),
    "servers, dropout": lambda s: s.dropout and _several_servers(s),
    "empty replica, first step": lambda s: any(0 in r.steps[0] for r in _several_workers(s)),
}
"""What is known to be wrong still, and which scenarios show it."""


def excluded(scenario: Scenario) -> bool:
    """Whether a scenario has something that is known to be wrong still."""
    return any(shows(scenario) for shows in KNOWN.values())
