"""What replicas do together: ST-24 to ST-27."""

from functools import partial

import numpy as np
import pytest

from paceline.autodiff import GradientTape, IndexedSlices, Tensor
from paceline.nn import optimizers
from paceline.observe import forget_logged
from paceline.strategies import (
    CommunicationOptions,
    Variable,
    VariableStore,
    get_replica_context,
)


def replica_id():
    return get_replica_context().replica_id_in_sync_group


def all_reduce(op, value):
    return get_replica_context().all_reduce(op, value)


def in_each_replica(strategy, step):
    """What `step()` returns in each replica, in their order, with its structure as it is."""
    results = {}

    def collect():
        results[replica_id()] = step()

    strategy.run(collect)
    return [results[i] for i in range(strategy.num_replicas_in_sync)]


def test_st_27_what_a_replica_knows_of_itself(every_strategy):
    n = every_strategy.num_replicas_in_sync
    contexts = in_each_replica(every_strategy, get_replica_context)
    for i, context in enumerate(contexts):
        assert context.replica_id_in_sync_group == i
        assert context.num_replicas_in_sync == n
        assert context.strategy is every_strategy
        assert context.devices == (every_strategy.extended.worker_devices[i],)
        assert str(context.device) == context.devices[0]


def test_g_09_st_24_the_sum_of_ids_on_every_replica(every_strategy):
    n = every_strategy.num_replicas_in_sync
    totals = in_each_replica(every_strategy, lambda: all_reduce("SUM", replica_id()))
    assert totals == [sum(range(n))] * n
    assert not any(isinstance(total, (int, np.generic)) for total in totals)


@pytest.mark.parametrize("op", ["SUM", "mean"])
def test_st_24_nested_structures_in_one_call(op, every_strategy):
    n = every_strategy.num_replicas_in_sync
    factor = n if op == "SUM" else 1

    def step():
        value = {"a": [Tensor(np.ones(3)), 1.0], "b": (np.ones((2, 2), np.float32),)}
        return all_reduce(op, value)

    for result in in_each_replica(every_strategy, step):
        np.testing.assert_array_equal(result["a"][0], np.full(3, factor))
        assert result["a"][1] == factor
        np.testing.assert_array_equal(result["b"][0], np.full((2, 2), factor))
        assert result["b"][0].dtype == np.float32


def test_st_24_a_variable_is_its_copy_of_the_replica(several_replicas):
    with several_replicas.scope():
        variable = Variable(3.0)
    n = several_replicas.num_replicas_in_sync
    assert set(several_replicas.run(lambda: all_reduce("SUM", variable).item())) == {3.0 * n}


def test_st_24_every_replica_owns_its_result(every_strategy):
    """A result may be overwritten, and so may what a replica gave, while others still compute."""
    n = every_strategy.num_replicas_in_sync

    def step():
        mine = np.empty(20_000)
        for round_index in range(20):
            mine.fill(replica_id() + round_index)
            total = all_reduce("SUM", mine)
            assert (total == sum(range(n)) + n * round_index).all()
            total.fill(-1)

    every_strategy.run(step)


def test_st_24_slices_are_reduced_as_slices(two_replicas):
    def step():
        row = np.array([replica_id(), 2])
        total = all_reduce("SUM", IndexedSlices(np.ones((2, 1), np.float32), row, (3, 1)))
        return total.values, total.to_dense()

    (first, whole), (second, other) = in_each_replica(two_replicas, step)
    for total in whole, other:
        np.testing.assert_array_equal(total, [[1], [1], [2]])
    assert first is not second


def test_st_24_sums_are_made_in_replica_order(mirrored):
    """Float addition depends on the order, so the same bits each time need the same order."""
    values = np.array([1e16, 1.0, -1e16, 1.0])
    expected = ((values[0] + values[1]) + values[2]) + values[3]
    strategy = mirrored(4)
    for _ in range(20):
        totals = in_each_replica(strategy, lambda: all_reduce("SUM", values[replica_id()]))
        assert totals == [expected] * 4


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (lambda: np.zeros(1 + replica_id()), r"different shapes \[\(1,\), \(2,\)\]"),
        (lambda: {"a": 1} if replica_id() else {"b": 1}, "structures differ"),
    ],
    ids=["shapes", "structures"],
)
def test_st_24_what_replicas_give_must_match(value, error, two_replicas):
    with pytest.raises(ValueError, match=error):
        two_replicas.run(lambda: all_reduce("SUM", value()))


def test_st_24_an_error_in_combining_reaches_all_and_the_next_call_too(two_replicas):
    """A replica that catches the error cannot go on as if nothing had happened."""
    caught = []

    def step():
        for _ in range(2):
            try:
                all_reduce("SUM", np.zeros(1 + replica_id()))
            except Exception as error:
                caught.append(type(error).__name__)

    two_replicas.run(step)
    assert sorted(caught) == ["ReplicaAbortedError"] * 3 + ["ValueError"]


@pytest.mark.parametrize("axis", [0, 1])
def test_st_25_lengths_along_the_axis_may_differ(axis, several_replicas):
    n = several_replicas.num_replicas_in_sync

    def step():
        shape = (replica_id() + 2, 3) if axis == 0 else (3, replica_id() + 2)
        return get_replica_context().all_gather({"x": np.full(shape, replica_id())}, axis=axis)

    expected = np.repeat(np.arange(n), np.arange(n) + 2)
    for result in in_each_replica(several_replicas, step):
        gathered = result["x"] if axis == 0 else result["x"].T
        np.testing.assert_array_equal(gathered, np.stack([expected] * 3, axis=1))


def test_st_25_two_rows_and_three_give_five(two_replicas):
    def step():
        return get_replica_context().all_gather(np.ones((2 + replica_id(), 1)), axis=0)

    assert [r.shape for r in in_each_replica(two_replicas, step)] == [(5, 1)] * 2


def test_st_25_every_replica_owns_what_it_gathered(two_replicas):
    first, second = in_each_replica(
        two_replicas, lambda: get_replica_context().all_gather(np.ones(2), axis=0)
    )
    first[:] = 0
    assert list(second) == [1] * 4


def test_st_25_gather_refuses_scalars_and_slices(every_strategy):
    one_row = IndexedSlices(np.ones((1, 1)), np.array([0]), (2, 1))
    for value, error in (1.0, "scalars"), (one_row, "IndexedSlices"):
        with pytest.raises(ValueError, match=error):
            every_strategy.run(lambda value=value: get_replica_context().all_gather(value, axis=0))


def test_st_26_merge_call_gives_all_arguments_to_one_call(every_strategy):
    n = every_strategy.num_replicas_in_sync
    calls = []

    def merge(strategy, ids, *, options):
        calls.append(strategy)
        assert strategy.experimental_local_results(options["factor"][0]) == (10,) * n
        return {"total": 10 * strategy.reduce("SUM", ids["id"]), "id": ids["id"]}

    def step():
        own = {"id": replica_id()}
        return get_replica_context().merge_call(merge, (own,), {"options": {"factor": (10,)}})

    results = in_each_replica(every_strategy, step)
    assert results == [{"total": 10 * sum(range(n)), "id": i} for i in range(n)]
    assert calls == [every_strategy]


def test_st_26_any_callable_can_merge(every_strategy):
    def merge(suffix, strategy):
        return f"merged{suffix}"

    step = lambda: get_replica_context().merge_call(partial(merge, "!"))  # noqa: E731
    assert set(in_each_replica(every_strategy, step)) == {"merged!"}


def test_st_26_an_error_in_the_merge_function_is_the_runs(two_replicas):
    def merge(strategy):
        raise KeyError("in the merge function")

    with pytest.raises(KeyError, match="in the merge function"):
        two_replicas.run(lambda: get_replica_context().merge_call(merge))


def test_st_26_a_replica_that_does_not_come_is_named(mirrored):
    def step():
        if replica_id() != 2:
            get_replica_context().merge_call(lambda strategy: None)

    with pytest.raises(RuntimeError, match="replica 2 has returned; all replicas must make"):
        mirrored(4).run(step)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda r: r.all_reduce("SUM", 1.0), lambda r: r.all_reduce("MEAN", 1.0)),
        (lambda r: r.all_gather(np.ones((1, 1)), 0), lambda r: r.all_gather(np.ones((1, 1)), 1)),
        (lambda r: r.all_reduce("SUM", 1.0), lambda r: r.merge_call(lambda strategy: None)),
    ],
    ids=["operations", "axes", "verbs"],
)
def test_replicas_that_part_ways_are_told_where_each_one_is(first, second, two_replicas):
    def step():
        (second if replica_id() else first)(get_replica_context())

    with pytest.raises(RuntimeError) as caught:
        two_replicas.run(step)
    assert "replica 0 is at all_" in str(caught.value)
    assert "replica 1 is at " in str(caught.value)


def test_st_24_outside_any_scope_there_is_one_replica():
    value = np.ones(2)
    total = get_replica_context().all_reduce("SUM", value)
    assert list(total) == [1, 1]
    assert total is not value


@pytest.mark.parametrize(
    ("verb", "arguments"), [("all_reduce", ("SUM", 1.0)), ("all_gather", (np.ones(1), 0))]
)
def test_st_24_options_that_are_the_strategys_are_warned_about_once(
    two_replicas, log_lines, verb, arguments
):
    forget_logged()
    small, ring = CommunicationOptions(bytes_per_pack=9), CommunicationOptions(links=["tcp"])
    warned = {"all_reduce": [small, ring, ring], "all_gather": [small, ring]}[verb]
    for options in (None, CommunicationOptions(), *warned):
        two_replicas.run(
            lambda options=options: getattr(get_replica_context(), verb)(
                *arguments, options=options
            )
        )
    (line,) = [line for line in log_lines() if "CommunicationOptions to the strategy" in line]
    assert ("only bytes_per_pack and timeout_seconds" in line) == (verb == "all_reduce")


def gradients(strategy, loss_of, values):
    """The gradient of the replicas' losses with respect to each replica's values."""

    def step():
        mine = Tensor(values[replica_id()], requires_grad=True)
        with GradientTape() as tape:
            tape.watch(mine)
            loss = loss_of(mine)
        return tape.gradient(loss, mine)

    return in_each_replica(strategy, step)


@pytest.mark.parametrize(("op", "factor"), [("SUM", 1.0), ("MEAN", 1 / 3)])
def test_st_24_gradients_flow_back_to_all_replicas(op, factor, mirrored):
    """loss_r = (r + 1) Σ y², y the sum: the loss of all is 6 Σ y², its gradient 12 y."""
    values = [np.array([1.0, 2.0]), np.array([3.0, 5.0]), np.array([-1.0, 0.5])]

    def loss_of(mine):
        return (replica_id() + 1.0) * np.square(all_reduce(op, {"x": mine})["x"]).sum()

    for gradient in gradients(mirrored(3), loss_of, values):
        np.testing.assert_allclose(gradient, factor * 12 * factor * sum(values), rtol=1e-15)


def test_st_25_gradients_of_a_joined_array_come_back_to_their_replica(mirrored):
    """loss_r = (r + 1) Σ i · y_i over the joined rows: what each gets is 6 i of its own rows."""

    def loss_of(mine):
        joined = get_replica_context().all_gather(mine, axis=0)
        return (replica_id() + 1.0) * (joined * np.arange(6.0)).sum()

    found = gradients(mirrored(3), loss_of, [np.ones(1), np.ones(2), np.ones(3)])
    assert [gradient.numpy().tolist() for gradient in found] == [[0], [6, 12], [18, 24, 30]]


def test_st_24_st_25_a_replica_that_stands_in_has_no_part_in_gradients(mirrored):
    def loss_of(mine):
        replica = get_replica_context()
        if replica_id() == 1:
            replica.stand_in()
        total, joined = replica.all_reduce("SUM", mine), replica.all_gather(mine, axis=0)
        assert joined.shape == (4,)
        return np.square(total).sum() + (joined * np.arange(4.0)).sum()

    values = [np.array([1.0, 2.0]), np.full(2, np.nan), np.array([3.0, 4.0])]
    first, stands_in, last = gradients(mirrored(3), loss_of, values)
    np.testing.assert_array_equal(first, 2 * (2 * np.array([4.0, 6.0])) + 2 * np.array([0.0, 1.0]))
    np.testing.assert_array_equal(last, 2 * (2 * np.array([4.0, 6.0])) + 2 * np.array([2.0, 3.0]))
    assert stands_in.shape == (2,)


def test_st_24_tensors_keep_their_dtype_and_say_where_it_is_too_narrow(two_replicas):
    total = two_replicas.run(lambda: all_reduce("SUM", Tensor(np.int32(replica_id()))))
    assert [(t.dtype, t.item()) for t in total] == [(np.int32, 1)] * 2
    with pytest.raises(OverflowError, match=r"tensors of int8 is beyond it; .*astype\(np.int64\)"):
        two_replicas.run(lambda: all_reduce("SUM", Tensor(np.int8(100))))


@pytest.mark.parametrize("lengths", [[3, 3], [4, 2], [6, 0]])
def test_st_24_gradients_from_others_count_by_their_examples(lengths, two_replicas):
    """The loss is the mean over examples of a (w Σx)²: a gradient of mean(a) · 2 w (Σx)²."""
    x, a = np.arange(1.0, 7.0), np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0])
    parts = np.split(np.arange(6), np.cumsum(lengths)[:-1])
    with VariableStore(averages_replicas=True).building(), two_replicas.scope():
        w, optimizer = Variable(np.float64(0.5)), optimizers.SGD(1e-4)

        def step():
            mine = parts[replica_id()]
            if not len(mine):
                get_replica_context().stand_in()
            total = all_reduce("SUM", w * x[mine].sum())
            mean = a[mine].mean() if len(mine) else np.nan
            optimizer.minimize(mean * np.square(total))(len(mine))

        two_replicas.run(step)
    # w is read on each replica for its own part: both gradients add up to that of the sum.
    expected = 0.5 - 1e-4 * a.mean() * 2 * 0.5 * x.sum() ** 2
    assert [float(copy) for copy in w.local_values()] == pytest.approx([expected] * 2, rel=1e-12)
