"""A model that predicts or evaluates before it is trained has its weights where it is trained."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, optimizers
from paceline.strategies import MirroredStrategy, VariableStore

from ..threads import in_threads

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def fitted(strategy, first):
    """The weights after `fit`, and of how many copies each was before; without a seed."""
    with VariableStore().building():
        with strategy.scope():
            model = Sequential([layers.Dense(4, "tanh"), layers.Dense(1)])
            model.compile("sgd", "mse")
        arguments = (X,) if first == "predict" else (X, Y)
        getattr(model, first)(*arguments, verbose=0)
        num_copies = {weight.num_copies for weight in model.weights}
        model.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        return model.get_weights(), num_copies


def on_servers(server_job, call):
    job = server_job(2, 2, 0)
    return in_threads(2, lambda rank: call(job.strategy(rank), rank))


@pytest.mark.parametrize("first", ["predict", "evaluate"])
@pytest.mark.parametrize("place", ["two replicas", "two workers", "servers in step"])
def test_each_replica_and_worker_trains_the_same_model(on_workers, server_job, place, first):
    def call(strategy, _=0):
        return fitted(strategy, first)

    if place == "two replicas":
        found = [call(MirroredStrategy(["CPU:0", "CPU:1"]))]
        assert found[0][1] == {2}
    elif place == "two workers":
        found = on_workers(2, 1, call)
    else:
        found = on_servers(server_job, call)
    for weights, _ in found[1:]:
        for own, of_first in zip(weights, found[0][0], strict=True):
            np.testing.assert_array_equal(own, of_first)


def test_a_trainer_is_not_to_train_variables_of_its_own_beside_the_servers(server_job):
    strategy = server_job(1, 1).strategy()
    with VariableStore().building():
        variable = pl.Variable(1.0, name="own")
        with strategy.scope():
            optimizer = optimizers.SGD(0.1)
        pairs = [(np.ones((), np.float32), variable)]
        with pytest.raises(ValueError, match=r"not on the parameter servers \(own\): each trainer"):
            strategy.run(optimizer.apply_gradients, (pairs,))
