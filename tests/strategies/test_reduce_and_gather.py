"""`Strategy.reduce` and `gather`: ST-14 to ST-18, G-08 to G-10, CO-01, CO-17."""

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices, Tensor
from paceline.strategies import (
    DEFAULT_STRATEGY,
    PerReplica,
    ReduceOp,
    Variable,
    get_replica_context,
)

DTYPES = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64, np.bool_]


def replica_id():
    return get_replica_context().replica_id_in_sync_group


def split(strategy, values, *lengths):
    """Consecutive parts of `values` for the replicas; equal ones without `lengths`."""
    n = strategy.num_replicas_in_sync
    ends = np.cumsum(lengths)[:-1] if lengths else n
    parts = np.split(np.asarray(values), ends)
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )


def slices(rows, values, num_rows=5):
    values = np.asarray(values, np.float32).reshape(len(rows), 1)
    return IndexedSlices(values, np.asarray(rows), (num_rows, 1))


def test_g_09_the_sum_of_replica_ids(every_strategy):
    n = every_strategy.num_replicas_in_sync
    assert every_strategy.reduce("SUM", every_strategy.run(replica_id), axis=None) == sum(range(n))


def test_g_09_reduce_on_the_default_strategy_passes_a_number_through():
    assert DEFAULT_STRATEGY.reduce("SUM", 1.0, axis=None) == 1.0


@pytest.mark.parametrize("op", ["SUM", "sum", "Sum", ReduceOp.SUM])
def test_co_01_the_operation_in_any_spelling(op, two_replicas):
    assert two_replicas.reduce(op, PerReplica([1.0, 2.0])) == 3.0


@pytest.mark.parametrize("op", ["MEAN", "mean", ReduceOp.MEAN])
def test_co_01_mean_in_any_spelling(op, two_replicas):
    assert two_replicas.reduce(op, PerReplica([1.0, 2.0])) == 1.5


@pytest.mark.parametrize("op", ["MAX", None, 1])
def test_co_01_other_operations_are_refused(op, every_strategy):
    with pytest.raises(ValueError, match="reduce_op must be 'SUM' or 'MEAN'"):
        every_strategy.reduce(op, 1.0)


def test_g_10_without_an_axis_only_replicas_are_combined(mirrored):
    strategy = mirrored(2)
    per_replica = split(strategy, np.arange(8))
    assert list(strategy.reduce("sum", per_replica, axis=None)) == [4, 6, 8, 10]
    assert strategy.reduce("sum", per_replica, axis=0) == 28


def test_g_10_a_last_partial_batch_needs_an_axis(mirrored):
    strategy = mirrored(2)
    per_replica = split(strategy, np.arange(6.0), 4, 2)
    assert strategy.reduce("MEAN", per_replica, axis=0) == 15 / 6
    with pytest.raises(ValueError, match=r"\[\(4,\), \(2,\)\].*axis=0"):
        strategy.reduce("SUM", per_replica, axis=None)


def test_st_16_the_mean_over_an_axis_is_that_over_all_elements(mirrored):
    strategy = mirrored(2)
    assert strategy.reduce("MEAN", split(strategy, np.arange(1.0, 7), 4, 2), axis=0) == 3.5


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_st_16_any_axis_of_the_values(axis, every_strategy):
    n = every_strategy.num_replicas_in_sync
    values = np.random.default_rng(0).normal(size=(n, 2, 3, 4))
    per_replica = split(every_strategy, values)
    per_replica = every_strategy.run(lambda x: x[0], (per_replica,))
    total = every_strategy.reduce("SUM", per_replica, axis=axis)
    mean = every_strategy.reduce("MEAN", per_replica, axis=axis)
    np.testing.assert_allclose(total, values.sum(axis=0).sum(axis=axis))
    np.testing.assert_allclose(mean, values.mean(axis=0).mean(axis=axis))


def test_st_16_a_replica_without_examples_counts_for_nothing(mirrored):
    strategy = mirrored(4)
    per_replica = split(strategy, np.arange(1.0, 4), 2, 1, 0, 0)
    assert strategy.reduce("MEAN", per_replica, axis=0) == 2.0


@pytest.mark.parametrize("axis", [1, -2])
def test_st_16_an_axis_out_of_range_is_refused(axis, every_strategy):
    values = every_strategy.run(lambda: np.zeros(2))
    with pytest.raises(ValueError, match=f"axis={axis} is not an axis.*rank 1.*axis=None"):
        every_strategy.reduce("SUM", values, axis=axis)


def test_st_15_unequal_shapes_never_broadcast(two_replicas):
    with pytest.raises(ValueError, match="different shapes"):
        two_replicas.reduce("SUM", PerReplica([np.zeros(2), np.zeros(1)]))


@pytest.mark.parametrize("axis", [None, 0])
def test_st_17_a_plain_value_with_a_single_replica(axis, mirrored):
    for strategy in DEFAULT_STRATEGY, mirrored(1):
        expected = np.array([1.0, 2.0]) if axis is None else 3.0
        np.testing.assert_array_equal(
            strategy.reduce("SUM", np.array([1.0, 2.0]), axis=axis), expected
        )


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("value", [1.0, PerReplica([1.0, 2.0, 3.0])], ids=["plain", "three"])
def test_st_17_several_replicas_need_a_value_each(op, value, several_replicas):
    n = several_replicas.num_replicas_in_sync
    with pytest.raises(ValueError, match=f"one value for each of the {n} replicas.*`run`"):
        several_replicas.reduce(op, value)


def test_st_14_structures_are_reduced_leaf_by_leaf(every_strategy):
    n = every_strategy.num_replicas_in_sync
    result = every_strategy.run(lambda: {"id": replica_id(), "rest": [np.ones(2), (1.0,)]})
    total = every_strategy.reduce("SUM", result)
    assert total["id"] == sum(range(n))
    np.testing.assert_array_equal(total["rest"][0], [n, n])
    assert total["rest"][1] == (float(n),)


def test_st_14_tensors_variables_and_numbers_are_values(every_strategy):
    n = every_strategy.num_replicas_in_sync
    with every_strategy.scope():
        variable = Variable([1.0, 2.0])
    result = every_strategy.run(lambda: (Tensor(np.ones(2)), variable.value() * 1.0, 1))
    total = every_strategy.reduce("SUM", result)
    np.testing.assert_array_equal(total[0], [n, n])
    np.testing.assert_array_equal(total[1], [n, 2 * n])
    assert all(isinstance(part, Tensor) for part in total[:2])
    assert total[2] == n


def test_st_14_tensors_of_whole_numbers_keep_their_dtype_or_are_refused(two_replicas):
    def reduced(number):
        per_replica = two_replicas.run(lambda: Tensor(np.int32(number)))
        return two_replicas.reduce("SUM", per_replica)

    assert (reduced(3).dtype, reduced(3).item()) == (np.int32, 6)
    with pytest.raises(OverflowError, match="tensors of int32 is beyond it; give them a wider"):
        reduced(2**30)


def test_st_14_what_is_no_number_is_refused(every_strategy):
    with pytest.raises(TypeError, match=r"number, an array or a tensor is needed.*'text'"):
        every_strategy.reduce("SUM", every_strategy.run(lambda: "text"))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("axis", [None, 0])
def test_whole_numbers_are_added_in_64_bits_and_floats_in_their_own(dtype, axis, every_strategy):
    n = every_strategy.num_replicas_in_sync
    per_replica = every_strategy.run(lambda: np.ones(3, dtype))
    total = every_strategy.reduce("SUM", per_replica, axis=axis)
    expected = np.sum([np.ones(3, dtype)] * n, axis=0)
    expected = expected if axis is None else expected.sum()
    assert total.dtype == expected.dtype
    np.testing.assert_array_equal(total, expected)


def test_small_whole_numbers_do_not_overflow(two_replicas):
    assert two_replicas.reduce("SUM", PerReplica(np.array([200, 100], np.uint8))) == 300


def test_the_mean_of_truth_values_is_their_share(two_replicas):
    """How often a prediction was right, from `==`."""
    right = PerReplica([np.array([True, True, False, True]), np.array([False, True])])
    assert two_replicas.reduce("MEAN", right, axis=0) == 4 / 6


def test_values_of_different_dtypes_meet_as_in_numpy(mirrored):
    values = PerReplica([1, np.float32(0.5), True, np.float64(1.0)])
    assert mirrored(4).reduce("SUM", values) == 3.5


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_co_17_slices_are_gathered_and_each_row_summed(op, two_replicas):
    per_replica = PerReplica([slices([4, 0, 4], [1, 2, 3]), slices([1, 0], [10, 20])])
    total = two_replicas.reduce(op, per_replica)
    assert isinstance(total, IndexedSlices)
    dense = np.array([[22], [10], [0], [0], [4]], np.float32)
    np.testing.assert_array_equal(total.to_dense(), dense if op == "SUM" else dense / 2)
    assert list(total.indices) == [0, 1, 4]


def test_co_17_slices_and_an_array_give_an_array(mirrored):
    whole = np.ones((5, 1), np.float32)
    per_replica = PerReplica([slices([0], [5]), whole, slices([0, 3], [1, 2]), whole])
    total = mirrored(4).reduce("SUM", per_replica)
    np.testing.assert_array_equal(total, [[8], [2], [2], [4], [2]])
    np.testing.assert_array_equal(whole, np.ones((5, 1)))


def test_co_17_slices_of_different_arrays_are_refused(two_replicas):
    with pytest.raises(ValueError, match="different shapes"):
        two_replicas.reduce("SUM", PerReplica([slices([0], [1]), slices([0], [1], num_rows=6)]))


def test_reduced_values_are_nobody_elses(every_strategy):
    mine = np.ones(2)
    total = every_strategy.reduce("SUM", every_strategy.run(lambda: mine))
    total[:] = 7
    assert list(mine) == [1, 1]


def test_g_08_gather_in_replica_order(mirrored):
    strategy = mirrored(2)
    per_replica = strategy.run(lambda: np.array([[1], [2]], np.int32))
    gathered = strategy.gather(per_replica, axis=0)
    assert gathered.dtype == np.int32
    np.testing.assert_array_equal(gathered, [[1], [2], [1], [2]])


@pytest.mark.parametrize(("axis", "shape"), [(0, (4, 2, 3)), (1, (1, 8, 3)), (2, (1, 2, 12))])
def test_g_08_gather_along_any_axis(axis, shape, mirrored):
    single = np.arange(6).reshape(1, 2, 3)
    strategy = mirrored(4)
    gathered = strategy.gather(strategy.run(lambda: single), axis=axis)
    assert gathered.shape == shape
    np.testing.assert_array_equal(gathered, np.concatenate([single] * 4, axis))


def test_st_18_lengths_along_the_axis_may_differ(mirrored):
    strategy = mirrored(4)
    parts = split(strategy, np.arange(6), 3, 0, 1, 2)
    assert list(strategy.gather(parts, axis=0)) == list(range(6))


def test_st_18_a_plain_array_with_a_single_replica():
    assert list(DEFAULT_STRATEGY.gather(np.array([1.0, 2.0]), axis=0)) == [1.0, 2.0]


def test_st_18_structures_are_gathered_leaf_by_leaf(every_strategy):
    n = every_strategy.num_replicas_in_sync
    result = every_strategy.run(lambda: (np.full(2, replica_id()), {"ones": np.ones(1)}))
    ids, others = every_strategy.gather(result, axis=0)
    assert ids.tolist() == np.repeat(np.arange(n), 2).tolist()
    assert others["ones"].tolist() == [1.0] * n


def test_st_23_a_structure_is_no_value_to_reduce_to_a_device(every_strategy):
    result = every_strategy.run(lambda: (np.ones(2), np.zeros(2)))
    with pytest.raises(
        ValueError, match=r"one value of the replicas.* \(tuple\); call it for each"
    ):
        every_strategy.extended.reduce_to("SUM", result)


@pytest.mark.parametrize(
    ("value", "axis", "error"),
    [
        (1.0, 0, "rank ≥ 1, these are scalars; use reduce"),
        (np.zeros(2), 1, r"axis must be in \[0, 1\) for values of rank 1, it is 1"),
        (np.zeros(2), -1, r"axis must be in \[0, 1\)"),
        (slices([0], [1]), 0, "dense arrays, these are IndexedSlices; call to_dense"),
    ],
    ids=["scalar", "axis too high", "axis below 0", "slices"],
)
def test_st_18_what_cannot_be_gathered(value, axis, error, every_strategy):
    per_replica = every_strategy.run(lambda: value)
    with pytest.raises(ValueError, match=error):
        every_strategy.gather(per_replica, axis=axis)


@pytest.mark.parametrize("other", [np.zeros((2, 4)), np.zeros(2)], ids=["length", "rank"])
def test_st_18_shapes_may_differ_along_the_axis_only(other, two_replicas):
    with pytest.raises(ValueError, match=r"shapes .* along axis 0"):
        two_replicas.gather(PerReplica([np.zeros((2, 3)), other]), axis=0)


def test_st_18_several_replicas_need_a_value_each_to_gather(two_replicas):
    with pytest.raises(ValueError, match="gather needs one value for each of the 2 replicas"):
        two_replicas.gather(np.zeros(2), axis=0)


def test_st_23_reduce_to_a_device_of_choice(every_strategy):
    n = every_strategy.num_replicas_in_sync
    per_replica = every_strategy.run(lambda: np.arange(3.0))
    extended = every_strategy.extended
    for destination in (*extended.replica_devices, "CPU:7"):
        total = extended.reduce_to("SUM", per_replica, destination)
        np.testing.assert_array_equal(total, n * np.arange(3.0))


def test_st_23_a_destination_that_is_not_there_is_refused(every_strategy):
    with pytest.raises(RuntimeError, match="GPU:9 is not here"):
        every_strategy.extended.reduce_to("SUM", every_strategy.run(lambda: 1.0), "GPU:9")


def test_st_23_the_batch_form_equals_a_loop(every_strategy):
    values = [every_strategy.run(lambda k=k: np.arange(k) + replica_id()) for k in range(1, 4)]
    pairs = [(value, "CPU:0") for value in values]
    batch = every_strategy.extended.batch_reduce_to("MEAN", pairs)
    loop = [every_strategy.extended.reduce_to("MEAN", *pair) for pair in pairs]
    for one, other in zip(batch, loop, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("value", "op", "factor"), [(1.5, "SUM", 1), (3, "SUM", 1), (3, "MEAN", 0)]
)
def test_st_14_of_plain_numbers_comes_a_plain_number(every_strategy, value, op, factor):
    n = every_strategy.num_replicas_in_sync if factor else 1
    total = every_strategy.reduce(op, every_strategy.run(lambda: value))
    assert total == value * n
    assert type(total) is (float if op == "MEAN" else type(value))
