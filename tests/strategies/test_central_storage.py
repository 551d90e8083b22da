"""Variables in one place, the step on every device (ST-40)."""

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import IndexedSlices
from paceline.nn import optimizers

RATE = 0.5


def test_st_40_there_is_one_copy_and_one_update_a_step():
    strategy = pl.CentralStorageStrategy([f"CPU:{i}" for i in range(3)])
    assert strategy.num_replicas_in_sync == 3
    assert len(strategy.extended.parameter_devices) == 1
    with strategy.scope():
        w = pl.Variable([1.0, 2.0])
        optimizer = optimizers.SGD(RATE)

    def step():
        x = 1.0 + pl.get_replica_context().replica_id_in_sync_group
        optimizer.minimize(np.sum(w * x), var_list=[w])(num_examples=1)

    strategy.run(step)
    assert w.num_copies == 1
    assert w.numpy().tolist() == [1.0 - RATE * 2.0, 2.0 - RATE * 2.0]
    assert optimizer.iterations.item() == 1


def test_st_40_many_steps_in_one_run_wait_for_what_replicas_share(threads_alternate):
    """Adam looks at the number of its updates, which is one for all replicas."""

    def trained(strategy):
        with strategy.scope():
            w = pl.Variable([1.0, 2.0])
            optimizer = optimizers.Adam(RATE)

        def steps():
            for _ in range(50):
                optimizer.minimize(np.sum(w * w), var_list=[w])(num_examples=1)

        strategy.run(steps)
        return w.numpy().tolist(), optimizer.iterations.item()

    alone = trained(pl.OneDeviceStrategy("CPU:0"))
    assert alone[1] == 50
    assert trained(pl.CentralStorageStrategy(["CPU:0", "CPU:1"])) == alone


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (["CPU:0", "CPU:1"], "CPU:0"),
        (["CPU:1"], "CPU:1"),  # the only one that computes
    ],
)
@pytest.mark.host
def test_st_40_where_variables_are_by_default(devices, expected):
    strategy = pl.CentralStorageStrategy(devices)
    assert strategy.extended.parameter_devices[0].endswith(expected)


def test_st_40_the_only_gpu_keeps_the_variables(a_card):
    strategy = pl.CentralStorageStrategy()
    assert strategy.extended.parameter_devices[0].endswith("GPU:0")
    with strategy.scope():
        assert isinstance(pl.Variable([1.0]).local_values()[0], a_card)


@pytest.mark.host
def test_st_40_a_device_of_ones_choice_keeps_them():
    strategy = pl.CentralStorageStrategy(["CPU:0", "CPU:1"], parameter_device="CPU:3")
    assert strategy.extended.parameter_devices == ("/job:localhost/replica:0/task:0/device:CPU:3",)


@pytest.mark.parametrize("kind", ["whole", "rows"])
def test_gradients_that_a_replica_has_on_its_card_change_what_the_host_keeps(a_card, kind):
    strategy = pl.CentralStorageStrategy(["GPU:0"], parameter_device="CPU:0")
    with strategy.scope():
        table = pl.Variable(np.zeros((3, 2)))
        optimizer = optimizers.SGD(RATE)

    def step():
        given = a_card(np.array([[1.0, 2.0]] * 3))
        if kind == "rows":
            given = IndexedSlices(given, a_card(np.arange(3)), (3, 2))
        optimizer.apply_gradients([(given, table)])

    strategy.run(step)
    np.testing.assert_array_equal(table.numpy(), -RATE * np.array([[1.0, 2.0]] * 3))


@pytest.mark.parametrize("read", ["whole", "rows"])
def test_a_replica_on_a_card_reads_what_the_host_keeps(a_card, read):
    """The value goes there, and its gradient comes back."""
    strategy = pl.CentralStorageStrategy(["GPU:0"], parameter_device="CPU:0")
    with strategy.scope():
        table = pl.Variable(np.arange(8.0).reshape(4, 2))
        optimizer = optimizers.SGD(RATE)
    rows = np.array([1, 3, 3])
    seen = []

    def step(rows):
        if read == "rows":
            picked = np.take(table, rows, axis=0)
        else:
            chosen = a_card(np.eye(4)[[1, 3, 3]])
            picked = chosen @ table
        seen.append(type(picked.tensor().data))
        optimizer.minimize(np.sum(picked * picked) / 2, var_list=[table])(num_examples=3)

    strategy.run(step, (a_card(rows),))
    before = np.arange(8.0).reshape(4, 2)
    gradient = np.zeros((4, 2))
    np.add.at(gradient, rows, before[rows])
    np.testing.assert_allclose(table.local_values()[0], before - RATE * gradient)
    assert type(table.local_values()[0]) is np.ndarray
    assert seen == [a_card]
