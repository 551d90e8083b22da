"""`fit` over several workers, and with parameter servers: what one process would learn."""

import re

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Input, Model, Sequential, callbacks, layers, metrics, optimizers
from paceline.strategies import DEFAULT_STRATEGY, VariableStore

from ..threads import in_threads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(25, 3)).astype(np.float32)
Y = (X @ [[1.0], [-2.0], [0.5]] + 1).astype(np.float32)


class OwnStep(Model):
    """The same as `functional`, with a training step in Keras's form."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4, "tanh", name="hidden")
        self.out = layers.Dense(1, name="out")
        self.tracker = metrics.Mean(name="tracked")

    def call(self, inputs, training=False):
        return self.out(self.hidden(inputs))

    def train_step(self, data):
        x, y = data
        with pl.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.tracker.update_state(loss, np.shape(x)[0])
        return {**self.compute_metrics(x, y, y_pred), "last": loss}


def functional():
    inputs = Input((3,))
    return Model(
        inputs, layers.Dense(1, name="out")(layers.Dense(4, "tanh", name="hidden")(inputs))
    )


def sequential():
    return Sequential([layers.Dense(4, "tanh", name="hidden"), layers.Dense(1, name="out")])


MODELS = {"functional": functional, "sequential": sequential, "own step": OwnStep}


def fitted(strategy, make=functional, batch_size=8, num_examples=25, **options):
    """What a fit leaves: weights, logs, an evaluation, predictions."""
    rows = slice(num_examples)
    with VariableStore(seed=3).building():
        with strategy.scope():
            model = make()
            model.compile(optimizers.Adam(0.05), "mse", metrics=["mae"])
        how = {"epochs": 3, "shuffle": False, "verbose": 0, **options}
        history = model.fit(X[rows], Y[rows], batch_size, **how)
        logs = model.evaluate(X, Y, verbose=0, return_dict=True)
        return model.get_weights(), history.history, logs, model.predict(X, verbose=0)


def require_alike(found, expected, rtol=1e-4):
    for part, like in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(part, like, rtol=rtol, atol=1e-6)
    assert found[1].keys() == expected[1].keys()
    for name in set(expected[1]) - {"last"}:
        np.testing.assert_allclose(found[1][name], expected[1][name], rtol=rtol)
    assert found[2] == pytest.approx(expected[2], rel=rtol)
    np.testing.assert_allclose(found[3], expected[3], rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("size", [(2, 1), (2, 2), (3, 1)])
def test_workers_learn_what_one_process_would_with_uneven_ends(on_workers, kind, size):
    # Batches of 8, 8, 8 and 1: in the last one most replicas, and whole workers, have nothing.
    expected = fitted(DEFAULT_STRATEGY, MODELS[kind])
    found = on_workers(*size, lambda strategy, _: fitted(strategy, MODELS[kind]))
    for one in found:
        require_alike(one, expected)
    assert found[0][1] == found[-1][1]


def test_arrays_are_shuffled_alike_on_all_workers(on_workers):
    found = on_workers(2, 1, lambda strategy, _: fitted(strategy, shuffle=True)[0])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


class StopOn(callbacks.Callback):
    """Wants to end after the second batch, on one of the workers alone."""

    def __init__(self, is_concerned):
        super().__init__()
        self.is_concerned = is_concerned

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = self.is_concerned and batch == 1


@pytest.mark.parametrize("kind", ["functional", "own step"])
def test_a_worker_that_stops_ends_the_training_of_all_after_the_same_step(on_workers, kind):
    def train(strategy, index):
        stop = StopOn(index == 1)
        return fitted(strategy, MODELS[kind], batch_size=4, callbacks=[stop])

    first, second = on_workers(2, 1, train)
    expected = fitted(DEFAULT_STRATEGY, MODELS[kind], batch_size=4, callbacks=[StopOn(True)])
    require_alike(first, expected)
    assert first[1] == second[1]
    assert len(first[1]["loss"]) == 1


@pytest.mark.parametrize("steps", [None, 2])
def test_data_that_are_shorter_on_a_worker_count_once(on_workers, steps):
    def train(strategy, index):
        with VariableStore(seed=3).building():
            with strategy.scope():
                model = functional()
                model.compile("sgd", "mse")
            options = pl.inputs.Options(auto_shard_policy=pl.inputs.AutoShardPolicy.OFF)
            rows = slice(0, 8) if index else slice(8, 24)
            dataset = pl.Dataset.from_tensor_slices((X[rows], Y[rows])).batch(4)
            dataset = dataset.with_options(options)
            history = model.fit(dataset, epochs=2, steps_per_epoch=steps, verbose=0)
            return model.get_weights(), history.history, len(history.epoch)

    first, second = on_workers(2, 1, train)
    for one, other in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(one, other)
    assert first[1] == second[1]


@pytest.mark.parametrize(
    "others",
    [
        {"epochs": 3},
        {"initial_epoch": 1},
        {"steps_per_epoch": 1},
        {"validation_data": (X, Y)},
        {"validation_data": (X, Y), "validation_freq": 2},
    ],
    ids=["epochs", "initial_epoch", "steps_per_epoch", "validation", "validation_freq"],
)
def test_workers_that_were_told_of_other_epochs_are_named_before_the_first(on_workers, others):
    usual = {"epochs": 2, "validation_data": (X, Y) if "validation_freq" in others else None}
    said = []

    def train(strategy, index):
        with VariableStore(seed=3).building():
            with strategy.scope():
                model = functional()
                model.compile("sgd", "mse")
            with pytest.raises(
                ValueError, match=r"(?s)fit .*0; initial_epoch=.* on worker 1"
            ) as told:
                model.fit(X, Y, verbose=0, **usual | (others if index else {}))
            said.append(str(told.value))

    on_workers(2, 1, train)
    assert said[0] == said[1]


@pytest.mark.parametrize("num_batches", [(3, 2), (3, 3)])
def test_who_has_fewer_of_the_batches_that_all_share_is_named(on_workers, caplog, num_batches):
    def train(strategy, index):
        with VariableStore(seed=3).building():
            with strategy.scope():
                model = functional()
                model.compile("sgd", "mse")
            batches = (
                (X[8 * i : 8 * i + 8], Y[8 * i : 8 * i + 8]) for i in range(num_batches[index])
            )
            model.fit(batches, verbose=0)

    on_workers(2, 1, train)
    assert caplog.text.count("The input of worker(s) 1 ended before") == 2 * (num_batches == (3, 2))


def on_servers(job, train):
    """What `train(strategy, rank)` returns in each trainer, which are threads."""
    return in_threads(job.num_trainers, lambda rank: train(job.strategy(rank), rank))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("num_trainers", [1, 3])
def test_trainers_in_step_learn_on_servers_what_one_process_would(server_job, kind, num_trainers):
    """Also of the last batch of each epoch: one example, and none for the other trainers."""
    expected = fitted(DEFAULT_STRATEGY, MODELS[kind])
    job = server_job(2, num_trainers, max_staleness=0)

    def train(strategy, rank):
        return fitted(strategy, MODELS[kind])

    found = on_servers(job, train)
    for one in found:
        for part, like in zip(one[0], expected[0], strict=True):
            np.testing.assert_allclose(part, like, rtol=1e-4, atol=1e-6)
        assert one[2] == pytest.approx(expected[2], rel=1e-4)


def test_trainers_of_their_own_steps_take_batches_in_turns(server_job):
    def train(strategy, rank):
        with VariableStore(seed=3).building():
            with strategy.scope():
                model = functional()
                model.compile("sgd", "mse")
            model.fit(X[:24], Y[:24], 4, epochs=2, shuffle=False, verbose=0)
            assert int(model.optimizer.iterations) == 12  # of both
            with pytest.raises(RuntimeError, match="give it all epochs, or save the weights"):
                model.fit(X, Y)
            return model.get_weights()

    first, second = on_servers(server_job(1, 2), train)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


UNEVEN = "Workers share the batches of fit"
# max_staleness, how many batches each worker's generator has, and what is said of it.
LENGTHS = [
    (0, (4, 4), None),
    (0, (4, 2), "4 on worker 0, 2 on worker 1 in epoch 1"),
    (0, (2, 4), "2 on worker 0, 4 on worker 1 in epoch 1"),
    (None, (4, 4), None),
    (None, (5, 5), None),
    (None, (6, 2), "3 on worker 0, 1 on worker 1 in epoch 1"),
    (None, (1, 4), "1 on worker 0, 2 on worker 1 in epoch 1"),
]


@pytest.mark.parametrize(("max_staleness", "lengths", "said"), LENGTHS)
def test_trainers_whose_generators_differ_in_length_are_named(
    server_job, caplog, max_staleness, lengths, said
):
    def train(strategy, rank):
        with VariableStore(seed=3).building():
            with strategy.scope():
                model = functional()
                model.compile("sgd", "mse")
            batches = pl.Dataset.from_generator(
                lambda: ((X[4 * i : 4 * i + 4], Y[4 * i : 4 * i + 4]) for i in range(lengths[rank]))
            )
            model.fit(batches, epochs=2, verbose=0)

    on_servers(server_job(1, 2, max_staleness), train)
    warnings = [r.getMessage() for r in caplog.records if r.getMessage().startswith(UNEVEN)]
    assert len(warnings) == (0 if said is None else 2)
    assert all(said in warning for warning in warnings)


def told_otherwise(strategy, rank, rows=slice(24), batch_size=8, **options):
    """A fit in which trainer 1 alone has other rows, batches or epochs."""
    if rank == 0:
        rows, batch_size, options = slice(24), 8, {}
    with VariableStore(seed=3).building():
        with strategy.scope():
            model = functional()
            model.compile("sgd", "mse")
        how = {"epochs": 2, "shuffle": False, "verbose": 0, **options}
        model.fit(X[rows], Y[rows], batch_size, **how)


@pytest.mark.parametrize("max_staleness", [0, None])
@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"epochs": 3}, r"fit .*epochs=2.* on worker 0; .*epochs=3.* on worker 1"),
        ({"batch_size": 4}, "must agree on the dataset, but worker 0 has .* and worker 1 has"),
        ({"rows": slice(20)}, "must agree on the dataset, but worker 0 has .* and worker 1 has"),
        ({"shuffle": True}, "must agree on the dataset, but worker 0 has .* and worker 1 has"),
    ],
    ids=["epochs", "batches", "rows", "shuffled"],
)
def test_a_trainer_that_was_given_something_else_than_the_chief_is_told(
    server_job, max_staleness, others, said
):
    job, errors = server_job(1, 2, max_staleness), []

    def train(strategy, rank):
        try:
            told_otherwise(strategy, rank, **others)
        except ValueError as error:
            errors.append(str(error))
            strategy.extended.job.finish()  # as a process that ends: the chief goes on alone

    on_servers(job, train)
    (error,) = errors
    assert re.search(said, error, re.DOTALL)
