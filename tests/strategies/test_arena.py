"""Variables that an update changes together are what they would be if each was changed alone."""

import numpy as np
import pytest

from paceline import CentralStorageStrategy, GradientTape, MirroredStrategy
from paceline.autodiff import TensorLike, backward
from paceline.nn import optimizers
from paceline.strategies import Variable, get_strategy, set_seed, to_host

SHAPES = [(3, 4), (4,), (), (5, 2), (70_001,), (2, 1, 3), (7,)]
OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.1),
    "amsgrad": lambda: optimizers.Adam(0.1, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.1),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "rmsprop": lambda: optimizers.RMSprop(0.1, momentum=0.5, centered=True),
    "ftrl": lambda: optimizers.Ftrl(0.1, learning_rate_power=-0.7, l1_regularization_strength=0.1),
    "adadelta": lambda: optimizers.Adadelta(0.1),
    "adamax": lambda: optimizers.Adamax(0.1),
    "nadam": lambda: optimizers.Nadam(0.1),
    "lion": lambda: optimizers.Lion(0.1),
    "lamb": lambda: optimizers.Lamb(0.1),
    "adafactor": lambda: optimizers.Adafactor(0.1),
    "average": lambda: optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
    "decay": lambda: optimizers.SGD(0.1, weight_decay=0.1),
    "clipnorm": lambda: optimizers.SGD(0.1, clipnorm=0.5),
    "clipvalue": lambda: optimizers.Adam(0.1, clipvalue=0.5),
    "global_clipnorm": lambda: optimizers.Adam(0.1, global_clipnorm=0.5),
    "accumulation": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "scaled": lambda: optimizers.Adam(0.1, loss_scale_factor=1024.0),
    "loss_scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.1)),
}


def make_variables(apart, shapes=SHAPES):
    set_seed(1)
    rng = np.random.default_rng(1)
    made = [
        Variable(rng.normal(size=s).astype(np.float32), name=f"v{i}") for i, s in enumerate(shapes)
    ]
    for variable in made if apart else ():
        variable.cell.is_apart = True
    return made


def loss_of(variables, step):
    rng = np.random.default_rng(step)
    factors = [rng.normal(size=v.shape).astype(np.float32) for v in variables]
    return sum(np.sum(v * v * f) for v, f in zip(variables, factors, strict=True))


def values(variables):
    return [v.numpy().copy() for v in variables]


def assert_same(ones, others):
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_array_equal(one, other)


def array_of(value):
    return value.tensor().data if isinstance(value, TensorLike) else value


def trained(make, apart, num_steps=5, exclude=()):
    variables, optimizer = make_variables(apart), make()
    if exclude:
        optimizer.exclude_from_weight_decay(var_names=exclude)
    for step in range(num_steps):
        optimizer.minimize(loss_of(variables, step), var_list=variables)()
    return values([*variables, *optimizer.variables])


def are_joined(variables):
    return variables[0].leaf(0).data.base is variables[1].leaf(0).data.base is not None


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_es15_every_optimizer_does_the_same_to_variables_together_and_alone(make):
    assert_same(trained(make, apart=False), trained(make, apart=True))


def test_es15_variables_without_weight_decay_are_changed_by_the_rule_without():
    make = lambda: optimizers.AdamW(0.1, weight_decay=0.5)  # noqa: E731
    for exclude in (["v1"], ["v[01]"], ["v5"]):
        together, alone = (trained(make, apart, exclude=exclude) for apart in (False, True))
        assert_same(together, alone)


@pytest.mark.host
def test_es15_they_lie_in_one_array_from_the_first_update_on():
    variables, optimizer = make_variables(apart=False), optimizers.Adam(0.1)
    assert not are_joined(variables)
    for step in range(2):
        optimizer.minimize(loss_of(variables, step), var_list=variables)()
        assert are_joined(variables)
    slots = [optimizer.get_slot(v, "m") for v in variables]
    assert are_joined(slots)


def assigned(variable, step):
    variable.assign(np.full(variable.shape, step, np.float32))


def assigned_once(variable, step):
    if step == 2:
        variable.assign_add(np.ones(variable.shape, np.float32))


def kept_and_assigned(variable, step):
    kept = variable.value()
    assigned(variable, step)
    return kept


EVENTS = {
    "nothing": lambda v, i: None,
    "assigned": assigned,
    "assigned once": assigned_once,
    "kept": lambda v, i: v.value(),
    "kept once": lambda v, i: v.value() if i == 2 else None,
    "transposed": lambda v, i: np.transpose(v),
    "all copies": lambda v, i: v.strategy.experimental_local_results(v)[0],
    "kept, then assigned": kept_and_assigned,
    "numpy()": lambda v, i: v.numpy(),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=list(EVENTS))
@pytest.mark.parametrize("which", [[0], [1, 3], range(7)], ids=["first", "two", "all"])
def test_es15_what_is_done_to_them_between_updates_counts_and_what_is_kept_stays(event, which):
    def run(apart):
        variables, optimizer, kept = make_variables(apart), optimizers.Adam(0.1), []
        for step in range(6):
            optimizer.minimize(loss_of(variables, step), var_list=variables)()
            found = [event(variables[i], step) for i in which]
            kept += [(array_of(k), array_of(k).copy()) for k in found if k is not None]
        for array, before in kept:
            np.testing.assert_array_equal(to_host(array), to_host(before))
        return values([*variables, *optimizer.variables])

    assert_same(run(apart=False), run(apart=True))


@pytest.mark.host
def test_es15_one_that_is_kept_in_each_step_leaves_the_others_together():
    variables, optimizer = make_variables(apart=False), optimizers.SGD(0.1)
    arrays = []
    for step in range(6):
        optimizer.minimize(loss_of(variables, step), var_list=variables)()
        arrays.append(variables[3].value())
        arrays.append([v.leaf(0).data.base for v in variables])
    last, before = arrays[-1], arrays[-3]
    assert last[0] is last[2] is before[0]
    assert last[5] is last[6] is before[5]
    assert last[3] is not last[0]


def test_es15_a_large_variable_stays_where_it_is():
    variables, optimizer = make_variables(apart=False), optimizers.SGD(0.1)
    array = variables[4].leaf(0).data
    for step in range(2):
        optimizer.minimize(loss_of(variables, step), var_list=variables)()
    assert variables[4].leaf(0).data is array


def test_es15_one_that_has_no_gradient_in_a_step_stays_as_it_is():
    def run(apart):
        variables, optimizer = make_variables(apart), optimizers.Adam(0.1)
        for step in range(6):
            used = variables[1:] if step % 2 else variables
            before = variables[0].numpy().copy()
            optimizer.minimize(loss_of(used, step), var_list=variables)()
            assert np.array_equal(variables[0].numpy(), before) == bool(step % 2)
        return values([*variables, *optimizer.variables])

    assert_same(run(apart=False), run(apart=True))


def test_es15_two_optimizers_may_have_variables_in_common():
    def run(apart):
        variables = make_variables(apart)
        first, second = optimizers.SGD(0.1, momentum=0.9), optimizers.Adam(0.1)
        for step in range(5):
            first.minimize(loss_of(variables, step), var_list=variables[:4])()
            second.minimize(loss_of(variables, step + 10), var_list=variables[2:])()
        return values([*variables, *first.variables, *second.variables])

    assert_same(run(apart=False), run(apart=True))


def test_es15_who_has_borrowed_one_is_asked_before_it_is_changed():
    variables, optimizer, copies = make_variables(apart=False), optimizers.SGD(0.1), []
    for step in range(4):
        optimizer.minimize(loss_of(variables, step), var_list=variables)()
        leaf = variables[1].leaf(0)
        array, before = leaf.data, leaf.data.copy()
        leaf.lend(lambda array=array, before=before: copies.append((array.copy(), before)))
    assert len(copies) == 3
    for copy, before in copies:
        np.testing.assert_array_equal(copy, before)


def test_es15_a_loss_from_before_an_update_has_no_gradient_any_more():
    variables, optimizer = make_variables(apart=False), optimizers.SGD(0.1)
    for step in range(3):
        old = loss_of(variables, step)
        optimizer.minimize(loss_of(variables, step), var_list=variables)()
        with pytest.raises(RuntimeError, match="changed in place after"):
            backward(old)


def test_es15_a_persistent_tape_answers_behind_updates():
    def run(apart):
        variables, optimizer, found = make_variables(apart), optimizers.SGD(0.1), []
        with GradientTape(persistent=True) as tape:
            loss = loss_of(variables, 0)
        for _ in range(3):
            gradients = tape.gradient(loss, variables)
            found += [np.array(g) for g in gradients]
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return found + values(variables)

    assert_same(run(apart=False), run(apart=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"]),
        lambda: CentralStorageStrategy(["CPU:0", "CPU:1"]),
        get_strategy,
    ],
    ids=["mirrored", "central", "default"],
)
def test_es15_on_several_replicas_copies_stay_equal(make):
    def run(apart):
        strategy = make()
        with strategy.scope():
            variables, optimizer = make_variables(apart), optimizers.Adam(0.1)
        for step in range(4):
            strategy.run(
                lambda: optimizer.minimize(loss_of(variables, step), var_list=variables)()  # noqa: B023
            )
            if step == 1:
                variables[1].assign(np.zeros(variables[1].shape, np.float32))
        for v in variables:
            for copy in v.local_values():
                np.testing.assert_array_equal(copy, v.numpy())
        return values([*variables, *optimizer.variables])

    assert_same(run(apart=False), run(apart=True))
