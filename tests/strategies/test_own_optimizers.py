"""Optimizers in Keras's manner, and `apply_gradients` after a sum of the caller's own (MB-15)."""

import numpy as np
import pytest

from paceline.nn import optimizers
from paceline.strategies import Variable, get_replica_context

RATE = 0.25


class Momentum(optimizers.Optimizer):
    """As a user of Keras 3 would write it."""

    def __init__(self, learning_rate=RATE, momentum=0.5, name="own", **options):
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.momentum = momentum

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.velocities = [self.add_variable_from_reference(v, "momentum") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        velocity = self.velocities[self._get_variable_index(variable)]
        velocity.assign(self.momentum * velocity - learning_rate * gradient)
        variable.assign_add(velocity)


class OldMomentum(optimizers.Optimizer):
    """As a user of Keras 2.15 would."""

    def __init__(self, learning_rate=RATE, momentum=0.5, name="own", **options):
        super().__init__(name, **options)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.momentum = momentum

    def build(self, var_list):
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self.velocities = []
        for variable in var_list:
            velocity = self.add_variable_from_reference(
                model_variable=variable, variable_name="momentum"
            )
            self.velocities.append(velocity)
        self._built = True

    def update_step(self, gradient, variable):
        velocity = self.velocities[self._index_dict[self._var_key(variable)]]
        velocity.assign(self.momentum * velocity - self.learning_rate * gradient)
        variable.assign_add(velocity)


class Slots(optimizers.Optimizer):
    """With `add_slot`."""

    def build(self, variables):
        for variable in variables:
            self.add_slot(variable, "momentum")
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate):
        velocity = self.get_slot(variable, "momentum")
        velocity.assign(0.5 * velocity - learning_rate * gradient)
        variable.assign_add(velocity)


OWN = {
    "Keras 3": lambda **options: Momentum(**options),
    "Keras 2.15": lambda **options: OldMomentum(**options),
    "slots": lambda **options: Slots(learning_rate=RATE, **options),
}
OPTIONS = {
    "plain": {},
    "with weight decay": {"weight_decay": 0.1},
    "with an average": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
    "accumulating": {"gradient_accumulation_steps": 2},
    "clipped": {"global_clipnorm": 0.5},
    "scaled": {"loss_scale_factor": 4.0},
}


def trained(strategy, optimizer):
    """Copies of two variables and how often each was updated, after five steps over replicas."""

    def step(x):
        mine = x[get_replica_context().local_index]
        loss = np.mean(np.square(mine @ v + w))
        optimizer.minimize(loss, var_list=[w, v])(len(mine))

    with strategy.scope():
        w, v = Variable(np.ones(2), name="w"), Variable(np.ones((3, 2)), name="v")
    rng = np.random.default_rng(0)
    for _ in range(5):
        strategy.run(step, ([rng.normal(size=(2, 3)) for _ in range(4)],))
    kept = (w, v, *sorted(optimizer.variables, key=lambda variable: variable.name))
    return [copy for variable in kept for copy in variable.local_values()]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("own", OWN)
def test_an_own_optimizer_does_what_the_rule_does(own, options, mirrored):
    for num_replicas in (1, 2):
        ours = optimizers.SGD(RATE, momentum=0.5, name="own", **OPTIONS[options])
        expected = trained(mirrored(num_replicas), ours)
        found = trained(mirrored(num_replicas), OWN[own](**OPTIONS[options]))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_an_own_optimizer_keeps_copies_equal_on_every_strategy_or_is_refused(every_strategy):
    if every_strategy.extended.remote_storage is not None:
        with pytest.raises(ValueError, match="Momentum has an update_step of its own, and param"):
            trained(every_strategy, Momentum())
        return
    found = trained(every_strategy, Momentum())
    for a, b in zip(found, trained(every_strategy, Slots(learning_rate=RATE)), strict=False):
        np.testing.assert_array_equal(a, b)


def test_an_own_optimizer_does_so_on_two_workers(on_workers):
    first, second = on_workers(2, 1, lambda strategy, index: trained(strategy, Momentum()))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_update_step_an_optimizer_says_what_is_missing():
    w = Variable(np.ones(2), name="w")
    with pytest.raises(NotImplementedError, match="Optimizer has no update_step"):
        optimizers.Optimizer().apply_gradients([(np.ones(2), w)])


@pytest.mark.parametrize("how", ["sums them", "sums them before", "by its old name", "by a method"])
def test_mb_15_who_has_summed_gradients_has_the_update_of_who_has_them_summed(how, make_strategy):
    strategy = make_strategy()

    def step():
        replica = get_replica_context()
        gradient = np.full(3, 1.0 + replica.replica_id_in_sync_group)
        if how == "sums them":
            optimizer.apply_gradients([(gradient, w), (None, unused)])
        elif how == "by a method":
            pairs = optimizer.aggregate_gradients([(gradient, w), (None, unused)])
            optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        else:
            gradient = replica.all_reduce("sum", gradient)
            old = how == "by its old name"
            options = {
                "experimental_aggregate_gradients" if old else "skip_gradients_aggregation": not old
            }
            optimizer.apply_gradients([(gradient, w), (None, unused)], **options)

    with strategy.scope():
        w, unused = Variable(np.ones(3), name="w"), Variable(np.ones(1), name="unused")
        optimizer = optimizers.SGD(RATE, momentum=0.5)
    for _ in range(2):
        strategy.run(step)
    n = strategy.num_replicas_in_sync
    total = n * (n + 1) / 2
    for copy in w.local_values():
        np.testing.assert_array_equal(copy, 1 - RATE * total * 2.5)
    assert unused.numpy() == 1
    assert int(optimizer.iterations) == 2
