"""Reduced gradients: buckets, weights, rows, and what happens when a step fails."""

import logging

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices
from paceline.strategies import (
    GradientReducer,
    MirroredStrategy,
    ReductionToOneDevice,
    Variable,
    get_replica_context,
)
from paceline.strategies.gradients.buckets import plan_buckets
from paceline.strategies.gradients.reduction import Share
from paceline.strategies.step import agree, reduce
from paceline.strategies.workers.joining import BYTES_PER_PACK


def make_variables(strategy, *shapes, dtype=np.float64):
    with strategy.scope():
        return [Variable(np.zeros(shape, dtype), name="v") for shape in shapes]


def make_reducer(strategy, variables, sparse=(), bytes_per_pack=BYTES_PER_PACK):
    extended = strategy.extended
    return GradientReducer(
        variables,
        frozenset(v.name for v in sparse),
        extended.num_local_replicas,
        extended.cross_device_ops,
        extended.workers,
        bytes_per_pack,
    )


def fill(reducer, this_round, variables, values, replica, into_buffers=False):
    """Fill a replica's share with `values` (None: no gradient) as the gradients of `variables`."""
    share = Share(this_round, reducer, replica)
    for variable, value in zip(variables, values, strict=True):
        if value is None:
            continue
        leaf = variable.leaf(replica)
        if into_buffers and leaf in share.into:
            share.into[leaf][...] = value
            value = share.into[leaf]
        share.take(leaf, value)
    share.end()


def reduce_once(strategy, reducer, variables, values, examples=None, average=True, **options):
    """Copies of what each replica reads after a round, to which it brought `values[replica]`."""
    results = {}

    def step():
        replica = get_replica_context()
        i = replica.local_index
        num_examples = examples[i] if examples else 1
        this_round = agree(replica, num_examples, average)
        fill(reducer, this_round, variables, values[i], i, **options)
        reduce(replica, this_round)
        results[i] = {v.name: copied(g) for v, g in reducer.reduced(i)}
        replica.exchange("the test has read", None)

    strategy.run(step)
    n = strategy.num_replicas_in_sync
    return [[results[i].get(v.name) for v in variables] for i in range(n)]


def copied(gradient):
    if isinstance(gradient, IndexedSlices):
        values, indices = np.array(gradient.values), np.array(gradient.indices)
        return IndexedSlices(values, indices, gradient.dense_shape)
    return gradient.copy()


def rows(indices, values, num_rows=4, dtype=np.float64):
    values = np.asarray(values, dtype).reshape(len(indices), 1)
    return IndexedSlices(values, np.asarray(indices, np.int64), (num_rows, 1))


def dense(gradient):
    return gradient.to_dense() if isinstance(gradient, IndexedSlices) else gradient


@pytest.mark.parametrize(
    ("sizes", "bytes_per_pack", "expected"),
    [
        ([], 64, []),
        ([4], 64, [[4]]),
        ([1, 1, 4, 4, 4], 64, [[1, 1], [4, 4], [4]]),
        ([1, 1, 8, 1], 64, [[1, 1], [8], [1]]),
        ([100, 1, 1], 64, [[100], [1, 1]]),
        ([1, 100, 1], 64, [[1, 100], [1]]),
        ([1, 1, 1], 1, [[1], [1], [1]]),
        ([4, 4], 1 << 20, [[4, 4]]),
        ([0, 0, 2, 0], 64, [[0, 0, 2], [0]]),
    ],
)
def test_a_bucket_is_closed_at_its_size_and_the_first_one_at_a_quarter(
    sizes, bytes_per_pack, expected, two_replicas
):
    variables = make_variables(two_replicas, *[(n,) for n in sizes])
    buckets = plan_buckets(variables, bytes_per_pack)
    assert [[v.size for v in bucket] for bucket in buckets] == expected
    assert [v for bucket in buckets for v in map(id, bucket)] == [*map(id, variables)]


def test_a_bucket_has_one_dtype(two_replicas):
    wide = make_variables(two_replicas, (1,), (1,), dtype=np.float64)
    narrow = make_variables(two_replicas, (1,), dtype=np.float32)
    buckets = plan_buckets([wide[0], narrow[0], wide[1]], 1 << 20)
    assert [[v.dtype.itemsize for v in bucket] for bucket in buckets] == [[8], [4], [8]]


@pytest.mark.parametrize(
    ("examples", "weights", "divisor"),
    [
        ([3], [1.0], 1.0),
        ([4, 4], [1.0, 1.0], 2.0),
        ([4, 2], [1.0, 0.5], 1.5),
        ([4, 0], [1.0, 0.0], 1.0),
        ([0, 8, 2, 8], [0.0, 1.0, 0.25, 1.0], 2.25),
    ],
)
def test_replicas_weigh_by_their_examples_relative_to_the_largest_batch(examples, weights, divisor):
    strategy = MirroredStrategy([f"CPU:{i}" for i in range(len(examples))])

    def step():
        replica = get_replica_context()
        this_round = agree(replica, examples[replica.local_index], average=True)
        return tuple(this_round.weights), this_round.totals[0]

    found, totals = strategy.run(step)
    assert [strategy.experimental_local_results(w)[0] for w in found] == weights
    assert strategy.experimental_local_results(totals)[0] == divisor


@pytest.mark.parametrize("into_buffers", [True, False], ids=["in place", "handed over"])
@pytest.mark.parametrize("bytes_per_pack", [1, 40, 1 << 20])
@pytest.mark.parametrize("average", [True, False], ids=["average", "sum"])
def test_dense_gradients(into_buffers, bytes_per_pack, average, every_strategy):
    n = every_strategy.num_replicas_in_sync
    rng = np.random.default_rng(0)
    shapes = [(3, 2), (), (4,), (1, 5)]
    values = [[rng.normal(size=shape) for shape in shapes] for _ in range(n)]
    variables = make_variables(every_strategy, *shapes)
    reducer = make_reducer(every_strategy, variables, bytes_per_pack=bytes_per_pack)
    for _ in range(2):
        results = reduce_once(
            every_strategy, reducer, variables, values, average=average, into_buffers=into_buffers
        )
        for result in results:
            for k, gradient in enumerate(result):
                total = sum(values[i][k] for i in range(n))
                np.testing.assert_allclose(gradient, total / n if average else total, rtol=1e-15)


def test_every_replica_reads_the_same_bits(mirrored):
    strategy = mirrored(4)
    variables = make_variables(strategy, (1000,), dtype=np.float32)
    reducer = make_reducer(strategy, variables)
    rng = np.random.default_rng(0)
    values = [[rng.normal(size=1000).astype(np.float32)] for _ in range(4)]
    read = {
        result[0].tobytes()
        for _ in range(50)
        for result in reduce_once(strategy, reducer, variables, values, examples=[4, 3, 2, 1])
    }
    assert len(read) == 1


def test_a_single_replicas_gradient_stays_untouched_to_the_bit(mirrored):
    strategy = mirrored(1)
    variables = make_variables(strategy, (1000,), (4, 1), dtype=np.float32)
    reducer = make_reducer(strategy, variables, sparse=variables[1:])
    value = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    some = rows([0, 3], [1 / 3, 2 / 3], dtype=np.float32)
    ((whole, part),) = reduce_once(strategy, reducer, variables, [[value, some]], examples=[7])
    assert whole.tobytes() == value.tobytes()
    assert part.values.tobytes() == some.values.tobytes()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("examples", "means", "expected"),
    [
        ([4, 4], [1.0, 3.0], 2.0),
        ([4, 2], [3.0, 6.0], 4.0),
        ([2, 4], [6.0, 3.0], 4.0),
        ([4, 0], [3.0, None], 3.0),
        ([0, 5], [None, 3.0], 3.0),
        ([4, 2], [3.0, None], 2.0),
        ([4, 2], [None, 6.0], 2.0),
    ],
)
def test_the_average_is_that_over_all_examples(kind, examples, means, expected, two_replicas):
    (variable,) = make_variables(two_replicas, (4, 1))
    reducer = make_reducer(two_replicas, [variable], sparse=[variable] if kind == "sparse" else [])

    def gradient(mean):
        if mean is None:
            return None
        return rows([1], [mean]) if kind == "sparse" else np.array([[0], [mean], [0], [0.0]])

    values = [[gradient(mean)] for mean in means]
    for (result,) in reduce_once(two_replicas, reducer, [variable], values, examples):
        assert dense(result).reshape(-1).tolist() == [0, expected, 0, 0]


def test_a_sum_leaves_out_who_has_no_examples(mirrored):
    strategy = mirrored(4)
    (variable,) = make_variables(strategy, (1,))
    reducer = make_reducer(strategy, [variable])
    values = [[np.array([10.0**i])] for i in range(4)]
    for result in reduce_once(
        strategy, reducer, [variable], values, examples=[0, 7, 1, 0], average=False
    ):
        assert result[0].tolist() == [110.0]


@pytest.mark.parametrize("without", [0, 1])
def test_who_has_no_examples_computes_with_the_others_and_is_left_out(two_replicas, without):
    """What its backward pass exchanges is awaited; its gradients may be no numbers."""
    (variable,) = make_variables(two_replicas, (1,))
    reducer = make_reducer(two_replicas, [variable])

    def step():
        replica = get_replica_context()
        i = replica.local_index
        this_round = agree(replica, 0 if i == without else 4, average=True)
        share = Share(this_round, reducer, i)
        replica.exchange("what backward exchanges", None)
        share.take(variable.leaf(i), np.array([np.nan if i == without else 5.0]))
        share.end()
        reduce(replica, this_round)
        return float(reducer.reduced(i)[0][1][0])

    assert two_replicas.run(step).values == (5.0, 5.0)


@pytest.mark.parametrize("examples", [[-1, 4], [0, -2]])
def test_impossible_numbers_of_examples_are_refused(examples, two_replicas):
    def step():
        replica = get_replica_context()
        agree(replica, examples[replica.local_index], average=True)

    with pytest.raises(ValueError, match=r"numbers of examples must be .*they are \["):
        two_replicas.run(step)


def test_a_sum_and_an_average_do_not_meet(two_replicas):
    def step():
        replica = get_replica_context()
        agree(replica, 1, average=replica.local_index == 0)

    with pytest.raises(RuntimeError, match=r"is at averaging of gradients.* at summing of"):
        two_replicas.run(step)


def test_rows_are_summed_over_replicas_each_once(two_replicas):
    (table,) = make_variables(two_replicas, (4, 1))
    reducer = make_reducer(two_replicas, [table], sparse=[table])
    values = [[rows([3, 0, 3], [1, 2, 3])], [rows([0, 1], [10, 20])]]
    for (result,) in reduce_once(two_replicas, reducer, [table], values, average=False):
        assert isinstance(result, IndexedSlices)
        result = result.unique()  # on a GPU only who needs it waits for the number of rows
        assert result.indices.tolist() == [0, 1, 3]
        assert result.values.reshape(-1).tolist() == [12.0, 20.0, 4.0]


def test_co_17_a_table_read_by_rows_gets_the_gradient_of_a_dense_one(several_replicas):
    n = several_replicas.num_replicas_in_sync
    rng = np.random.default_rng(0)
    parts = [rows(rng.integers(0, 4, 6), rng.normal(size=6)) for _ in range(n)]
    examples = [6 - i for i in range(n)]
    by_rows, whole = make_variables(several_replicas, (4, 1), (4, 1))
    reducer = make_reducer(several_replicas, [by_rows, whole], sparse=[by_rows])
    values = [[part, part.to_dense()] for part in parts]
    for result in reduce_once(several_replicas, reducer, [by_rows, whole], values, examples):
        np.testing.assert_allclose(result[0].to_dense(), result[1], rtol=1e-14)


@pytest.mark.parametrize("planned_as", ["dense", "sparse"])
def test_a_gradient_may_come_in_the_other_form(planned_as, two_replicas):
    """One replica reads rows of a table, the other all of it; neither's gradient is changed."""
    (table,) = make_variables(two_replicas, (4, 1))
    reducer = make_reducer(two_replicas, [table], sparse=[table] if planned_as == "sparse" else [])
    whole = np.ones((4, 1))
    part = rows([2, 2], [1, 2])
    for values in ([[part], [whole]], [[whole], [part]], [[whole], [whole]], [[part], [part]]):
        expected = sum(dense(value) for (value,) in values)
        for (result,) in reduce_once(two_replicas, reducer, [table], values, average=False):
            np.testing.assert_array_equal(dense(result), expected)
    assert whole.tolist() == [[1.0]] * 4
    assert part.values.tolist() == [[1.0], [2.0]]


def test_d_09_a_variable_that_no_replica_uses_is_left_out_and_named_once(
    several_replicas, log_lines
):
    n = several_replicas.num_replicas_in_sync
    used, unused, table = make_variables(several_replicas, (2,), (3,), (4, 1))
    reducer = make_reducer(several_replicas, [used, unused, table], sparse=[table])
    full = [[np.ones(2), np.ones(3), rows([0], [1])]] * n
    part = [[np.ones(2), None, None]] * n
    for values, is_there in ((full, True), (part, False), (part, False), (full, True)):
        for result in reduce_once(several_replicas, reducer, [used, unused, table], values):
            assert result[0].tolist() == [1.0, 1.0]
            assert [gradient is not None for gradient in result[1:]] == [is_there] * 2
    (line,) = [line for line in log_lines(logging.WARNING) if "a step leaves as they" in line]
    assert "2 of 3 variables, which a step leaves as they are" in line
    assert line.endswith(f"on all replicas: {unused.name}, {table.name}.")


def test_who_uses_a_variable_is_averaged_with_who_does_not(several_replicas):
    n = several_replicas.num_replicas_in_sync
    dense_one, table = make_variables(several_replicas, (3,), (4, 1))
    reducer = make_reducer(several_replicas, [dense_one, table], sparse=[table])
    values = [[None, None]] * (n - 1) + [[np.ones(3), rows([0], [1])]]
    for result in reduce_once(several_replicas, reducer, [dense_one, table], values):
        assert result[0].tolist() == [1 / n] * 3
        assert dense(result[1]).ravel().tolist() == [1 / n, 0, 0, 0]


def test_gradients_of_other_tensors_are_left_aside(two_replicas):
    asked_for, other = make_variables(two_replicas, (2,), (2,))
    reducer = make_reducer(two_replicas, [asked_for])
    values = [[np.ones(2), np.full(2, np.nan)]] * 2

    def step():
        replica = get_replica_context()
        i = replica.local_index
        this_round = agree(replica, 1, average=True)
        fill(reducer, this_round, [asked_for, other], values[i], i)
        reduce(replica, this_round)
        return len(reducer.reduced(i))

    assert two_replicas.run(step).values == (1, 1)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_gradient_of_another_shape_never_broadcasts(sparse, two_replicas):
    (variable,) = make_variables(two_replicas, (4, 1))
    reducer = make_reducer(two_replicas, [variable], sparse=[variable] if sparse else [])
    with pytest.raises(
        ValueError, match=rf"gradient of variable '{variable.name}' has shape \(1,\), the variable"
    ):
        reduce_once(two_replicas, reducer, [variable], [[np.ones(1)]] * 2)


def test_one_reducer_is_filled_once_in_a_round(two_replicas):
    (variable,) = make_variables(two_replicas, (1,))
    reducer = make_reducer(two_replicas, [variable])

    def step():
        replica = get_replica_context()
        i = replica.local_index
        this_round = agree(replica, 1, average=True)
        for _ in range(2):
            fill(reducer, this_round, [variable], [np.ones(1)], i)

    with pytest.raises(RuntimeError, match=f"the same variables twice .*{variable.name}"):
        two_replicas.run(step)


def test_variables_of_another_number_of_replicas_are_refused(mirrored):
    (variable,) = make_variables(mirrored(2), (1,))
    for n in (4, 1):
        with pytest.raises(RuntimeError, match=rf"'{variable.name}' was .* used by {n} replica"):
            make_reducer(mirrored(n), [variable])


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_after_a_step_that_failed_the_next_one_works(culprit, when, two_replicas):
    first, second, table = variables = make_variables(two_replicas, (2,), (3,), (4, 1))
    reducer = make_reducer(two_replicas, variables, sparse=[table], bytes_per_pack=1)
    values = [[np.full(2, i + 1.0), np.full(3, i + 1.0), rows([i], [1])] for i in range(2)]

    def failing_step():
        replica = get_replica_context()
        i = replica.local_index
        this_round = agree(replica, 1, average=True)
        share = Share(this_round, reducer, i)
        if i == culprit and when == "before":
            raise ZeroDivisionError
        share.take(first.leaf(i), np.full(2, np.nan))
        if i == culprit and when == "between":
            raise ZeroDivisionError
        share.take(second.leaf(i), np.full(3, np.nan))
        share.take(table.leaf(i), rows([2], [np.nan]))
        share.end()
        if i == culprit:
            raise ZeroDivisionError
        reduce(replica, this_round)

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            two_replicas.run(failing_step)
        for result in reduce_once(two_replicas, reducer, variables, values, average=False):
            assert [dense(g).reshape(-1).tolist() for g in result] == [
                [3.0, 3.0],
                [3.0, 3.0, 3.0],
                [1.0, 1.0, 0.0, 0.0],
            ]


def test_many_rounds_in_one_run_do_not_disturb_each_other(mirrored, threads_alternate):
    strategy = mirrored(4)
    variables = make_variables(strategy, *[(50,)] * 6)
    reducer = make_reducer(strategy, variables, bytes_per_pack=800)

    def step():
        replica = get_replica_context()
        i = replica.local_index
        for k in range(100):
            this_round = agree(replica, 1, average=False)
            values = [np.full(50, float(k + i))] * 6
            fill(reducer, this_round, variables, values, i, into_buffers=True)
            reduce(replica, this_round)
            for _, gradient in reducer.reduced(i):
                assert (gradient == 4 * k + 6).all()

    strategy.run(step)


def test_other_ways_of_adding_up_are_used(mirrored):
    """Not only for buckets of two replicas: also where the first one takes no part."""
    ops = ReductionToOneDevice(accumulation_fn=lambda arrays: 2 * sum(arrays))
    strategy = mirrored(4, cross_device_ops=ops)
    (variable,) = make_variables(strategy, (1,))
    reducer = make_reducer(strategy, [variable])
    values = [[np.array([1.0])]] * 4
    for result in reduce_once(
        strategy, reducer, [variable], values, examples=[0, 1, 1, 0], average=False
    ):
        assert result[0].tolist() == [4.0]
