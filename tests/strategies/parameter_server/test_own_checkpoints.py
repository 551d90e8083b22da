"""`Checkpoint` in a loop of one's own whose variables live on parameter servers."""

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import Checkpoint, load
from paceline.nn import layers, optimizers
from paceline.strategies import VariableStore

from ...threads import in_threads

X = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0]], np.float32)


class Loop:
    """One trainer's loop, of a model whose variables exist before it restores them."""

    def __init__(self, strategy):
        self.strategy = strategy
        self.model = layers.Dense(1, input_shape=(2,), name="out")
        self.optimizer = optimizers.Adam(0.05)
        assert self.model.variables
        self.saved = Checkpoint(model=self.model, optimizer=self.optimizer)

    def train(self, first, last):
        for number in range(first, last):
            self.strategy.run(self._step, (slice(4 * number, 4 * number + 4),))

    def _step(self, rows):
        with pl.GradientTape() as tape:
            errors = self.model(X[rows]) - Y[rows]
            loss = np.mean(np.square(errors)) / self.strategy.num_replicas_in_sync
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def values(self):
        """The weights and the slots, as the servers have them."""
        self.strategy.extended.job.refresh()
        return [v.numpy() for v in (*self.model.variables, *self.optimizer.variables)]


@pytest.fixture
def run(server_job):
    """`run(max_staleness, num_trainers, work, **options)`: what `work(loop, rank)` returns."""

    def run(max_staleness, num_trainers, work, **options):
        job = server_job(2, num_trainers, max_staleness, **options)

        def train(rank):
            strategy = job.strategy(rank)
            with VariableStore(seed=3).building(), strategy.scope():
                found = work(Loop(strategy), rank)
                strategy.extended.job.finish()
            return found

        return in_threads(num_trainers, train)

    return run


@pytest.mark.parametrize(
    ("max_staleness", "num_trainers"), [(None, 1), (0, 1), (0, 2)], ids=["alone", "in step", "two"]
)
def test_a_loop_goes_on_from_what_it_has_saved(run, tmp_path, max_staleness, num_trainers):
    def straight(loop, rank):
        loop.train(0, 6)
        return loop.values()

    def first(loop, rank):
        loop.train(0, 3)
        loop.saved.save(tmp_path, 3, write=rank == 0)

    def second(loop, rank):
        loop.train(loop.saved.restore(tmp_path).step, 6)
        return loop.values()

    expected = run(max_staleness, num_trainers, straight)
    run(max_staleness, num_trainers, first)
    for values, like in zip(run(max_staleness, num_trainers, second), expected, strict=True):
        for one, other in zip(values, like, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_step_that_is_still_under_way_is_in_what_is_saved(run, tmp_path):
    def train(loop, rank):
        loop.train(0, 3)
        loop.saved.save(tmp_path, 3)
        return loop.values()

    (values,) = run(None, 1, train, overlaps=True)
    arrays = load(tmp_path / "model.ckpt-3").arrays()
    assert arrays["optimizer/adam/iterations"] == 3
    for name, value in zip(("model/out/kernel", "model/out/bias"), values, strict=False):
        np.testing.assert_array_equal(arrays[name], value)


@pytest.mark.parametrize("verb", ["save", "restore"])
def test_trainers_of_their_own_steps_have_no_moment_in_common(run, tmp_path, verb):
    """To restore would set back what the others have learned since."""

    def save(loop, rank):
        loop.saved.save(tmp_path, 0)

    def try_it(loop, rank):
        before = loop.values()
        with pytest.raises(RuntimeError, match=r"each of 2 trainers .*max_staleness=0"):
            loop.saved.save(tmp_path, 1) if verb == "save" else loop.saved.restore(tmp_path)
        assert load(tmp_path / "model.ckpt-0").step == 0
        assert not (tmp_path / "model.ckpt-1").exists()
        return [before, loop.values()]

    run(None, 1, save)
    for before, after in run(None, 2, try_it):
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)
