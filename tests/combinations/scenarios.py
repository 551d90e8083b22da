"""`Scenario`: a small model, its optimizers, and the runs that train it, as one plain value.

A scenario prints as one line, which can be pasted into `hunt.py --replay`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain, zip_longest
from random import Random

import numpy as np

NUM_FEATURES, NUM_ROWS, NUM_TASKS = 3, 5, 2
NUM_WORDS, NUM_PLACES = 5, 3  # of a sentence; word 0 is none

KINDS = ("default", "one device", "mirrored", "central storage", "workers", "servers")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw", "adagrad", "rmsprop", "ftrl")
CLIPPING = (None, None, "clipnorm", "clipvalue", "global_clipnorm")
EMBEDDINGS = (None, "sparse", "lazy", "dense", "penalized")
NORMS = (None, None, "plain", "synchronized")
SCHEDULES = (None, None, None, "exponential", "piecewise", "warm-up")
PARTITIONERS = (None, None, "halves", "thirds", "at most 48 bytes", "at least 48 bytes")
BEGINS = ("resumed", "resumed", "interrupted", "warm", "partly warm")
ENDS = ("data", "data", "steps", "request", "early stop", "figure")
LOOPS = ("estimator",) * 6 + ("dealt", "global", "fit") * 2
NOT_IN_FIT = {
    "second_optimizer": False,
    "has_all_weights": False,
    "heads": False,
    "unused": False,
    "counts": False,
    "dropout": False,
    "metrics": False,
    "wide": False,
    "keeps_layers": False,
    "replays": False,
    "accumulates": 1,
}


@dataclass(frozen=True)
class Topology:
    """A strategy and its size.

    Args:
        kind: One of `KINDS`; "servers" are parameter servers that keep their workers in step.
        workers, replicas: How many workers, and replicas of each.
        is_cut: Whether arrays go the less usual way: gradients between workers in many small packs,
            or over devices in groups; checkpoints in a part of each worker or server.
        partitioner: How parameter servers divide variables among them, one of `PARTITIONERS`.
    """

    kind: str
    workers: int = 1
    replicas: int = 1
    is_cut: bool = False
    partitioner: str | None = None

    @property
    def num_replicas(self) -> int:
        return self.workers * self.replicas

    @property
    def shares_copies(self) -> bool:
        """Whether the replicas of a worker have one copy of each variable together."""
        return self.kind in ("central storage", "servers")

    def by_worker(self, step: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [step[i : i + self.replicas] for i in range(0, len(step), self.replicas)]


@dataclass(frozen=True)
class Run:
    """One run of training, or of evaluation.

    Args:
        topology: Where.
        steps: For each step the number of examples of each replica of all workers.
        begins: "anew"; "resumed" from the last run's checkpoint; "interrupted", the same where the
            last run was killed and this one goes on with its input; "warm", a new model that begins
            with the last one's weights, or "partly warm", with its kernels only.
        ends: With its "data"; or these go on, and it ends with the number of "steps" that was asked
            for, at the "request" of a hook of the last worker, or with an "early stop" that the
            chief decides on: by the number of its steps, or by a "figure" of the evaluation of the
            last step but one.
        saves: Whether each step is saved.
        evaluates: Whether the workers evaluate on the same data where they save, and at the end.
    """

    topology: Topology
    steps: tuple[tuple[int, ...], ...]
    begins: str = "anew"
    ends: str = "data"
    saves: bool = False
    evaluates: bool = False

    @property
    def has_figures(self) -> bool:
        """Whether each step is evaluated, so that it can be stopped by what one has found."""
        return self.saves and self.evaluates and self.topology.kind != "servers"

    @property
    def num_examples(self) -> int:
        return sum(map(sum, self.steps))

    @property
    def has_empty_replica(self) -> bool:
        return any(0 in step for step in self.steps)

    @property
    def is_valid(self) -> bool:
        """Whether there are examples in the last step, and each worker has one in some step."""
        by_worker = zip(*map(self.topology.by_worker, self.steps), strict=True)
        return any(self.steps[-1]) and all(any(map(any, own)) for own in by_worker)

    @property
    def leaves_out_a_worker(self) -> bool:
        """Whether a worker at parameter servers has no example in a step that others make."""
        by_worker = [self.topology.by_worker(step) for step in self.steps]
        return self.is_apart and not all(all(map(any, step)) for step in by_worker)

    @property
    def is_apart(self) -> bool:
        """Whether there are workers that do not know of each other within a step.

        They must not clip parts of a mean.
        """
        return self.topology.kind == "servers" and self.topology.workers > 1

    @property
    def num_steps(self) -> int:
        """How many steps have an example; the others are passed over."""
        return sum(map(any, self.steps))

    @property
    def num_steps_of_chief(self) -> int:
        """How many of them the chief makes: its data may end first, where workers are apart."""
        if not self.is_apart:
            return self.num_steps
        has_data = [any(self.topology.by_worker(step)[0]) for step in self.steps]
        end = len(has_data) - has_data[::-1].index(True)
        return sum(map(any, self.steps[:end]))


@dataclass(frozen=True)
class Scenario:
    """What is trained, how, and where.

    Args:
        seed: Of the examples.
        runs: One after another.
        evaluation: How the last checkpoint is evaluated, and used for predictions, if at all.
        loop: "estimator"; or the user's own, with `apply_gradients`, over batches that are "dealt"
            out to replicas, or over "global" ones that the strategy divides; or `Model.fit` over
            such. Then there is one run.
        optimizer, clipping, schedule: The rule, how gradients are kept within bounds, and how the
            learning rate changes with the number of updates.
        second_optimizer: Whether the last layers have an optimizer and a loss of their own; if it
            `has_all_weights` it changes those of the first one, too, after that.
        embedding: How rows of a table are read: "sparse" has a gradient of the rows that were
            read, "lazy" too, and the optimizer passes over the others; "dense" has one of the whole
            table, "penalized" both.
        weighted: Whether examples have weights, and a `RegressionHead` makes the loss of them.
        heads: Whether the model takes a branch for each task of which its batch has examples.
        unused: Whether there is a variable on which the loss does not depend.
        counts: Whether the model counts its examples, and takes a mean, in variables of its own.
        norm: Batch normalization.
        dropout, metrics: Whether there are such.
        accumulates: How many batches of each replica make a step; see `together`.
        is_mixed: Whether the last layer computes in float32.
        sequences: Whether there are sentences of uneven lengths, none among them: masks, an LSTM.
        constrained: Whether the hidden kernel's columns are held to a norm.
        scaled: Whether the first optimizer's loss is multiplied by a scale, which grows.
        replays: Whether `model_fn` is called for the first batches of a shape only.
        wide: Whether a weight has more gradients than workers send through links.
        assigns: Whether hooks halve the first optimizer's learning rate behind the first of several
            steps of a run, which the next run goes on with.
        keeps_layers: Whether a worker's layers and optimizers are made once for all runs, outside
            of `model_fn`.
    """

    seed: int
    runs: tuple[Run, ...]
    evaluation: Run | None = None
    loop: str = "estimator"
    optimizer: str = "sgd"
    clipping: str | None = None
    schedule: str | None = None
    second_optimizer: bool = False
    has_all_weights: bool = False
    embedding: str | None = None
    weighted: bool = False
    heads: bool = False
    unused: bool = False
    counts: bool = False
    norm: str | None = None
    dropout: bool = False
    metrics: bool = False
    accumulates: int = 1
    is_mixed: bool = False
    keeps_layers: bool = False
    sequences: bool = False
    constrained: bool = False
    scaled: bool = False
    replays: bool = False
    wide: bool = False
    assigns: bool = False

    def together(self, run: Run) -> Run:
        """The run with one batch for each step, of the examples of all batches of the step."""
        size = self.accumulates
        groups = [run.steps[i : i + size] for i in range(0, len(run.steps), size)]
        return replace(run, steps=tuple(tuple(map(sum, zip(*g, strict=True))) for g in groups))

    @property
    def custom_loop(self) -> bool:
        return self.loop != "estimator"

    @property
    def depends_on_dealing(self) -> bool:
        """Whether it matters, by definition, which replica has which examples."""
        return self.norm == "plain" or self.dropout

    @property
    def can_be_fitted(self) -> bool:
        """Whether `Model.fit` has all of it, and can deal the first batch out to all replicas."""
        (run, *_), top = self.runs, self.runs[0].topology
        return (
            all(getattr(self, name) == value for name, value in NOT_IN_FIT.items())
            and self.embedding not in ("dense", "penalized")
            and sum(run.steps[0]) >= top.num_replicas
        )

    @property
    def all_runs(self) -> tuple[Run, ...]:
        return (*self.runs, *([self.evaluation] if self.evaluation else []))

    @property
    def is_valid(self) -> bool:
        """Whether it can be carried out: who goes on with an input has the same workers."""
        first, *later = self.runs
        pairs = zip(self.runs, later, strict=False)
        for_estimators = later or self.evaluation or self.metrics or first.evaluates
        return (
            all(run.is_valid for run in self.all_runs)
            and first.begins == "anew"
            and all(a.topology == b.topology for a, b in pairs if b.begins == "interrupted")
            and not (self.custom_loop and (for_estimators or self.keeps_layers))
            and not (self.custom_loop and first.num_steps < len(first.steps))
            and not (self.custom_loop and first.leaves_out_a_worker)
            # What is by replica and batch, or by call, is not that of one large batch.
            and not (self.accumulates > 1 and (self.custom_loop or self.depends_on_dealing))
            and not (self.accumulates > 1 and (self.norm or self.counts))
            and all(
                len(run.steps) % self.accumulates == 0
                for run, after in zip_longest(self.runs, self.runs[1:])
                # Whose data go on would fill up its last step with them.
                if run.ends != "data" or (after and after.begins == "interrupted")
            )
            and not (self.loop in ("global", "fit") and self.depends_on_dealing)
            and (self.loop != "fit" or self.can_be_fitted)
            and all(
                run.has_figures and self.together(run).num_steps > 1
                for run in self.runs
                if run.ends == "figure"
            )
            # There a worker has statistics and counts of its own, of the part that it is given.
            and not (self.loop in ("global", "fit") and first.is_apart and self.norm)
            and not (self.loop == "global" and self.counts)
            and not (self.clipping and any(run.is_apart for run in self.runs))
            # It looks at the tasks of its examples.
            and not (self.replays and (self.custom_loop or self.heads))
            and (self.second_optimizer or not self.has_all_weights)
            # Servers refuse to change a variable twice in one step.
            and not (self.has_all_weights and any(r.topology.kind == "servers" for r in self.runs))
            # Of several servers each would hold a part of a variable to it; they refuse.
            and not (self.constrained and any(r.topology.kind == "servers" for r in self.runs))
            # Workers at servers would not agree on a scale; they refuse. Own loops scale by hand.
            and not (self.scaled and self.loop in ("dealt", "global"))
            and not (self.scaled and any(r.is_apart for r in self.runs))
            and not (self.is_mixed and self.norm)  # a batch of one has gradients of zero there
            # A schedule is not assigned to; what is kept goes on with it also as a new model.
            and not (self.assigns and (self.custom_loop or self.schedule or self.keeps_layers))
        )

    def of_one_input(self, index: int) -> range:
        """The runs that share the input of run `index`, because each was interrupted."""
        first, last = index, index + 1
        while self.runs[first].begins == "interrupted":
            first -= 1
        while last < len(self.runs) and self.runs[last].begins == "interrupted":
            last += 1
        return range(first, last)

    def examples(self, index: int) -> dict[str, np.ndarray]:
        """The examples of a run in the order of steps and, within a step, of replicas.

        With -1 those of the evaluation. Tasks come in streaks, so that many batches have one only.
        """
        run = self.evaluation if index < 0 else self.runs[index]
        rng = np.random.default_rng([self.seed, index + 1])
        n = run.num_examples
        x = rng.normal(size=(n, NUM_FEATURES))
        return {
            "x": x,
            "row": rng.integers(0, NUM_ROWS, n),
            "task": np.repeat(rng.integers(0, NUM_TASKS, n), rng.integers(1, 6, n))[:n],
            "y": np.sin(x.sum(axis=1)) + rng.normal(size=n),
            "weight": rng.uniform(0.5, 3.0, n),
            "words": _sentences(rng, n),
        }


def _sentences(rng: np.random.Generator, num: int) -> np.ndarray:
    """Words, with holes where masks leave something out; some sentences have none."""
    words = rng.integers(1, NUM_WORDS, (num, NUM_PLACES))
    return np.where(rng.random((num, NUM_PLACES)) < 0.6, words, 0)


def initial_value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """What a weight of this name begins with."""
    return np.random.default_rng(zlib.crc32(name.encode())).normal(0.0, 0.5, shape)


def scenario_of(seed: int) -> Scenario:
    """The scenario of that number: any that is valid."""
    random = Random(seed)
    drawn = (_scenario(random) for _ in iter(int, 1))
    return next(s for s in drawn if s.is_valid)


def replayed(scenario: Scenario) -> Scenario:
    """The same for an Estimator, with as many steps of each size as are needed to replay some."""
    runs = tuple(
        replace(r, steps=tuple(s for s in r.steps for _ in range(4))) for r in scenario.runs
    )
    changed = replace(scenario, loop="estimator", runs=runs, replays=True, heads=False)
    return changed if changed.is_valid else replace(changed, runs=runs[:1], clipping=None)


def interrupted(scenario: Scenario) -> Scenario:
    """The same with dropout for an Estimator, killed twice and gone on with in the same layout.

    Moving means are kept equal on all replicas: those of which each has its own become their mean
    in a checkpoint, so that what is added up later is rounded elsewhere.
    """
    first, size = scenario.runs[0], scenario.accumulates
    once = replace(first, steps=first.steps * size, ends="data", evaluates=False)
    again = replace(once, begins="interrupted")
    return replace(
        scenario,
        runs=(once, again, again),
        evaluation=None,
        loop="estimator",
        dropout=True,
        norm=scenario.norm and "synchronized",
        assigns=False,
        clipping=None if first.is_apart else scenario.clipping,
    )


def _scenario(random: Random) -> Scenario:
    loop = random.choice(LOOPS)
    custom_loop = loop != "estimator"
    runs = [_run(random, _topology(random, KINDS), "anew")]
    for _ in range(0 if custom_loop else random.randrange(3)):
        begins = random.choice(BEGINS)
        same = begins == "interrupted" or random.random() < 0.3
        topology = runs[-1].topology if same else _topology(random, KINDS)
        runs.append(_run(random, topology, begins))
    evaluated = not custom_loop and random.random() < 0.4
    flags = (
        "second_optimizer",
        "has_all_weights",
        "heads",
        "unused",
        "counts",
        "dropout",
        "metrics",
    )
    scenario = Scenario(
        seed=random.randrange(10**6),
        runs=tuple(runs),
        evaluation=_run(random, _topology(random, KINDS[:-1]), "resumed") if evaluated else None,
        loop=loop,
        accumulates=random.choice((1, 1, 1, 1, 2, 3)),
        is_mixed=random.random() < 0.15,
        keeps_layers=random.random() < 0.2,
        optimizer=random.choice(OPTIMIZERS),
        clipping=random.choice(CLIPPING),
        embedding=random.choice(EMBEDDINGS),
        norm=random.choice(NORMS),
        schedule=random.choice(SCHEDULES),
        **{flag: random.random() < 0.35 for flag in flags},
        weighted=random.random() < 0.35,
        sequences=random.random() < 0.2,
        constrained=random.random() < 0.2,
        scaled=random.random() < 0.2,
        wide=random.random() < 0.15,
        replays=random.random() < 0.3,
        assigns=random.random() < 0.2,
    )
    return replace(scenario, **NOT_IN_FIT) if loop == "fit" else scenario


def _topology(random: Random, kinds: tuple[str, ...]) -> Topology:
    """Any; those with most ways to go wrong most often."""
    kind = random.choices(kinds, (1, 1, 3, 3, 5, 4)[: len(kinds)])[0]
    most_workers = 3 if kind in ("workers", "servers") else 1
    most_replicas = 1 if kind in ("default", "one device") else 3
    size = random.randint(1, most_workers), random.randint(1, most_replicas)
    is_cut = most_replicas > 1 and random.random() < 0.3
    partitioner = random.choice(PARTITIONERS) if kind == "servers" else None
    return Topology(kind, *size, is_cut, partitioner)


def _run(random: Random, topology: Topology, begins: str) -> Run:
    """A run whose batches are uneven, and which may end at another step on each worker."""
    share_of_empty = random.choice((0.0, 0.1, 0.4))
    steps = tuple(
        tuple(
            0 if random.random() < share_of_empty else random.randint(1, 3)
            for _ in range(topology.num_replicas)
        )
        for _ in range(random.randint(1, 4))
    )
    evaluates = topology.kind != "servers" and random.random() < 0.2
    run = Run(topology, steps, begins, random.choice(ENDS), random.random() < 0.3, evaluates)
    return replace(run, saves=True, evaluates=True) if run.ends == "figure" else run


def simpler_scenarios(scenario: Scenario) -> Iterator[Scenario]:
    """Valid scenarios that have one thing less."""
    ways = chain(_with_fewer_features(scenario), _with_fewer_runs(scenario))
    return (simpler for simpler in ways if simpler.is_valid)


def _with_fewer_features(scenario: Scenario) -> Iterator[Scenario]:
    for field in fields(Scenario):
        if field.name not in ("seed", "runs") and getattr(scenario, field.name) != field.default:
            yield replace(scenario, **{field.name: field.default})


def _with_fewer_runs(scenario: Scenario) -> Iterator[Scenario]:
    runs = scenario.runs
    if len(runs) > 1:
        yield replace(scenario, runs=runs[:-1])
        yield replace(scenario, runs=(replace(runs[1], begins="anew"), *runs[2:]))
    for index, run in enumerate(runs):
        for simpler in simpler_runs(run):
            yield replace(scenario, runs=(*runs[:index], simpler, *runs[index + 1 :]))
            yield replace(scenario, runs=tuple(_resized(r, simpler.topology) for r in runs))
    for simpler in simpler_runs(scenario.evaluation) if scenario.evaluation else ():
        yield replace(scenario, evaluation=simpler)


def simpler_runs(run: Run) -> Iterator[Run]:
    """Runs that have a step, a worker or a replica less, or a simpler strategy."""
    top = run.topology
    for name, usual in (("saves", False), ("evaluates", False), ("ends", "data")):
        if getattr(run, name) != usual:
            yield replace(run, **{name: usual})
    if run.begins == "interrupted":
        yield replace(run, begins="resumed")
    if len(run.steps) > 1:
        yield replace(run, steps=run.steps[:-1])
        yield replace(run, steps=run.steps[1:])
    if top.is_cut:
        yield replace(run, topology=replace(top, is_cut=False))
    if top.partitioner:
        yield replace(run, topology=replace(top, partitioner=None))
    for smaller in ("workers", "replicas"):
        if getattr(top, smaller) > 1:
            yield _resized(run, replace(top, **{smaller: getattr(top, smaller) - 1}))
    if top.workers == 1 and top.kind not in ("mirrored", "default", "one device"):
        yield replace(run, topology=replace(top, kind="mirrored", partitioner=None))
    if any(n > 1 for step in run.steps for n in step):
        yield replace(run, steps=tuple(tuple(min(n, 1) for n in s) for s in run.steps))


def _resized(run: Run, topology: Topology) -> Run:
    """The run with the first replicas of the first workers, or with more of one example each."""
    old = run.topology

    def resized(step: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            step[w * old.replicas + r] if w < old.workers and r < old.replicas else 1
            for w in range(topology.workers)
            for r in range(topology.replicas)
        )

    return replace(run, topology=topology, steps=tuple(map(resized, run.steps)))
