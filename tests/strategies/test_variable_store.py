"""Variables by name, and who has a say in creating them: MB-23 and the store."""

import gc
import threading
from functools import partial
from weakref import ref

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices, leaves
from paceline.nn import Sequential, layers, optimizers
from paceline.strategies import (
    DEFAULT_STRATEGY,
    MirroredStrategy,
    Variable,
    VariableAggregation,
    VariableStore,
    VariableSynchronization,
    current_store,
    get_or_create_global_step,
    get_replica_context,
    get_variable,
    in_cross_replica_context,
    set_seed,
    variable_creator_scope,
)
from paceline.strategies.variables.membership import Membership

from ..threads import in_threads


def ones(shape, dtype, rng):
    return np.ones(shape, dtype)


@pytest.fixture
def store():
    return VariableStore(seed=1)


def test_a_variable_is_created_and_then_found(store, every_strategy):
    with every_strategy.scope(), store.building():
        variable = get_variable("w", (2, 3), initializer=ones)
    with store.building():
        assert get_variable("w") is get_variable("w", (2, 3)) is variable
    assert store.variables == {"w": variable}
    assert variable.dtype == np.float32
    assert variable.numpy().tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"shape": (3, 2)}, r"'w' has shape \(2, 3\) and is asked for with shape \(3, 2\)"),
        ({"shape": ()}, r"asked for with shape \(\)"),
        ({"dtype": np.float64}, "'w' has dtype float32 and is asked for with dtype float64"),
    ],
)
def test_what_contradicts_the_variable_found_is_refused(arguments, error, store):
    with store.building():
        get_variable("w", (2, 3))
        with pytest.raises(ValueError, match=error):
            get_variable("w", **arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, r"does not exist yet, and its shape is not given; pass shape=\(...\)"),
        ({"initializer": ones}, "its shape is not given"),
        (
            {"shape": (3,), "initializer": np.zeros(2)},
            r"asked for with shape \(3,\), and its initializer gives shape \(2,\)",
        ),
        (
            {"shape": (3,), "initializer": lambda shape, dtype, rng: np.zeros(4)},
            r"its initializer gives shape \(4,\)",
        ),
    ],
)
def test_a_variable_that_cannot_be_created_is_not_left_behind(arguments, error, store):
    with store.building(), pytest.raises(ValueError, match=error):
        get_variable("w", **arguments)
    assert not store.variables


def test_an_initializer_by_its_name_is_refused_with_the_way_to_write_it(store):
    error = r"variable 'w': initializer must be .* got 'zeros'; pass .*initializers.get\('zeros'\)"
    with store.building(), pytest.raises(TypeError, match=error):
        get_variable("w", (2,), initializer="zeros")


@pytest.mark.parametrize("value", ["zeros", None, object()], ids=["text", "nothing", "an object"])
def test_an_initial_value_must_be_a_number_or_an_array(value):
    with pytest.raises(TypeError, match="a number, an array or a tensor is needed"):
        Variable(value)


def test_slices_are_no_initial_value():
    with pytest.raises(TypeError, match="call to_dense"):
        Variable(IndexedSlices(np.ones((1, 1)), np.array([0]), (2, 1)))


@pytest.mark.parametrize(
    ("arguments", "dtype", "values"),
    [
        ({"shape": (2,), "initializer": 3.0}, np.float32, [3.0, 3.0]),
        ({"shape": (2,), "initializer": 3}, np.int64, [3, 3]),
        ({"initializer": [1.0, 2.0]}, np.float32, [1.0, 2.0]),
        ({"initializer": np.array([1.0, 2.0])}, np.float64, [1.0, 2.0]),
        ({"initializer": np.array([1, 2], np.int8)}, np.int8, [1, 2]),
        ({"initializer": [1, 2], "dtype": np.float64}, np.float64, [1.0, 2.0]),
        ({"shape": (2,), "initializer": ones, "dtype": np.bool_}, np.bool_, [True, True]),
        ({"shape": (2,)}, np.float32, [0.0, 0.0]),
        ({"shape": [2], "dtype": "int32"}, np.int32, [0, 0]),
        ({"shape": (0,)}, np.float32, []),
    ],
)
def test_initial_values(arguments, dtype, values, store):
    with store.building():
        variable = get_variable("w", **arguments)
    assert (variable.dtype, variable.numpy().tolist()) == (dtype, values)


def test_matrices_begin_with_glorots_uniform_distribution(store):
    with store.building():
        value = get_variable("w", (3, 3, 40, 60)).numpy()
    limit = np.sqrt(6 / (9 * 100))
    assert np.abs(value).max() <= limit
    assert np.abs(value).max() > 0.99 * limit
    assert abs(value.mean()) < limit / 50


def test_initial_values_depend_on_seed_and_name_but_not_on_the_order():
    def values(seed, names):
        store = VariableStore(seed)
        with store.building():
            return {name: get_variable(name, (4, 4)).numpy().tolist() for name in names}

    assert values(1, "ab") == values(1, "ba")
    assert values(1, "ab")["a"] != values(1, "ab")["b"]
    assert values(1, "a") != values(2, "a")
    assert values(None, "a") != values(None, "a")


def test_all_copies_begin_equal(several_replicas, store):
    with several_replicas.scope(), store.building():
        variable = get_variable("w", (4, 4))
    first, *others = variable.local_values()
    assert all(np.array_equal(first, other) for other in others)


def test_names_are_made_unique(store):
    with store.building():
        names = [Variable(0.0, name=name).name for name in ("a", "b", "a", "a", None, None)]
    assert names == ["a", "b", "a_1", "a_2", "Variable", "Variable_1"]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (["a", "a", "a_1"], ["a", "a_1", "a_1_1"]),
        (["a_1", "a", "a"], ["a_1", "a", "a_2"]),
        (["a", "a_1", "a", "a_2", "a"], ["a", "a_1", "a_2", "a_2_1", "a_3"]),
        (["a_1", "a_1", "a", "a"], ["a_1", "a_1_1", "a", "a_2"]),
    ],
)
def test_a_name_made_unique_is_not_one_that_was_asked_for(asked, given, store):
    """In the same and in the next call of the model, each variable is its own."""
    for _ in range(2):
        with store.building():
            made = [Variable(float(i), name=name) for i, name in enumerate(asked)]
        assert [v.name for v in made] == given
        assert [v.numpy() for v in made] == [*range(len(asked))]


def test_layers_with_and_without_names_of_their_own_share_nothing(store):
    with store.building():
        made = [layers.Dense(2, name="dense_1"), layers.Dense(2), layers.Dense(2)]
        for layer in made:
            layer(np.ones((1, 3), np.float32))
    assert [layer.name for layer in made] == ["dense_1", "dense", "dense_2"]
    assert len({id(layer.weights[0]) for layer in made}) == 3


def test_each_call_of_a_model_finds_what_the_first_one_made(store, every_strategy):
    def model():
        with store.building():
            return [Variable(lambda: calls.append(1) or 0.0), Variable(0.0, name="b")]

    calls = []
    with every_strategy.scope():
        first, second = model(), model()
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert calls == [1]


def test_a_model_that_changes_a_shape_is_told_so(store):
    for size in 2, 3:
        with store.building():
            if size == 3:
                with pytest.raises(ValueError, match=r"'w' has shape \(2,\) and is asked for"):
                    Variable(np.zeros(3), name="w")
            else:
                Variable(np.zeros(2), name="w")


def test_models_nest_and_do_not_see_each_other(store):
    other = VariableStore()
    with store.building():
        outer = Variable(0.0, name="w")
        with other.building():
            inner = Variable(0.0, name="w")
        assert current_store() is store
        assert Variable(0.0, name="w").name == "w_1"
    assert (outer.name, inner.name) == ("w", "w")
    assert outer is not inner


def test_replicas_that_build_a_model_share_its_variables(several_replicas, store):
    n = several_replicas.num_replicas_in_sync
    drawn = []

    def draw(shape, dtype, rng):
        drawn.append(shape)
        return np.ones(shape, dtype)

    def step():
        with store.building():
            made = [get_variable(f"w{i}", (2,), initializer=draw) for i in range(20)]
            made += [Variable(0.0) for _ in range(20)]
        return [made]

    per_replica = several_replicas.run(lambda: tuple(map(id, step()[0])))
    assert all(len(set(ids.values)) == 1 for ids in per_replica)
    assert len(drawn) == 20
    assert len(store.variables) == 40
    assert all(v.num_copies == n for v in store.variables.values())


def test_replicas_that_create_variables_outside_a_model_share_them_too(several_replicas):
    """Names are counted alike in all replicas, whichever comes first."""
    kept = []

    def step():
        variables = [Variable(float(i), name="outside a model") for i in range(5)]
        kept.append(variables)
        return tuple(variable.name for variable in variables)

    for _ in range(10):
        per_replica = several_replicas.run(step)
        assert all(len(set(names.values)) == 1 for names in per_replica)
    assert len({v.name for variables in kept for v in variables}) == 50


def test_variables_are_created_in_cross_replica_context(every_strategy, store):
    """Nothing in it can wait for other replicas, which may be waiting for the variable."""

    def initializer(shape, dtype, rng):
        assert in_cross_replica_context()
        return np.zeros(shape, dtype)

    def step():
        with store.building():
            get_variable("w", (1,), initializer=initializer)
            Variable(lambda: float(in_cross_replica_context()), name="v")
        return get_replica_context() is not None

    assert all(every_strategy.experimental_local_results(every_strategy.run(step)))
    assert float(store.variables["v"]) == 1.0


def test_an_initializer_that_fails_in_one_replica_fails_the_run(two_replicas, store):
    def initializer(shape, dtype, rng):
        raise ZeroDivisionError

    def step():
        with store.building():
            get_variable("w", (1,), initializer=initializer)

    with pytest.raises(ZeroDivisionError):
        two_replicas.run(step)
    assert not store.variables


def test_two_threads_that_create_variables_outside_models_get_unique_names():
    start = threading.Barrier(4)
    made = []

    def create():
        start.wait(timeout=30)
        made.append([Variable(0.0, name="threads") for _ in range(200)])

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({v.name for variables in made for v in variables}) == 800


def test_a_variable_is_gone_with_its_last_holder_and_not_later(several_replicas):
    gc.disable()
    try:
        with several_replicas.scope():
            variable = Variable([1.0])
        gone = ref(variable)
        loss = np.sum(variable * 2.0)
        assert next(iter(leaves(loss))).owner is variable
        del variable
        assert gone() is None
        assert next(iter(leaves(loss))).owner is None
    finally:
        gc.enable()


def test_a_variable_found_must_suit_the_strategy_that_asks(mirrored):
    two, four = mirrored(2), mirrored(4)
    held = two.run(lambda: [get_or_create_global_step()])
    with pytest.raises(RuntimeError, match=r"'global_step' was created in .*4 repl"):
        four.run(get_or_create_global_step)
    del held
    gc.collect()  # without the GIL the thread that made it lets go of it later
    assert four.run(lambda: get_or_create_global_step().num_copies).values == (4,) * 4


def test_outside_models_a_variable_lives_as_long_as_somebody_holds_it():
    variable = get_variable("held by a test", (2,), initializer=ones)
    assert get_variable("held by a test") is variable
    del variable
    assert "held by a test" not in current_store().variables
    assert get_variable("held by a test", (3,)).shape == (3,)


def test_a_store_keeps_its_variables(store):
    with store.building():
        get_variable("w", (2,), initializer=ones).assign([5.0, 6.0])
    with store.building():
        assert list(get_variable("w").numpy()) == [5.0, 6.0]


def test_restored_values_take_the_place_of_initial_ones(several_replicas):
    asked = []

    def restore(name, value, trainable):
        asked.append((name, value.shape, value.dtype, trainable))
        return {"a": np.array([7.0, 8.0]), "total": np.array(9.0)}.get(name)

    store = VariableStore(restore=restore)
    with several_replicas.scope(), store.building():
        a = get_variable("a", (2,))
        b = get_variable("b", (2,), initializer=ones)
        c = get_variable("c", (2,), initializer=ones, saved=False)
        total = Variable(
            0.0,
            name="total",
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )
    assert [name for name, *_ in asked] == ["a", "b", "total"]
    assert asked[0] == ("a", (2,), np.float32, True)
    assert asked[2][3] is False
    assert a.dtype == np.float32
    assert [v.tolist() for v in a.local_values()] == [[7.0, 8.0]] * a.num_copies
    assert b.numpy().tolist() == c.numpy().tolist() == [1.0, 1.0]
    assert total.item() == 9.0


def test_saved_values_are_those_outside_replicas(several_replicas, store):
    with several_replicas.scope(), store.building():
        Variable(1.0, name="a")
        Variable(1.0, name="b", saved=False)
        total = Variable(
            0,
            name="total",
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )
    several_replicas.run(lambda: total.assign_add(1))
    with several_replicas.scope():
        assert store.saved_values() == {"a": 1.0, "total": several_replicas.num_replicas_in_sync}


def test_trainable_variables_come_in_the_order_of_their_creation(store):
    with store.building():
        for name in "cab":
            get_variable(name, (1,))
        get_variable("fixed", (1,), trainable=False)
    assert [v.name for v in store.trainable_variables()] == ["c", "a", "b"]


def test_other_things_that_belong_to_a_model_are_found_by_key(several_replicas, store):
    class Thing:
        pass

    made = []

    def create():
        made.append(Thing())
        return made[-1]

    found = several_replicas.run(lambda: store.find_or_create(("thing", 1), create))
    assert set(found) == set(made)
    assert len(made) == 1


def test_mb_17_the_global_step_is_one_whole_number_per_model(store, every_strategy):
    with every_strategy.scope(), store.building():
        step = get_or_create_global_step()
        assert get_or_create_global_step() is step
    assert (step.name, step.dtype, step.shape, int(step)) == ("global_step", np.int64, (), 0)
    assert not step.trainable
    every_strategy.run(lambda: step.assign_add(1))
    assert int(step) == 1


def test_set_seed_seeds_variables_outside_models():
    def value():
        return get_variable("seeded by a test", (4, 4)).numpy()

    try:
        set_seed(5)
        first = value()
        assert np.array_equal(first, value())
        set_seed(6)
        assert not np.array_equal(first, value())
    finally:
        set_seed(None)


def test_set_seed_begins_names_anew_and_the_same_code_gives_the_same_model():
    def cell():
        set_seed(7)
        model = Sequential([layers.Dense(4), layers.Dense(2)])
        optimizer = optimizers.Adam(0.1)
        return model, optimizer

    def step(model, optimizer):
        loss = np.sum(np.square(model(np.ones((2, 3), np.float32))))
        optimizer.minimize(loss)()

    try:
        first, first_optimizer = cell()
        step(first, first_optimizer)
        after_one_step = first.get_weights()
        second, second_optimizer = cell()
        assert [w.name for w in second.weights] == []
        step(second, second_optimizer)
        assert [w.name for w in second.weights] == [w.name for w in first.weights]
        for ours, theirs in zip(second.get_weights(), after_one_step, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        # The first one goes on as it is, with slots of its own.
        step(first, first_optimizer)
        for now, then in zip(second.get_weights(), after_one_step, strict=True):
            np.testing.assert_array_equal(now, then)
        assert int(first_optimizer.iterations) == 2
        assert int(second_optimizer.iterations) == 1
        ours, theirs = first_optimizer.variables, second_optimizer.variables
        assert [v.name for v in ours] == [v.name for v in theirs]
        assert not {id(v) for v in ours} & {id(v) for v in theirs}
    finally:
        set_seed(None)


def test_mb_23_a_creator_sees_and_may_change_each_creation(every_strategy):
    seen = []

    def creator(next_creator, **kwargs):
        seen.append(kwargs["name"])
        return next_creator(**{**kwargs, "trainable": False})

    with every_strategy.scope(), variable_creator_scope(creator):
        variable = Variable(1.0, name="seen by a creator")
    assert seen == [variable.name]
    assert not variable.trainable
    assert variable.num_copies == len(every_strategy.extended.parameter_devices)


def test_mb_23_creators_nest_with_the_innermost_asked_first():
    order = []

    def creator(name):
        def create(next_creator, **kwargs):
            order.append(f"{name} in")
            variable = next_creator(**kwargs)
            order.append(f"{name} out")
            return variable

        return create

    with variable_creator_scope(creator("outer")), variable_creator_scope(creator("inner")):
        Variable(1.0)
    assert order == ["inner in", "outer in", "outer out", "inner out"]
    Variable(1.0)
    assert len(order) == 4


def test_mb_23_a_creator_may_change_the_value_and_holds_in_replicas(several_replicas, store):
    def creator(next_creator, **kwargs):
        initial_value = kwargs.pop("initial_value")
        given = initial_value() if callable(initial_value) else initial_value
        return next_creator(initial_value=np.asarray(given) + 1, **kwargs)

    def step():
        with store.building():
            get_variable("w", (2,), initializer=ones)

    with variable_creator_scope(creator):
        several_replicas.run(step)
    assert store.variables["w"].numpy().tolist() == [2.0, 2.0]


def test_the_default_strategy_places_a_single_copy():
    assert Variable(1.0).num_copies == 1
    assert Variable(1.0).strategy is DEFAULT_STRATEGY


def test_variables_are_as_created_once_and_what_is_assigned_then_stays(store, two_replicas):
    with two_replicas.scope(), store.building():
        moved = get_variable("moved", (2,), initializer=ones)
        chosen = get_variable("chosen", (2,), initializer=ones)
        for variable in (moved, chosen):
            variable.assign([5.0, 6.0])
        with store.as_created():
            assert [copy.tolist() for copy in moved.local_values()] == [[1.0, 1.0]] * 2
            chosen.assign([7.0, 8.0])
        assert [copy.tolist() for copy in moved.local_values()] == [[5.0, 6.0]] * 2
        assert [copy.tolist() for copy in chosen.local_values()] == [[7.0, 8.0]] * 2
        with store.as_created():
            assert moved.numpy().tolist() == [5.0, 6.0]


def test_what_another_replica_assigns_as_soon_as_it_finds_a_variable_is_not_its_beginning(store):
    class AssignedAtOnce(dict):
        def __setitem__(self, name, variable):
            super().__setitem__(name, variable)
            variable.assign([5.0, 6.0])

    store.variables = AssignedAtOnce()
    with store.building():
        variable = get_variable("moved", (2,), initializer=ones)
        with store.as_created():
            assert variable.numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_what_was_lent_is_copied_before_a_step_changes_it(num_replicas, sparse):
    strategy = MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    store, optimizer = VariableStore(), optimizers.SGD(0.5, momentum=0.9)
    copies = {}

    def lend():
        with strategy.scope():
            values = store.saved_values()
        store.lend(
            {n: partial(lambda n, v: copies.setdefault(n, v.copy()), n, values[n]) for n in values}
        )
        return {name: value.copy() for name, value in values.items()}

    def step():
        with store.building():
            table = get_variable("table", (5, 2), initializer=ones)
            loss = np.sum(table[np.array([0, 3])] if sparse else np.square(table))
            optimizer.minimize(loss)()

    with strategy.scope():
        strategy.run(step)
        for _ in range(2):
            copies.clear()
            expected = lend()
            strategy.run(step)
            changed = {name for name in expected if "table" in name}
            assert len(changed) == 2
            for name in changed:
                np.testing.assert_array_equal(copies[name], expected[name])
                assert not np.array_equal(store.variables[name].numpy(), expected[name])


def test_replicas_that_enter_a_model_at_once_keep_the_same():
    """Of a layer made outside: one would else look at what is there while it is still empty."""
    both = threading.Barrier(2, timeout=20)

    def begin(name):
        if current_store() is model:
            both.wait()  # each has seen that nothing is kept of this model yet
        return [name]

    def enter(replica):
        model.build_for_good()  # as replicas do: each counts names for itself
        return membership.here(owner)

    owner, model = layers.Flatten(), VariableStore()
    membership = Membership(owner, "layer", begin)
    first, second = in_threads(2, enter)
    assert first is second is membership.latest
