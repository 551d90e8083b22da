"""A scenario as the library carries it out: `check(scenario, directory)`."""

from __future__ import annotations

import contextvars
import importlib.util
import itertools
import sys
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reference import (
    CLIP,
    DROPOUT_SEED,
    EPSILON,
    FIRST_SCALE,
    GROWTH_STEPS,
    LEARNING_RATE,
    MAX_NORM,
    MOMENTUM,
    PENALTY,
    SECOND_RATE,
    WIDTH_OF_CELLS,
    WIDTH_OF_WIDE,
    Reference,
    is_of_second,
    trainable_shapes,
)
from scenarios import NUM_ROWS, NUM_TASKS, NUM_WORDS, Run, Scenario, Topology, initial_value

import paceline as pl
from paceline.estimator import RegressionHead, SessionRunHook
from paceline.estimator.saving import CheckpointShards
from paceline.nn import constraints, layers, metrics, optimizers
from paceline.nn.optimizers import schedules
from paceline.strategies import (
    FixedShardsPartitioner,
    HierarchicalCopyAllReduce,
    MaxSizePartitioner,
    MinSizePartitioner,
    VariableAggregation,
    VariableStore,
    VariableSynchronization,
    get_replica_context,
)

SECONDS = 20
FEATURES = ("x", "row", "task", "weight", "words")
BYTES_PER_PACK = 64


class KilledError(RuntimeError):
    """As by a kill."""


def _shared_helpers():
    """The tests' conftest.py: workers and parameter servers as threads."""
    name = "combinations_helpers"
    if name not in sys.modules:
        path = Path(__file__).parent.parent / "conftest.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def check(scenario: Scenario, directory: str | Path, expected_of: Scenario | None = None) -> None:
    """Carry a scenario out and compare it with the reference.

    Args:
        directory: For checkpoints.
        expected_of: What the reference computes, by default the same scenario.

    Raises:
        AssertionError: Something differs.
        Exception: What the library raises.
    """
    reference = Reference(expected_of or scenario)
    directory = model_dir = Path(directory)
    params = params_of(scenario)
    tolerance = NARROW if scenario.is_mixed else EXACT
    for index, run in enumerate(scenario.runs):
        expected = reference.train(index)
        if scenario.custom_loop:
            on_workers = (fitted if scenario.loop == "fit" else custom_loop)(scenario, run)
            # What each replica has for itself is read as a whole where workers meet.
            for found in on_workers[:1] if run.is_apart else on_workers:
                require_equal(found, expected[-1].values, **tolerance)
            return
        source = model_dir if "warm" in run.begins else None
        if run.begins not in ("resumed", "interrupted"):
            model_dir = directory / str(index)
        reports = train(scenario, index, model_dir, source, params)
        _require_history(scenario, run, reports, expected[1:], tolerance)
        saved = saved_in(model_dir)
        require_checkpoints(scenario.together(run), saved, expected, tolerance)
        _require_equal_copies(reports, saved[max(saved)])
        for report in reports if run.evaluates and not is_killed(scenario, index) else ():
            require_equal(report.evaluated, reference.evaluate(index), **NARROW)
    if scenario.evaluation:
        for found in evaluate(scenario, model_dir, params):
            require_equal(found, reference.evaluate(-1), **NARROW)
        examples = scenario.examples(-1)
        found = predict(scenario, model_dir, examples, params)
        require_equal({"": found}, {"": reference.predicted(examples)}, **tolerance)


def check_interrupted(scenario: Scenario, directory: str | Path) -> None:
    """Carry out runs that go on with each other's input, and a single one that is not interrupted.

    Raises:
        AssertionError: They do not end with the same checkpoint, to the bit.
        Exception: What the library raises.
    """
    parts, whole = Path(directory) / "parts", Path(directory) / "whole"
    params, last = params_of(scenario), len(scenario.runs) - 1
    assert scenario.of_one_input(last) == range(last + 1)
    for index in range(last + 1):
        train(scenario, index, parts, None, params)
    train(scenario, last, whole, None, params_of(scenario))  # it has the input of all
    found, expected = saved_in(parts), saved_in(whole)
    assert max(found) == max(expected)
    require_equal(found[max(found)], expected[max(expected)], rtol=0, atol=0)


EXACT, NARROW = {"rtol": 1e-8, "atol": 1e-11}, {"rtol": 1e-3, "atol": 1e-4}


def require_equal(found, expected, rtol, atol) -> None:
    """The same names, and the same values up to the rounding of sums."""
    assert set(found) == set(expected), f"names: {set(found) ^ set(expected)}"
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol, atol, err_msg=name)


def saved_in(model_dir: Path):
    """The checkpoints by step."""
    paths = pl.checkpoint.list_checkpoints(model_dir)
    return {step: pl.checkpoint.load(path).arrays() for path, step in paths}


def require_checkpoints(run: Run, saved, expected, tolerance) -> None:
    """There is a checkpoint of the last step, or of each, and each is right."""
    by_step = {int(after.values["global_step"]): after.values for after in expected}
    assert max(saved) == max(by_step)
    promised = list(by_step)[: 1 + run.num_steps_of_chief]
    assert not run.saves or set(saved) >= set(promised)
    for step in set(saved) & set(by_step):
        require_equal(saved[step], by_step[step], **tolerance)


def _require_history(scenario, run: Run, reports, expected, tolerance) -> None:
    """What each step was found to have cost, and what the metric has added up."""
    if run.topology.kind == "servers":  # each worker knows of its own part only
        return
    for report in reports:
        losses = {i: after.loss for i, after in enumerate(expected)}
        require_equal(dict(enumerate(report.losses)), losses, **tolerance)
        if scenario.metrics:
            labels = {i: after.labels for i, after in enumerate(expected)}
            require_equal(dict(enumerate(report.labels)), labels, **EXACT)


def _require_equal_copies(reports, saved) -> None:
    """Every copy of every variable on every worker is what was saved, to the bit."""
    for report in reports:
        for name, copies in report.copies.items():
            for copy in copies:
                np.testing.assert_array_equal(copy, saved[name], err_msg=f"copies of {name}")


class Report(SessionRunHook):
    """Notes what a worker sees of a run, and ends it after a step.

    Args:
        last_step: When; None does not end it.
        kills: Whether it ends with an exception, rather than in order.
        all_here: Where workers meet before that: the first to end takes the others with it, who
            might not have seen the step yet.
    """

    def __init__(
        self, scenario: Scenario, last_step: int | None, kills: bool, all_here: threading.Barrier
    ) -> None:
        self._fetches = {"loss": "loss"} | ({"labels": "labels/total"} if scenario.metrics else {})
        self._last_step = last_step
        self._kills = kills
        self._all_here = all_here
        self.losses, self.labels, self.copies, self.evaluated = [], [], {}, {}

    def before_run(self, run_context):
        return pl.estimator.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        self.losses.append(run_values.results["loss"])
        self.labels.append(run_values.results.get("labels"))
        if len(self.losses) == self._last_step:
            if self._kills:
                self._all_here.wait(timeout=20)
                raise KilledError
            run_context.request_stop()

    def end(self, session):
        self.copies = {
            v.name: [copy.copy() for copy in v.local_values()]
            for v in session.store.variables.values()
            if v.synchronization is not VariableSynchronization.ON_READ and not v.is_remote
        }


class HalvesRate(SessionRunHook):
    """Assigns half its learning rate to an optimizer, behind the first step."""

    def __init__(self, optimizer) -> None:
        self._optimizer = optimizer
        self._number = itertools.count(1)

    def after_run(self, run_context, run_values):
        if next(self._number) == 1:
            self._optimizer.learning_rate = float(self._optimizer.learning_rate) / 2


def model_fn(features, labels, mode, params):
    """The model of a scenario."""
    s: Scenario = params["scenario"]
    is_training = mode == pl.ModeKeys.TRAIN
    model, both = params["kept"] or parts_of(s)
    outputs, penalty = model(features, is_training)
    if mode == pl.ModeKeys.PREDICT:
        return pl.EstimatorSpec(mode, predictions=outputs)
    if s.weighted:
        head = RegressionHead(weight_column="weight")
        loss = head.loss(labels, outputs[:, None], features, regularization_losses=[penalty])
    else:
        loss = np.mean(np.square(outputs - labels)) + penalty
    found = measured(labels, outputs) if s.metrics else {}
    if not is_training:
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops=found)
    hooks = [HalvesRate(both[0])] if params["halves_rate"] else []
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op(s, both, loss), training_hooks=hooks)


def parts_of(s: Scenario):
    """The layers and the optimizers of a scenario."""
    return Model(s), make_optimizers(s)


def params_of(s: Scenario) -> list[dict]:
    """What `model_fn` is given on each worker: with the parts that it keeps between runs, if any.

    They are made outside of any model, as in a script; each worker counts names for itself.
    """
    params = []
    for _ in range(max(run.topology.workers for run in s.all_runs)):
        with VariableStore().building():
            params.append({"scenario": s, "kept": parts_of(s) if s.keeps_layers else None})
    return params


def measured(labels, outputs):
    total, mean, mse = metrics.Sum("labels"), metrics.Mean(), metrics.MeanSquaredError()
    total.update_state(labels)
    mean.update_state(labels)
    mse.update_state(labels, outputs)
    return {"sum": total, "mean": mean, "mse": mse}


class Model:
    """The layers of a scenario; they make their weights when they are called."""

    def __init__(self, s: Scenario) -> None:
        self._scenario = s
        held = constraints.MaxNorm(MAX_NORM) if s.constrained else None
        self._hidden = dense("hidden", 4, "tanh", kernel_constraint=held)
        self._out = dense("out", 1, dtype="float32" if s.is_mixed else "float64")
        self._table = layers.Embedding(
            NUM_ROWS, 2, _initializer("table/embeddings"), name="table", dtype="float64"
        )
        self._words = layers.Embedding(
            NUM_WORDS,
            2,
            _initializer("words/embeddings"),
            mask_zero=True,
            name="words",
            dtype="float64",
        )
        self._cells = layers.LSTM(
            WIDTH_OF_CELLS,
            kernel_initializer=_initializer("cells/kernel"),
            recurrent_initializer=_initializer("cells/recurrent_kernel"),
            bias_initializer=_initializer("cells/bias"),
            unit_forget_bias=False,
            name="cells",
            dtype="float64",
        )
        self._norm = layers.BatchNormalization(
            momentum=MOMENTUM,
            epsilon=EPSILON,
            synchronized=s.norm == "synchronized",
            name="norm",
            dtype="float64",
        )
        self._dropout = layers.Dropout(0.5, seed=DROPOUT_SEED)

    def __call__(self, features, is_training: bool):
        """The predictions (n,), and what is added to the loss."""
        s, penalty = self._scenario, 0.0
        if s.counts:
            count(features["x"], is_training)
        weights = {name: _weight(name, shape) for name, shape in _own_weights(s).items()}
        h = self._hidden(features["x"])
        if s.embedding == "dense":
            is_row = features["row"][:, None] == np.arange(NUM_ROWS, like=features["row"])
            rows = is_row.astype(np.float64) @ weights["table/embeddings"]
            h = np.concatenate([h, rows], axis=1)
        elif s.embedding:
            h = np.concatenate([h, self._table(features["row"])], axis=1)
        if s.embedding == "penalized":
            penalty = PENALTY * np.sum(np.square(self._table.weights[0]))
        if s.sequences:
            h = np.concatenate([h, self._cells(self._words(features["words"]))], axis=1)
        if s.norm:
            h = self._norm(h, training=is_training)
        if s.dropout:
            h = self._dropout(h, training=is_training)
        out = self._out(h)
        for task in dict.fromkeys(features["task"].tolist()) if s.heads else ():
            is_task = (features["task"] == task)[:, None]
            out = out + is_task * (h @ weights[f"head_{task}"])
        if s.wide:
            wide = np.sum(np.tanh(features["x"] @ weights["wide"]), axis=1, keepdims=True)
            out = out + wide / np.sqrt(WIDTH_OF_WIDE)
        return out[:, 0], penalty


def count(x, is_training: bool) -> None:
    """Add up examples where each replica does so for itself, and where all do; and keep a mean."""
    for when in (VariableSynchronization.ON_READ, VariableSynchronization.ON_WRITE):
        seen = _counter(f"seen_{when.name.lower()}", np.int64, when, VariableAggregation.SUM)
        if is_training:
            seen.assign_add(len(x))
    mean = _counter("mean", np.float64, when, VariableAggregation.MEAN)
    if is_training:
        mean.assign(np.mean(x) if len(x) else 0.0)


def _counter(name, dtype, synchronization, aggregation):
    return pl.get_variable(name, (), dtype, 0, False, synchronization, aggregation)


def _own_weights(s: Scenario):
    """The weights that no layer makes; they are made first, in one order on all workers."""
    own = {"unused", "wide", *(f"head_{task}" for task in range(NUM_TASKS))}
    own |= {"table/embeddings"} if s.embedding == "dense" else set()
    return {name: shape for name, shape in trainable_shapes(s).items() if name in own}


def _weight(name, shape):
    return pl.get_variable(name, shape, np.float64, _initializer(name))


def _initializer(name):
    return lambda shape, *_, **__: initial_value(name, tuple(shape))


def dense(name, units, activation=None, dtype="float64", **options):
    return layers.Dense(
        units,
        activation,
        kernel_initializer=_initializer(f"{name}/kernel"),
        bias_initializer=_initializer(f"{name}/bias"),
        name=name,
        dtype=dtype,
        **options,
    )


RULES = {
    "sgd": optimizers.SGD,
    "momentum": lambda *a, **k: optimizers.SGD(*a, momentum=0.9, **k),
    "nesterov": lambda *a, **k: optimizers.SGD(*a, momentum=0.9, nesterov=True, **k),
    "adam": optimizers.Adam,
    "adamw": lambda *a, **k: optimizers.AdamW(*a, weight_decay=0.1, **k),
    "adagrad": optimizers.Adagrad,
    "rmsprop": lambda *a, **k: optimizers.RMSprop(
        *a, momentum=0.5, centered=True, epsilon=1e-2, **k
    ),
    "ftrl": lambda *a, **k: optimizers.Ftrl(
        *a, l1_regularization_strength=0.01, l2_regularization_strength=0.01, **k
    ),
}


SCHEDULES = {
    None: LEARNING_RATE,
    "exponential": schedules.ExponentialDecay(LEARNING_RATE, 2, 0.5),
    "piecewise": schedules.PiecewiseConstantDecay(
        [1, 3], [LEARNING_RATE, LEARNING_RATE / 2, LEARNING_RATE / 4]
    ),
    "warm-up": schedules.LinearWarmup(
        schedules.CosineDecay(LEARNING_RATE, 6, alpha=0.1), 2, LEARNING_RATE / 4
    ),
}


def make_optimizers(s: Scenario):
    rate = SCHEDULES[s.schedule]
    clipping = {s.clipping: CLIP} if s.clipping else {}
    sparse = "lazy" if s.embedding == "lazy" else "dense"
    first = RULES[s.optimizer](rate, name="first", sparse=sparse, **clipping)
    if s.scaled:
        first = optimizers.LossScaleOptimizer(
            first, initial_scale=FIRST_SCALE, dynamic_growth_steps=GROWTH_STEPS
        )
    second = optimizers.SGD(SECOND_RATE, momentum=0.9, name="second")
    return first, second if s.second_optimizer else None


def split(s: Scenario, variables):
    """The variables of the first optimizer and of the second."""
    if not s.second_optimizer:
        return variables, []
    first, second = ([v for v in variables if is_of_second(v.name) is b] for b in (False, True))
    return first, variables if s.has_all_weights else second


def train_op(s: Scenario, both, loss):
    first, second = both
    if second is None:
        return first.minimize(loss)
    of_first, of_second = split(s, pl.strategies.current_store().trainable_variables())
    return optimizers.group(
        first.minimize(loss, var_list=of_first), second.minimize(2.0 * loss, var_list=of_second)
    )


def batches_of(scenario: Scenario, index: int, worker: int):
    """One worker's batches in a run, each for one replica, with what of them is empty."""
    run = scenario.evaluation if index < 0 else scenario.runs[index]
    examples = scenario.examples(index)
    ends = np.cumsum([n for step in run.steps for n in step]).reshape(len(run.steps), -1)
    first = worker * run.topology.replicas
    return [
        (
            {name: examples[name][end - n : end] for name in FEATURES},
            examples["y"][end - n : end],
        )
        for step, own in zip(ends, run.steps, strict=True)
        for end, n in list(zip(step, own, strict=True))[first : first + run.topology.replicas]
    ]


def dataset_of(batches):
    """A dataset of batches that ends with the last that is not empty."""
    while not len(batches[-1][1]):
        batches = batches[:-1]
    return pl.Dataset.from_generator(batches)


def config_of(run: Run, **options):
    return pl.RunConfig(
        save_checkpoints_steps=1 if run.saves else 10**6,
        keep_checkpoint_max=None,
        log_step_count_steps=None,
        tf_random_seed=1,
        **options,
    )


def is_killed(scenario: Scenario, index: int) -> bool:
    """Whether a run ends because the next one is to go on with its input."""
    return index + 1 in scenario.of_one_input(index)


def train(
    scenario: Scenario, index: int, model_dir: Path, source, params, carry_out=None
) -> list[Report]:
    """Make one run, perhaps with the weights of `source`; what each worker has seen of it.

    Args:
        carry_out: Calls a worker's part on its strategy; by default `on_topology`.
    """
    run, together = scenario.runs[index], scenario.of_one_input(index)
    kills, num_steps = is_killed(scenario, index), scenario.together(run).num_steps
    run = replace(run, saves=run.saves or kills, ends="request" if kills else run.ends)
    workers = range(run.topology.workers)
    last = workers if kills or run.topology.kind == "servers" else workers[-1:]
    stops = {worker: num_steps for worker in last if run.ends == "request"}
    # Those of servers do not make the same steps.
    all_here = threading.Barrier(len(workers) if run.topology.kind == "workers" else 1)
    reports = [Report(scenario, stops.get(worker), kills, all_here) for worker in workers]
    warm_start = source
    if run.begins == "partly warm":
        warm_start = pl.estimator.WarmStartSettings(source, vars_to_warm_start=".*kernel.*")

    def work(strategy, worker):
        batches = [b for i in together for b in batches_of(scenario, i, worker)]
        surplus = batches if run.ends != "data" else []
        config = config_of(
            run,
            train_distribute=strategy,
            eval_distribute=strategy if run.evaluates else None,
            gradient_accumulation_steps=scenario.accumulates,
            replay_steps=scenario.replays,
            # Of a killed run the last checkpoint is promised where one worker writes it.
            save_checkpoints_sharded=not kills and run.topology.is_cut,
        )
        # Behind a step that was saved it is in no checkpoint if it is the last.
        given = params[worker] | {"halves_rate": scenario.assigns and num_steps > 1}
        estimator = pl.Estimator(model_fn, model_dir, config, given, warm_start)
        steps = num_steps if run.ends == "steps" else None

        def input_fn():
            return dataset_of(batches + surplus)

        hooks = [reports[worker]]
        start = 0 if run.begins in ("anew", "warm", "partly warm") else steps_so_far
        if run.ends == "early stop":
            hooks.append(stop_with_step(estimator, num_steps))
        if run.ends == "figure":
            hooks.append(stop_behind_evaluation(estimator, start + num_steps - 1))
        if not run.evaluates:
            estimator.train_and_report(input_fn, hooks, steps)
            return
        on_same = pl.EvalSpec(
            lambda: dataset_of(batches_of(scenario, index, worker)), steps=None, throttle_secs=0
        )
        max_steps = None if steps is None else start + steps
        spec = pl.TrainSpec(input_fn, max_steps, hooks)
        reports[worker].evaluated = pl.train_and_evaluate(estimator, spec, on_same).metrics

    newest = pl.checkpoint.latest_checkpoint(model_dir) if model_dir.exists() else None
    steps_so_far = pl.checkpoint.load(newest).step if newest else 0
    with pytest.raises(KilledError) if kills else nullcontext():
        (carry_out or on_topology)(run.topology, work, model_dir)
    return reports


def stop_with_step(estimator: pl.Estimator, num_steps: int) -> SessionRunHook:
    """A hook that lets all workers stop after so many steps; the chief counts them."""
    asked = itertools.count(1)
    should_stop = lambda: next(asked) == num_steps  # noqa: E731
    return pl.estimator.make_early_stopping_hook(estimator, should_stop, None, 1)


def stop_behind_evaluation(estimator: pl.Estimator, step: int) -> SessionRunHook:
    """A hook that lets all workers stop behind the step after an evaluated one."""
    return pl.estimator.stop_if_higher_hook(
        estimator, "loss", -1.0, min_steps=step, run_every_secs=None, run_every_steps=1
    )


def predict(scenario: Scenario, model_dir: Path, examples, params) -> np.ndarray:
    """What the last checkpoint predicts for examples, in batches of two."""
    features = {name: examples[name] for name in FEATURES}
    config = config_of(scenario.evaluation)
    estimator = pl.Estimator(model_fn, model_dir, config, params[0])
    batches = pl.Dataset.from_tensor_slices(features).batch(2)
    return np.array([float(found) for found in estimator.predict(lambda: batches)])


def evaluate(scenario: Scenario, model_dir: Path, params) -> list[dict]:
    """What each worker says of the last checkpoint."""

    def work(strategy, worker):
        config = config_of(scenario.evaluation, eval_distribute=strategy)
        estimator = pl.Estimator(model_fn, model_dir, config, params[worker])
        return estimator.evaluate(lambda: dataset_of(batches_of(scenario, -1, worker)))

    return on_topology(scenario.evaluation.topology, work)


def custom_loop(scenario: Scenario, run: Run) -> list[dict]:
    """The values on each worker after a loop of the user's own."""

    def work(strategy, worker):
        strategy = strategy or pl.get_strategy()
        dataset = distributed(scenario, strategy, worker)
        with VariableStore().building():
            with strategy.scope():
                step = make_step(scenario, Model(scenario), make_optimizers(scenario))
            for batch, sizes in zip(dataset, run.steps, strict=True):
                strategy.run(step, (batch, sum(sizes)))
            with strategy.scope():
                variables = pl.strategies.current_store().variables
                return {name: v.numpy() for name, v in variables.items()}

    return on_topology(run.topology, work)


def distributed(scenario: Scenario, strategy, worker: int):
    """The batches of a user's loop, as the scenario deals them out, or as the strategy does."""
    if scenario.loop == "dealt":
        return strategy.distribute_datasets_from_function(
            lambda context: dataset_of(batches_of(scenario, 0, worker))
        )
    dataset = pl.Dataset.from_generator(global_batches(scenario))
    return strategy.experimental_distribute_dataset(dataset)


def global_batches(scenario: Scenario) -> list:
    """The batches of the first run, each for all replicas."""
    examples, run = scenario.examples(0), scenario.runs[0]
    ends = np.cumsum([sum(step) for step in run.steps])
    return [
        (
            {name: examples[name][start:end] for name in FEATURES},
            examples["y"][start:end],
        )
        for start, end in zip([0, *ends], ends, strict=False)
    ]


class FittedModel(pl.nn.Model):
    """The layers of a scenario, for `fit`."""

    def __init__(self, s: Scenario) -> None:
        super().__init__()
        self._parts = Model(s)
        self._own = [part for part in vars(self._parts).values() if isinstance(part, layers.Layer)]

    def call(self, features, training=False):
        outputs, _ = self._parts(features, training)
        return outputs[:, None]


def fitted(s: Scenario, run: Run) -> list[dict]:
    """The values on each worker after `Model.fit` on the global batches."""

    def work(strategy, worker):
        strategy = strategy or pl.get_strategy()
        with VariableStore().building():
            with strategy.scope():
                model = FittedModel(s)
                model.compile(make_optimizers(s)[0], "mse")
            batches = [
                (features, labels[:, None], *([features["weight"]] if s.weighted else []))
                for features, labels in global_batches(s)
            ]
            model.fit(pl.Dataset.from_generator(batches), verbose=0)
            variables = *model.weights, *model.optimizer.variables
            return {v.name: v.numpy() for v in variables}

    return on_topology(run.topology, work)


def make_step(s: Scenario, model: Model, both):
    """One step of the user's loop: the loss is divided by the number of all examples."""

    def step(batch, num_examples):
        features, labels = batch
        with pl.GradientTape(persistent=True) as tape:
            outputs, penalty = model(features, True)
            weights = features["weight"] if s.weighted else 1.0
            loss = np.sum(weights * np.square(outputs - labels)) / num_examples
            loss = loss + penalty / get_replica_context().num_replicas_in_sync
            losses = loss, 2.0 * loss
        variables = pl.strategies.current_store().trainable_variables()
        parts = split(s, variables)
        gradients = [tape.gradient(of, own) for of, own in zip(losses, parts, strict=True)]
        for optimizer, found, own in zip(both, gradients, parts, strict=True):
            if own:
                optimizer.apply_gradients(zip(found, own, strict=True))

    return step


def on_topology(topology: Topology, work, model_dir: Path | None = None) -> list:
    """What `work(strategy, worker)` returns on each worker."""
    devices = [f"CPU:{i}" for i in range(topology.replicas)]
    ops = HierarchicalCopyAllReduce(group_size=2) if topology.is_cut else None
    if topology.kind == "default":
        return [work(None, 0)]
    if topology.kind == "one device":
        return [work(pl.OneDeviceStrategy("CPU:0"), 0)]
    if topology.kind == "mirrored":
        return [work(pl.MirroredStrategy(devices, ops), 0)]
    if topology.kind == "central storage":
        return [work(pl.CentralStorageStrategy(devices, cross_device_ops=ops), 0)]
    if topology.kind == "servers":
        return on_servers(topology, work, model_dir)
    packs = {"bytes_per_pack": BYTES_PER_PACK} if topology.is_cut else {}
    size = topology.workers, topology.replicas
    return _shared_helpers().run_on_workers(*size, work, SECONDS, **packs)


PARTITIONERS = {
    None: None,
    "halves": FixedShardsPartitioner(2),
    "thirds": FixedShardsPartitioner(3),
    "at most 48 bytes": MaxSizePartitioner(48),
    "at least 48 bytes": MinSizePartitioner(48),
}


@contextmanager
def server_job(topology: Topology, model_dir: Path):
    partitioner = PARTITIONERS[topology.partitioner]
    job = _shared_helpers().ServerJobInProcess(
        2, topology.workers, 0, storage=CheckpointShards(3, str(model_dir)), partitioner=partitioner
    )
    try:
        yield job
    finally:
        job.close()


def on_servers(topology: Topology, work, model_dir: Path) -> list:
    """The same with two parameter servers; workers are threads."""
    results, errors = [None] * topology.workers, []

    def run(index):
        try:
            strategy = job.strategy(index, topology.replicas)
            results[index] = work(strategy, index)
            if not strategy.extended.job.is_over:  # as it is behind `fit`
                strategy.extended.job.share_result("{}")
        except BaseException as error:
            errors.append(error)
            if not isinstance(error, KilledError):  # the others are killed at the same step
                job.close()

    with server_job(topology, model_dir) as job:
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(run, i), daemon=True)
            for i in range(topology.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * SECONDS)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a worker does not end"
    return results
