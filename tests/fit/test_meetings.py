"""Where features of `fit` meet: on any replicas and workers they learn what one process would.

Batches are of 6, 6 and 2 examples, so that in the last one replicas and whole workers have nothing.
"""

from functools import partial

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Model, Sequential, callbacks, constraints, layers, load_model, losses
from paceline.nn.optimizers import (
    SGD,
    Adagrad,
    Adam,
    Lamb,
    Lion,
    LossScaleOptimizer,
    Nadam,
    schedules,
)
from paceline.strategies import DEFAULT_STRATEGY, VariableStore

NUM_EXAMPLES, BATCH, STEPS, NUM_WORDS = 14, 6, 5, 7
RNG = np.random.default_rng(0)
WEIGHTS = RNG.uniform(0.5, 3, NUM_EXAMPLES).astype(np.float32)
WEIGHTS_OF_STEPS = RNG.uniform(0.5, 3, (NUM_EXAMPLES, STEPS)).astype(np.float32)


def numbers(is_finite=True):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(NUM_EXAMPLES, 3)).astype(np.float32)
    y = (x @ [[1.0], [-2.0], [0.5]] + 1).astype(np.float32)
    if not is_finite:
        y[1] = np.inf  # of the first replica alone
    return x, y


def classes():
    x, y = numbers()
    return x, np.digitize(y[:, 0], [-1, 1])


def sentences():
    """Of uneven lengths: within a batch replicas have masks that leave more, or less."""
    rng = np.random.default_rng(2)
    words = rng.integers(1, NUM_WORDS, (NUM_EXAMPLES, STEPS))
    words[np.arange(STEPS) >= np.resize([5, 4, 2, 1, 1, 3], NUM_EXAMPLES)[:, None]] = 0
    return words, rng.normal(size=(NUM_EXAMPLES, STEPS, 1)).astype(np.float32)


def small(**options):
    return Sequential(
        [layers.Dense(4, "tanh", name="hidden", **options), layers.Dense(1, name="out")]
    )


def recurrent(kind=layers.GRU, **options):
    return Sequential(
        [
            layers.Embedding(NUM_WORDS, 3, mask_zero=True, name="words"),
            kind(4, return_sequences=True, name="cells", **options),
            layers.Dense(1, name="out"),
        ]
    )


def classifier():
    return Sequential([layers.Dense(3, "softmax", name="out")])


class Written(Model):
    """What `small` is, with a training step of its own."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4, "tanh", name="hidden")
        self.out = layers.Dense(1, name="out")
        self.second = Adam(0.02)

    def call(self, inputs, training=False):
        return self.out(self.hidden(inputs))


class TwoOptimizers(Written):
    def train_step(self, data):
        x, y = data
        with pl.GradientTape(persistent=True) as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
            doubled = 2 * loss
        first, second = self.hidden.trainable_variables, self.out.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, first), first, strict=True))
        self.second.apply_gradients(zip(tape.gradient(doubled, second), second, strict=True))
        return self.compute_metrics(x, y, y_pred)


class ScalesByItself(Written):
    def train_step(self, data):
        x, y = data
        with pl.GradientTape() as tape:
            y_pred = self(x, training=True)
            scaled = self.optimizer.get_scaled_loss(self.compute_loss(x, y, y_pred))
        variables = self.trainable_variables
        gradients = self.optimizer.get_unscaled_gradients(tape.gradient(scaled, variables))
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return self.compute_metrics(x, y, y_pred)


averaging = partial(Adam, 0.05, use_ema=True, ema_momentum=0.7)
summing = partial(losses.MeanSquaredError, reduction="sum")
CROSSENTROPY = "sparse_categorical_crossentropy"
# The model, the optimizer, the data, and what else is not as usual.
CASES = {
    "masks": (recurrent, SGD, sentences, {}),
    "masks and weights": (recurrent, Nadam, sentences, {"sample_weight": WEIGHTS}),
    "weights of steps": (
        partial(recurrent, layers.LSTM),
        SGD,
        sentences,
        {"sample_weight": WEIGHTS_OF_STEPS},
    ),
    "weights of classes": (
        classifier,
        SGD,
        classes,
        {"loss": CROSSENTROPY, "class_weight": {0: 1.0, 1: 3.0, 2: 0.0}, "sample_weight": WEIGHTS},
    ),
    "a sum for a loss": (small, partial(SGD, 0.003), numbers, {"loss": summing}),
    "a sum of what masks leave": (recurrent, partial(SGD, 0.003), sentences, {"loss": summing}),
    "accumulation, clipped, of rows": (
        recurrent,
        partial(Adam, 0.05, gradient_accumulation_steps=2, global_clipnorm=0.1),
        sentences,
        {},
    ),
    "lazy averages of rows": (
        recurrent,
        partial(Adagrad, 0.05, use_ema=True, ema_momentum=0.7, sparse="lazy"),
        sentences,
        {},
    ),
    "averages, accumulated and scaled": (
        small,
        lambda: LossScaleOptimizer(averaging(gradient_accumulation_steps=2)),
        numbers,
        {},
    ),
    "one replica overflows": (
        small,
        lambda: LossScaleOptimizer(Adam(0.05)),
        partial(numbers, False),
        {},
    ),
    "one replica overflows, accumulated": (
        small,
        lambda: LossScaleOptimizer(Adam(0.05, gradient_accumulation_steps=2)),
        partial(numbers, False),
        {},
    ),
    "the same in a step of one's own": (
        ScalesByItself,
        lambda: LossScaleOptimizer(Adam(0.05)),
        partial(numbers, False),
        {},
    ),
    "constraints and averages that are taken": (
        partial(small, kernel_constraint=constraints.MaxNorm(0.5)),
        partial(averaging, ema_overwrite_frequency=2),
        numbers,
        {},
    ),
    "a constraint of a recurrence": (
        partial(recurrent, kernel_constraint=constraints.MaxNorm(0.5)),
        Lion,
        sentences,
        {},
    ),
    "rules of whole tables": (recurrent, partial(Lamb, 0.02), sentences, {}),
    "two optimizers": (TwoOptimizers, SGD, numbers, {}),
}
PLACES = {"2 replicas": (1, 2), "3 replicas": (1, 3), "2 workers": (2, 1), "2 workers x 2": (2, 2)}


def run(on_workers, size, work):
    """What `work(strategy, index)` returns on each worker."""
    if size[0] > 1:
        return on_workers(*size, work)
    return [work(pl.MirroredStrategy([f"CPU:{i}" for i in range(size[1])]), 0)]


def made(case):
    make, optimizer, _, options = CASES[case]
    loss = options.get("loss", "mse")
    loss, measured = loss if isinstance(loss, str) else loss(), "mse"
    model = make()
    model.compile(optimizer(), loss, weighted_metrics=[measured if loss != CROSSENTROPY else "acc"])
    return model


def fit(model, case, first, last, *told):
    x, y = CASES[case][2]()
    given = {name: value for name, value in CASES[case][3].items() if "weight" in name}
    how = {"initial_epoch": first, "epochs": last, "shuffle": False, "verbose": 0}
    return model.fit(x, y, BATCH, callbacks=list(told), **given, **how).history


def state_of(model):
    """Every copy of the weights and of what the optimizers keep beside them, in their order."""
    others = [model.second] if isinstance(model, Written) else []
    kept = [v for one in (model.optimizer, *others) for v in one.variables]
    return [[np.array(copy) for copy in v.local_values()] for v in (*model.weights, *kept)]


def require_alike(found, expected):
    for copies, (like,) in zip(found, expected, strict=True):
        for one in copies:
            np.testing.assert_allclose(one, like, rtol=1e-3, atol=1e-5)


def trained(strategy, case):
    """What a fit leaves, its logs, and those of an evaluation."""
    with VariableStore(seed=3).building():
        with strategy.scope():
            model = made(case)
        logs = fit(model, case, 0, 2)
        x, y = CASES[case][2]()
        weights = CASES[case][3].get("sample_weight")
        found = model.evaluate(x, y, BATCH, 0, weights, return_dict=True)
        return state_of(model), logs | {f"end {name}": value for name, value in found.items()}


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("case", CASES)
def test_features_that_meet_learn_what_one_process_would(on_workers, case):
    expected, expected_logs = trained(DEFAULT_STRATEGY, case)
    for size in PLACES.values():
        for state, logs in run(on_workers, size, lambda strategy, _: trained(strategy, case)):
            require_alike(state, expected)
            assert logs.keys() == expected_logs.keys()
            for name, values in expected_logs.items():
                np.testing.assert_allclose(logs[name], values, rtol=1e-3, err_msg=name)


GOING_ON = [
    "accumulation, clipped, of rows",
    "averages, accumulated and scaled",
    "one replica overflows, accumulated",
    "constraints and averages that are taken",
    "masks and weights",
]


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("case", GOING_ON)
def test_a_model_that_two_workers_save_goes_on_under_two_replicas(on_workers, tmp_path, case):
    def saved(strategy, _=0):
        with VariableStore(seed=3).building():
            with strategy.scope():
                model = made(case)
            fit(model, case, 0, 1)
            model.save(tmp_path / "model")
            fit(model, case, 1, 2)
            return state_of(model)

    def gone_on(strategy, _):
        with VariableStore(seed=4).building():
            with strategy.scope():
                model = load_model(tmp_path / "model")
            fit(model, case, 1, 2)
            return state_of(model)

    expected = saved(DEFAULT_STRATEGY)
    run(on_workers, (2, 1), saved)
    (found,) = run(on_workers, (1, 2), gone_on)
    require_alike(found, expected)


class KilledError(Exception):
    pass


class Kills(callbacks.Callback):
    """After so many batches."""

    def __init__(self, num_batches):
        super().__init__()
        self.num_left = num_batches

    def on_train_batch_end(self, batch, logs=None):
        self.num_left -= 1
        if not self.num_left:
            raise KilledError


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("num_batches", [4, 5, 6])
@pytest.mark.parametrize("size", [(1, 2), (2, 1)])
@pytest.mark.parametrize("case", ["two optimizers", "averages, accumulated and scaled"])
def test_what_was_killed_goes_on_behind_any_batch_with_the_state_of_all_optimizers(
    on_workers, tmp_path, case, size, num_batches
):
    # Behind five the second worker has no batch any more in the epoch, and behind six nobody.
    def work(strategy, _, *told):
        with VariableStore(seed=3).building():
            with strategy.scope():
                model = made(case)
            backup = callbacks.BackupAndRestore(tmp_path / "backup", save_freq=1)
            fit(model, case, 0, 3, backup, *told)
            return state_of(model)

    def killed(strategy, index):
        with pytest.raises(KilledError):
            work(strategy, index, Kills(num_batches))

    expected = work(DEFAULT_STRATEGY, 0)
    run(on_workers, (2, 1), killed)
    for found in run(on_workers, size, work):
        require_alike(found, expected)


def test_a_backup_has_the_rates_that_were_assigned_to_all_optimizers(tmp_path):
    decay = schedules.ExponentialDecay(0.1, 10, 0.5)

    def rates(*assigned):
        with VariableStore(seed=3).building():
            model = made("two optimizers")
            if assigned:
                fit(model, "two optimizers", 0, 1)
                model.optimizer.learning_rate, model.second.learning_rate = assigned
                model.back_up(tmp_path / "backup", {})
            else:
                model.restore_backup(tmp_path / "backup")
                fit(model, "two optimizers", 1, 2)
            schedule = model.optimizer.learning_rate_schedule
            return schedule, float(model.second.learning_rate)

    assert rates(decay, 0.002) == rates() == (decay, 0.002)
