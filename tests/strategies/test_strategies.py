"""The strategies themselves and their devices: ST-02 to ST-04, ST-19 to ST-22, ST-30 to ST-34."""

import copy
import logging
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from paceline.autodiff import Tensor
from paceline.cluster import SimpleClusterResolver
from paceline.inputs import Dataset, InputContext, InputOptions, InputReplicationMode
from paceline.observe import forget_logged
from paceline.strategies import (
    DEFAULT_STRATEGY,
    CentralStorageStrategy,
    DefaultStrategy,
    Device,
    HierarchicalCopyAllReduce,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    NcclAllReduce,
    OneDeviceStrategy,
    ParameterServerStrategy,
    PerReplica,
    ReductionToOneDevice,
    TPUStrategy,
    ValueContext,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    get_replica_context,
    get_strategy,
    list_devices,
    set_visible_devices,
)

PER_REPLICA = InputOptions(experimental_replication_mode=InputReplicationMode.PER_REPLICA)

ON_READ, SUM = VariableSynchronization.ON_READ, VariableAggregation.SUM

no_gpu = pytest.mark.skipif(bool(list_devices("GPU")), reason="there are GPUs here")


def replica_id():
    return get_replica_context().replica_id_in_sync_group


def test_st_02_the_rarely_used_verbs_are_behind_extended(every_strategy):
    extended = every_strategy.extended
    assert len(extended.worker_devices) == every_strategy.num_replicas_in_sync
    assert extended.parameter_devices


@pytest.mark.parametrize("n", [1, 2, 4])
def test_st_03_the_number_of_replicas_in_sync(n, mirrored):
    assert mirrored(n).num_replicas_in_sync == n


def test_st_03_default_and_one_device_have_one_replica():
    assert DEFAULT_STRATEGY.num_replicas_in_sync == 1
    assert OneDeviceStrategy("CPU:0").num_replicas_in_sync == 1


def test_st_04_a_strategy_of_one_worker_has_no_cluster_resolver(every_strategy):
    asked_for_a_tpu = isinstance(every_strategy, TPUStrategy)
    assert (every_strategy.cluster_resolver is None) == (not asked_for_a_tpu)


@pytest.mark.host
def test_a_strategy_says_what_it_is(mirrored):
    assert repr(mirrored(2)) == "MirroredStrategy(CPU:0, CPU:1)"


CLUSTER = {"worker": ["localhost:1111"], "ps": ["localhost:1112"]}


def with_servers(task_type):
    task = (task_type, 0)
    return ParameterServerStrategy(SimpleClusterResolver(CLUSTER, "", *task), max_staleness=3)


EVERY_KIND = {
    "default": get_strategy,
    "one device": lambda: OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: MirroredStrategy(["CPU:0", "CPU:1"]),
    "central storage": lambda: CentralStorageStrategy(["CPU:0", "CPU:1"]),
    "several workers": MultiWorkerMirroredStrategy,
    "a trainer with servers": lambda: with_servers("worker"),
    "a server": lambda: with_servers("ps"),
    "an evaluator beside servers": lambda: with_servers("evaluator"),
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_strategy_can_be_copied_and_pickled_also_after_a_run(kind):
    """ES-25: a configuration holds one."""
    strategy = EVERY_KIND[kind]()
    strategy.run(lambda: None)
    assert copy.deepcopy([strategy])[0] is strategy
    twin = pickle.loads(pickle.dumps(strategy))
    assert repr(twin) == repr(strategy)
    local = twin.experimental_local_results(twin.run(lambda: 1))
    assert local == (1,) * strategy.num_replicas_in_sync


def test_there_is_one_default_strategy_also_after_it_was_pickled():
    assert pickle.loads(pickle.dumps(get_strategy())) is get_strategy()


def test_st_19_local_results_are_a_tuple(every_strategy):
    n = every_strategy.num_replicas_in_sync
    locals_of = every_strategy.experimental_local_results
    assert locals_of(every_strategy.run(lambda: 7)) == (7,) * n
    assert locals_of("single") == ("single",)
    with every_strategy.scope():
        variable = Variable(2.0)
    assert locals_of(variable) == (2.0,) * len(every_strategy.extended.parameter_devices)


class Pair(NamedTuple):
    id: int
    rest: Any


@pytest.mark.parametrize(
    "structure_of",
    [
        lambda i: {"id": i, "none": None},
        lambda i: [i, 10 + i],
        lambda i: (i, {"double": 2 * i}),
        lambda i: Pair(i, [i]),
        lambda i: {"none": None},
        lambda i: (),
    ],
    ids=["dict", "list", "tuple", "namedtuple", "without values", "empty"],
)
def test_st_19_local_results_of_a_structure_are_one_structure_per_replica(
    structure_of, every_strategy
):
    n = every_strategy.num_replicas_in_sync
    results = every_strategy.experimental_local_results(
        every_strategy.run(lambda: structure_of(replica_id()))
    )
    assert results == tuple(structure_of(i) for i in range(n))


def test_st_19_plain_values_and_variables_in_a_structure_belong_to_each_replica(two_replicas):
    with two_replicas.scope():
        variable = Variable(0.0, synchronization=ON_READ, aggregation=SUM)
    two_replicas.run(lambda: variable.assign(replica_id() + 1.0))
    given = {"w": variable, "name": "same", "id": two_replicas.run(replica_id)}
    assert two_replicas.experimental_local_results(given) == (
        {"w": 1.0, "name": "same", "id": 0},
        {"w": 2.0, "name": "same", "id": 1},
    )


def test_st_19_a_structure_for_another_number_of_replicas_is_refused(two_replicas):
    with pytest.raises(ValueError, match="values of 3 replicas were given to 2"):
        two_replicas.experimental_local_results([PerReplica([0, 1]), PerReplica([0, 1, 2])])


@pytest.mark.parametrize(
    ("value_fn", "expected"),
    [
        (lambda context: 1.0, (1.0, 1.0)),
        (lambda context: np.array([3.0, 2.0, 1.0])[context.replica_id_in_sync_group], (3.0, 2.0)),
        (lambda context: context.num_replicas_in_sync, (2, 2)),
    ],
    ids=["constant", "by id", "by number of replicas"],
)
def test_g_07_st_20_values_from_a_function(value_fn, expected, two_replicas):
    values = two_replicas.experimental_distribute_values_from_function(value_fn)
    assert isinstance(values, PerReplica)
    assert two_replicas.experimental_local_results(values) == expected


def test_st_20_values_may_be_structures(two_replicas):
    values = two_replicas.experimental_distribute_values_from_function(
        lambda context: {"id": context.replica_id_in_sync_group, "none": None}
    )
    assert values["id"].values == (0, 1)
    assert values["none"] is None


def test_st_20_one_replica_gets_the_bare_value():
    assert DEFAULT_STRATEGY.experimental_distribute_values_from_function(lambda c: c) == (
        ValueContext(0, 1)
    )


def test_st_21_a_value_context_is_read_only():
    context = ValueContext(1, 2)
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (1, 2)
    with pytest.raises(AttributeError):
        context.num_replicas_in_sync = 3


@pytest.mark.host
def test_st_22_worker_devices_are_indexed_by_local_replica(two_replicas):
    devices = two_replicas.extended.worker_devices
    assert [Device.parse(device) for device in devices] == [Device("CPU", 0), Device("CPU", 1)]
    placed = [Device.parse(device).put(np.float32(1.0)) for device in devices]
    values = two_replicas.experimental_distribute_values_from_function(
        lambda context: placed[context.replica_id_in_sync_group]
    )
    assert two_replicas.reduce("SUM", values) == 2.0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (InputOptions(), []),
        (InputOptions(experimental_per_replica_buffer_size=2), []),
        (InputOptions(experimental_fetch_to_device=False), ["experimental_fetch_to_device"]),
        (
            InputOptions(experimental_place_dataset_on_device=True),
            ["experimental_place_dataset_on_device"],
        ),
    ],
)
def test_input_options_without_effect_are_warned_of_once(two_replicas, options, told, log_lines):
    forget_logged()
    for _ in range(2):
        two_replicas.experimental_distribute_dataset(Dataset.range(4).batch(4), options)
        two_replicas.distribute_datasets_from_function(lambda _: Dataset.range(2), options)
    warnings = [line for line in log_lines(logging.WARNING) if "has no effect" in line]
    named = [f"InputOptions({name}=...)" for name in told]
    assert [line.split(" ")[0] for line in warnings] == named


def test_st_29_input_options_are_accepted_and_what_is_not_supported_is_refused(every_strategy):
    dataset = Dataset.range(4).batch(4)
    options = InputOptions(experimental_fetch_to_device=False)
    for distributed in (
        every_strategy.experimental_distribute_dataset(dataset, options),
        every_strategy.distribute_datasets_from_function(lambda context: dataset, options),
    ):
        assert len(list(distributed)) == 1
    with pytest.raises(ValueError, match="PER_REPLICA needs a function that makes the dataset"):
        every_strategy.experimental_distribute_dataset(dataset, PER_REPLICA)
    with pytest.raises(TypeError):
        InputOptions(unknown=1)


def test_in_25_per_replica_gives_each_replica_a_pipeline_of_its_own(every_strategy):
    n = every_strategy.num_replicas_in_sync
    contexts = []

    def dataset_fn(context):
        contexts.append(context)
        return Dataset.range(4 * n).shard(n, context.input_pipeline_id).batch(3)

    distributed = every_strategy.distribute_datasets_from_function(dataset_fn, PER_REPLICA)
    steps = [every_strategy.experimental_local_results(step) for step in distributed]
    assert contexts == [InputContext(n, i, n) for i in range(n)]
    assert [[list(part) for part in step] for step in steps] == [
        [[i, i + n, i + 2 * n] for i in range(n)],
        [[i + 3 * n] for i in range(n)],
    ]


@pytest.mark.host
def test_in_09_a_log_line_tells_how_a_dataset_is_dealt_out_and_prefetched(every_strategy, caplog):
    dataset = Dataset.range(40).map(lambda x: x).batch(10)
    options = InputOptions(experimental_per_replica_buffer_size=3)
    with caplog.at_level(logging.INFO, logger="paceline"):
        every_strategy.experimental_distribute_dataset(dataset)
        every_strategy.experimental_distribute_dataset(dataset, options)
        every_strategy.experimental_distribute_dataset(Dataset.range(40).batch(10), options)
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Input:")]
    assert len(lines) == 3
    assert "policy DATA, shard 0 of 1, global batch 10 over" in lines[0]
    for line, depth in zip(lines, (1, 3, 0), strict=True):
        assert line.endswith(f"4 step(s), prefetch {depth}.")


def test_g_06_a_global_batch_is_split_over_the_replicas(two_replicas):
    dataset = two_replicas.experimental_distribute_dataset(Dataset.range(4).batch(2))
    results = [two_replicas.run(lambda x: x * 2, args=(x,)) for x in dataset]
    assert [[list(part) for part in result] for result in results] == [[[0], [2]], [[4], [6]]]


def test_a_dataset_function_gives_each_replica_batches_of_its_own(every_strategy):
    n = every_strategy.num_replicas_in_sync
    contexts = []

    def dataset_fn(context):
        contexts.append(context)
        return Dataset.range(8 * n).batch(context.get_per_replica_batch_size(2 * n))

    dataset = every_strategy.distribute_datasets_from_function(dataset_fn)
    batches = [every_strategy.experimental_local_results(step) for step in dataset]
    assert contexts == [InputContext(1, 0, n)]
    assert len(batches) == 4
    assert np.concatenate([part for step in batches for part in step]).tolist() == list(
        range(8 * n)
    )


def test_in_18_a_numpy_dataset_has_the_slices_of_the_arrays(every_strategy):
    dataset = every_strategy.make_experimental_numpy_dataset((np.arange(3), np.ones((3, 2))))
    assert [(int(a), list(b)) for a, b in dataset] == [(i, [1, 1]) for i in range(3)]


def test_st_30_the_default_strategy_cannot_be_constructed():
    with pytest.raises(RuntimeError, match=r"singleton .*get_strategy\(\)"):
        DefaultStrategy()


def test_st_30_the_default_strategy_calls_the_function_with_its_arguments():
    argument = object()
    assert get_strategy().run(lambda x, y: (x, y), (argument,), {"y": None}) == (argument, None)


def test_st_30_the_default_strategy_changes_no_bit():
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)

    def compute():
        variable = Variable(x)
        return np.sum(np.tanh(variable * 0.1) @ np.ones((3, 1), np.float32))

    plain = compute().numpy()
    with DEFAULT_STRATEGY.scope():
        in_scope = DEFAULT_STRATEGY.run(compute).numpy()
    assert plain.tobytes() == in_scope.tobytes()


@pytest.mark.host
def test_st_31_one_device_holds_variables_and_computation():
    strategy = OneDeviceStrategy("/cpu:3")
    name = "/job:localhost/replica:0/task:0/device:CPU:3"
    with strategy.scope():
        variable = Variable(1.0)
    assert variable.device == name
    assert strategy.extended.worker_devices == strategy.extended.parameter_devices == (name,)
    assert strategy.run(lambda: get_replica_context().devices) == (name,)


def test_st_31_tensors_and_batches_say_in_whose_memory_they_are(every_strategy, a_card):
    host = "/job:localhost/replica:0/task:0/device:CPU:0"
    with every_strategy.scope():
        variable = Variable(1.0)
    (batch, *_) = every_strategy.experimental_local_results(
        next(iter(every_strategy.experimental_distribute_dataset(Dataset.range(8).batch(8))))
    )
    assert batch.device == "cpu"
    activations = every_strategy.run(lambda: (2.0 * variable).device)
    assert set(every_strategy.experimental_local_results(activations)) == {host}
    assert Tensor(a_card(np.ones(2))).device == "/job:localhost/replica:0/task:0/device:GPU:0"


@no_gpu
@pytest.mark.host
def test_st_32_without_gpus_the_default_is_one_replica_on_the_host():
    strategy = MirroredStrategy()
    assert strategy.extended.worker_devices == ("/job:localhost/replica:0/task:0/device:CPU:0",)


@pytest.mark.host
def test_st_32_reductions_are_chosen_by_device_or_given(mirrored):
    ops = HierarchicalCopyAllReduce()
    assert isinstance(mirrored(2).extended.cross_device_ops, ReductionToOneDevice)
    assert mirrored(2, cross_device_ops=ops).extended.cross_device_ops is ops


@no_gpu
@pytest.mark.host
def test_st_33_absent_gpus_are_named_and_stood_in_for(log_lines):
    strategy = MirroredStrategy(["GPU:0", "/gpu:1", "CPU:0"])
    assert repr(strategy) == "MirroredStrategy(CPU:1, CPU:2, CPU:0)"
    (warning,) = log_lines(logging.WARNING)
    assert "GPU:0, GPU:1 are not here (0 GPU(s) visible to CuPy)" in warning
    assert strategy.reduce("SUM", strategy.run(lambda: 1)) == 3


@no_gpu
@pytest.mark.parametrize(
    "make",
    [
        lambda: MirroredStrategy(["GPU:0", "CPU:0"], strict_devices=True),
        lambda: OneDeviceStrategy("GPU:0", strict_devices=True),
    ],
    ids=["mirrored", "one device"],
)
@pytest.mark.host
def test_st_33_strict_devices_refuse_to_stand_in(make):
    with pytest.raises(ValueError, match="GPU:0, but there are 0 GPU"):
        make()


@no_gpu
def test_st_34_num_gpus_is_accepted_with_a_note():
    with pytest.warns(DeprecationWarning, match="num_gpus is .* name of devices"):
        strategy = MirroredStrategy(num_gpus=2)
    assert strategy.num_replicas_in_sync == 2


def test_st_34_cross_tower_ops_are_accepted_with_a_note():
    ops = NcclAllReduce()
    with pytest.warns(DeprecationWarning, match="cross_tower_ops is .* name of cross_device_ops"):
        strategy = MirroredStrategy(["CPU:0"], cross_tower_ops=ops)
    assert strategy.extended.cross_device_ops is ops


def test_st_34_the_old_and_the_new_name_together_are_refused():
    with pytest.raises(ValueError, match="num_gpus and devices were both given"):
        MirroredStrategy(["CPU:0"], num_gpus=2)


def test_st_34_a_number_of_gpus_below_one_is_refused():
    with (
        pytest.warns(DeprecationWarning, match="num_gpus"),
        pytest.raises(ValueError, match="num_gpus must be ≥ 1, it is 0"),
    ):
        MirroredStrategy(num_gpus=0)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("CPU:0", Device("CPU", 0)),
        ("gpu:3", Device("GPU", 3)),
        ("/gpu:0", Device("GPU", 0)),
        ("/device:CPU:1", Device("CPU", 1)),
        ("/job:worker/replica:0/task:2/device:GPU:1", Device("GPU", 1, "worker", 2)),
        ("gpu:1:2", Device("GPU", 1, part=2)),
        ("GPU:1:0", Device("GPU", 1)),
        ("/job:worker/replica:0/task:2/device:GPU:1:3", Device("GPU", 1, "worker", 2, part=3)),
        (Device("CPU", 5), Device("CPU", 5)),
    ],
    ids=str,
)
@pytest.mark.host
def test_device_names(name, device):
    assert Device.parse(name) == device
    assert Device.parse(str(device)) == device


@pytest.mark.parametrize(
    "name", ["", "GPU", "GPU:", "GPU:*", "TPU:0", "CPU:-1", "CPU:0 ", "GPU:0:", 0, None]
)
def test_what_is_no_device_name_is_refused(name):
    with pytest.raises(ValueError, match="is not a device name; write 'CPU:0'"):
        MirroredStrategy([name])


@pytest.mark.parametrize(
    ("devices", "error"),
    [
        (["CPU:0", "/cpu:0"], "names .*CPU:0 more than once"),
        ([], "devices is empty"),
        ("GPU:0", r"a list of names, got 'GPU:0'; write \['GPU:0'\]"),
        (2, r"a list of names, got 2; name each of them, as in \['GPU:0', 'GPU:1'\]"),
    ],
    ids=["twice", "empty", "a name", "a number"],
)
@pytest.mark.host
def test_lists_of_devices_that_cannot_be_meant(devices, error):
    with pytest.raises(ValueError, match=error):
        MirroredStrategy(devices)


def test_a_copy_on_the_host_is_a_copy():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    device = Device("CPU", 1)
    assert device.bring(array) is array
    copied = device.put(array)
    assert copied.flags.c_contiguous
    assert not np.shares_memory(copied, array)
    assert list_devices("CPU") == (Device("CPU", 0),)


@pytest.fixture
def two_logical_cpus(monkeypatch):
    monkeypatch.setattr("paceline.strategies.devices.device._visible", {})
    set_visible_devices([], "GPU")
    set_visible_devices(["CPU:0", "CPU:1"], "CPU")


@pytest.mark.usefixtures("two_logical_cpus")
@pytest.mark.parametrize(
    "make", [MirroredStrategy, CentralStorageStrategy, MultiWorkerMirroredStrategy]
)
@pytest.mark.host
def test_st_32_cl_16_strategies_without_devices_take_the_logical_ones(make):
    assert make().extended.worker_devices == (str(Device("CPU", 0)), str(Device("CPU", 1)))
    assert list_devices("cpu") == (Device("CPU", 0), Device("CPU", 1))
    assert list_devices("CPU", hidden=True) == (Device("CPU", 0),)
    set_visible_devices(None, "CPU")
    assert make().num_replicas_in_sync == 1


@pytest.mark.usefixtures("two_logical_cpus")
@pytest.mark.host
def test_st_33_cl_16_a_hidden_gpu_is_not_here(monkeypatch, caplog):
    monkeypatch.setattr("paceline.strategies.devices.gpu.count", lambda: 2)
    set_visible_devices(["GPU:1"], "GPU")
    assert list_devices("GPU") == (Device("GPU", 1),)
    assert list_devices("GPU", hidden=True) == (Device("GPU", 0), Device("GPU", 1))
    strategy = MirroredStrategy(["GPU:0", "GPU:1"])
    assert strategy.extended.worker_devices == (str(Device("CPU", 0)), str(Device("GPU", 1)))
    assert "Devices GPU:0 are not here" in caplog.text


@pytest.mark.parametrize(
    ("devices", "kind", "error"),
    [
        (["TPU:0"], "TPU", "kind must be 'CPU' or 'GPU', it is 'TPU'"),
        (["CPU:0"], "GPU", "device:CPU:0 cannot be chosen as devices of kind GPU"),
        ([], "CPU", "the CPU cannot be hidden"),
        (["GPU:99"], "GPU", r"device:GPU:99 is not here: CuPy sees \d+ GPU"),
        (["CPU:0", "CPU:0"], "CPU", "CPU:0 more than once"),
        ("CPU:0", "CPU", r"write \['CPU:0'\]"),
    ],
)
@pytest.mark.host
def test_cl_16_choices_that_cannot_be_meant_are_refused(devices, kind, error):
    with pytest.raises(ValueError, match=error):
        set_visible_devices(devices, kind)
