"""Ways of adding up arrays of several devices: CO-02 to CO-06."""

import numpy as np
import pytest

from paceline.observe import forget_logged
from paceline.strategies import (
    CrossDeviceOps,
    Device,
    HierarchicalCopyAllReduce,
    MirroredStrategy,
    NcclAllReduce,
    ReductionToOneDevice,
    Variable,
    get_replica_context,
)

CPU = Device("CPU", 0)
OPS = {
    "one device": ReductionToOneDevice(),
    "another device": ReductionToOneDevice(reduce_to_device="CPU:5"),
    "accumulation_fn": ReductionToOneDevice(accumulation_fn=lambda arrays: sum(arrays)),
    "groups of 4": HierarchicalCopyAllReduce(),
    "groups of 2": HierarchicalCopyAllReduce(num_packs=2, group_size=2),
    "groups of 1": HierarchicalCopyAllReduce(group_size=1),
    "nccl": NcclAllReduce(num_packs=2),
}


@pytest.fixture(params=OPS)
def ops(request):
    return OPS[request.param]


@pytest.fixture
def fresh_log_cache():
    """As in a new process, where nothing has been said yet."""
    forget_logged()


def arrays_for(num_replicas, shape, dtype=np.float64):
    rng = np.random.default_rng(num_replicas)
    return [(rng.normal(size=shape) * 8).astype(dtype) for _ in range(num_replicas)]


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64], ids=lambda d: d.__name__)
def test_co_04_all_give_the_sum_and_leave_the_arrays_alone(ops, num_replicas, shape, dtype):
    arrays = arrays_for(num_replicas, shape, dtype)
    before = [array.copy() for array in arrays]
    total = ops.reduce(arrays, CPU)
    assert isinstance(total, np.ndarray)
    assert (total.dtype, total.shape) == (dtype, shape)
    np.testing.assert_allclose(total, np.sum(arrays, axis=0), rtol=1e-5)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
        assert not np.shares_memory(total, array)


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 5])
@pytest.mark.parametrize("out_is", ["another array", "the first array"])
def test_a_result_goes_where_it_is_told_to(ops, num_replicas, out_is):
    arrays = arrays_for(num_replicas, (6,))
    expected = ops.reduce(arrays, CPU)
    out = arrays[0] if out_is == "the first array" else np.full(6, np.nan)
    assert ops.reduce(arrays, CPU, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_co_05_the_same_arrays_give_the_same_bits(ops):
    arrays = arrays_for(5, (1000,), np.float32)
    assert len({ops.reduce(arrays, CPU).tobytes() for _ in range(10)}) == 1


def test_co_04_groups_differ_from_the_plain_sum_by_rounding_only():
    arrays = arrays_for(8, (1000,), np.float32)
    plain = ReductionToOneDevice().reduce(arrays, CPU)
    grouped = HierarchicalCopyAllReduce(group_size=2).reduce(arrays, CPU)
    np.testing.assert_array_max_ulp(plain, grouped, maxulp=1 << 16)
    np.testing.assert_allclose(plain, grouped, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group_size", [0, -1])
def test_a_group_has_at_least_one_device(group_size):
    with pytest.raises(ValueError, match=f"group_size must be ≥ 1, it is {group_size}"):
        HierarchicalCopyAllReduce(group_size=group_size)


def test_batch_reduce_equals_a_loop(ops):
    values = [arrays_for(3, (k,)) for k in range(1, 4)]
    batch = ops.batch_reduce(values, [CPU] * 3)
    for total, arrays in zip(batch, values, strict=True):
        np.testing.assert_array_equal(total, ops.reduce(arrays, CPU))


def test_broadcast_makes_a_copy_for_each(ops):
    array = np.arange(3.0)
    copies = ops.broadcast(array, [CPU, Device("CPU", 1)])
    assert [copy.tolist() for copy in copies] == [[0, 1, 2]] * 2
    assert not any(np.shares_memory(array, copy) for copy in copies)


def test_gather_joins_in_the_order_given(ops):
    assert ops.gather([np.array([1]), np.array([2, 3])], 0, CPU).tolist() == [1, 2, 3]


class CountedSum(CrossDeviceOps):
    """A reduction of somebody's own."""

    def __init__(self):
        self.num_calls = 0

    def reduce(self, arrays, destination, out=None):
        self.num_calls += 1
        total = np.sum(np.stack([destination.bring(array) for array in arrays]), axis=0)
        if out is None:
            return total
        out[...] = total
        return out


def test_co_02_a_reduction_of_ones_own_is_used_everywhere(mirrored):
    ops = CountedSum()
    strategy = mirrored(4, cross_device_ops=ops)
    assert strategy.reduce("SUM", strategy.run(lambda: 2.0)) == 8.0
    assert ops.num_calls == 1
    means = strategy.run(lambda: get_replica_context().all_reduce("MEAN", 2.0))
    assert [mean.item() for mean in means] == [2.0] * 4
    assert ops.num_calls == 2


def test_co_02_every_reduction_drives_a_strategy(ops, mirrored):
    strategy = mirrored(4, cross_device_ops=ops)
    with strategy.scope():
        variable = Variable([0.0, 0.0])
    total = strategy.run(lambda: get_replica_context().all_reduce("SUM", np.ones(2, np.float32)))
    strategy.run(lambda part: variable.assign(part), (total,))
    assert variable.numpy().tolist() == [4.0, 4.0]


def test_co_03_nccl_says_once_that_it_falls_back(log_lines, fresh_log_cache):
    strategy = MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=NcclAllReduce())
    for _ in range(3):
        strategy.reduce("SUM", strategy.run(lambda: 1.0))
    assert len([line for line in log_lines() if line.startswith("NcclAllReduce")]) == 1


def test_co_03_a_number_of_packs_is_warned_about_once(log_lines, fresh_log_cache):
    for _ in range(2):
        assert NcclAllReduce(num_packs=2).num_packs == 2
        HierarchicalCopyAllReduce(num_packs=3)
        NcclAllReduce()
    assert len([line for line in log_lines() if line.startswith("num_packs has no effect")]) == 1


@pytest.mark.host
def test_co_06_the_devices_of_the_other_replicas_are_logged_once(
    log_lines, fresh_log_cache, two_replicas
):
    for _ in range(100):
        two_replicas.run(lambda: get_replica_context().all_reduce("SUM", np.ones(2)))
    devices = two_replicas.extended.worker_devices
    lines = [line for line in log_lines() if "broadcast" in line]
    assert lines == [
        f"Reduce to {devices[0]} then broadcast to {devices[0]}.",
        f"Then broadcast to {devices[1]}.",
    ]


@pytest.mark.host
def test_co_06_each_plan_is_logged_once(log_lines, fresh_log_cache, two_replicas):
    for _ in range(100):
        two_replicas.reduce("SUM", two_replicas.run(lambda: 1.0))
    (line,) = [line for line in log_lines() if "then broadcast" in line]
    device = two_replicas.extended.worker_devices[0]
    assert line == f"Reduce to {device} then broadcast to {device}."
