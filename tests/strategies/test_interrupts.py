"""An interrupt (Ctrl-C) leaves an update whole: made on all replicas, or on none."""

import linecache
import logging
import os
import signal
import sys
import threading

import numpy as np
import pytest

import paceline
from paceline.nn import optimizers
from paceline.strategies import (
    CentralStorageStrategy,
    CrossDeviceOps,
    InterruptsPutOff,
    MirroredStrategy,
    OneDeviceStrategy,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    get_replica_context,
    interrupts_pass_gate,
)
from paceline.strategies.devices.device import HOST, in_use
from paceline.strategies.replicas.rendezvous import Rendezvous
from paceline.strategies.replicas.threads import run_replicas

TWO = ["CPU:0", "CPU:1"]
MAKERS = {
    "one device": lambda: OneDeviceStrategy("CPU:0"),
    "mirrored x 2": lambda: MirroredStrategy(TWO),
    "central storage x 2": lambda: CentralStorageStrategy(TWO),
}
PACKAGE = os.path.dirname(paceline.__file__)
FOLDERS = tuple(os.path.join(PACKAGE, *parts) for parts in (("strategies",), ("nn", "optimizers")))
MOST_INTERRUPTS = 60
"""Of one strategy; they are spread evenly over all lines of a step."""


@pytest.fixture(autouse=True)
def ctrl_c_raises():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


class Model:
    """Two weights with momentum, and a mean that replicas assign together."""

    def __init__(self, strategy):
        self.strategy = strategy
        with strategy.scope():
            self.weights = [Variable(np.ones(2)), Variable(np.ones(3))]
            self.mean = Variable(0.0, trainable=False, aggregation=VariableAggregation.MEAN)
            self.optimizer = optimizers.SGD(0.1, momentum=0.9)
        self.step()  # creates what an optimizer keeps

    def step(self):
        self.strategy.run(self._replica_step)

    def _replica_step(self):
        a, b = self.weights
        x = 1.0 + get_replica_context().local_index
        self.mean.assign_add(x)
        loss = np.sum(np.square(a)) * x + np.sum(b) * x
        self.optimizer.minimize(loss, var_list=self.weights)()

    def state(self):
        """The number of updates, and the value of each variable; all copies have the same."""
        variables = [*self.weights, *self.optimizer.variables, self.mean]
        for variable in variables:
            assert len({copy.tobytes() for copy in variable.local_values()}) == 1, variable.name
        updated = [v.numpy().tolist() for v in variables if v is not self.mean]
        return int(self.optimizer.iterations.numpy()), updated


class InterruptAt:
    """Interrupts the main thread at the n-th line that it comes to in the code of an update.

    Not at a `with`, which a tracer sees once more at the end of its block: Python itself lets no
    interrupt come between that and the release of a lock.
    """

    def __init__(self, number):
        self.number = number
        self.num_lines = 0

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info):
        sys.settrace(None)

    def _trace(self, frame, event, arg):
        if event == "call":
            return self._trace if frame.f_code.co_filename.startswith(FOLDERS) else None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not line.lstrip().startswith("with "):
            self.num_lines += 1
            if self.num_lines == self.number:
                signal.raise_signal(signal.SIGINT)
        return self._trace


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_interrupt_at_any_line_of_a_step_leaves_whole_updates(make):
    expected, model = [], Model(make())
    for _ in range(3):
        expected.append(model.state())
        model.step()
    with InterruptAt(0) as counting:
        model.step()
    stride = max(1, counting.num_lines // MOST_INTERRUPTS)
    for number in range(1, counting.num_lines, stride):
        model = Model(make())
        try:
            with InterruptAt(number) as interrupt:
                model.step()
            assert interrupt.num_lines < number  # with threads no two steps have the same lines
        except KeyboardInterrupt:
            pass
        num_updates, values = model.state()
        assert (num_updates, values) == expected[num_updates - 1], number
        model.step()
        assert model.state() == expected[num_updates], number


def interrupt():
    signal.raise_signal(signal.SIGINT)


class InterruptingOps(CrossDeviceOps):
    """Adds up, and interrupts while it does."""

    def reduce(self, arrays, destination, out=None):
        interrupt()
        return sum(np.asarray(array) for array in arrays)


def in_forward(model):
    return interrupt()


def in_a_merge_call(model):
    get_replica_context().merge_call(lambda strategy: interrupt())


def in_the_other_replica(model):
    if get_replica_context().local_index == 1:
        interrupt()


def while_the_first_waits(model):
    """The first replica waits for one who has interrupted it, and comes all the same."""
    replica = get_replica_context()
    if replica.local_index == 1:
        interrupt()
    replica.all_reduce("SUM", 1.0)


@pytest.mark.parametrize(
    "place", [in_forward, in_a_merge_call, in_the_other_replica, while_the_first_waits]
)
@pytest.mark.parametrize("make", [MAKERS["mirrored x 2"], MAKERS["central storage x 2"]])
def test_an_interrupted_step_is_made_by_all_or_by_none(make, place):
    model = Model(make())
    states = [model.state()]
    model.step()
    states.append(model.state())

    def step():
        place(model)
        model._replica_step()

    model = Model(make())
    with pytest.raises(KeyboardInterrupt):
        model.strategy.run(step)
    num_updates, _ = model.state()
    assert model.state() == states[num_updates - 1]


def test_an_interrupt_while_gradients_are_added_up_comes_before_the_update():
    model = Model(MirroredStrategy(TWO))
    before = model.state()
    other = MirroredStrategy(TWO, cross_device_ops=InterruptingOps())
    with other.scope():
        w = Variable(np.ones(2))
        optimizer = optimizers.SGD(1.0)
    with pytest.raises(KeyboardInterrupt):
        other.run(lambda: optimizer.apply_gradients([(np.ones(2), w)]))
    copies = [copy.tolist() for copy in w.local_values()]
    iterations = {int(count) for count in optimizer.iterations.local_values()}
    assert copies[0] == copies[1]
    assert (copies[0], iterations) in (([1.0, 1.0], {0}), ([-1.0, -1.0], {1}))
    assert model.state() == before


def test_an_interrupt_is_put_off_once_and_the_second_one_is_not():
    seen = []

    def impatient():
        with InterruptsPutOff() as interrupts:
            interrupts.begin()
            interrupt()
            seen.append("the first waits")
            interrupt()
            seen.append("the second does not")

    with pytest.raises(KeyboardInterrupt):
        impatient()
    assert seen == ["the first waits"]


def test_a_handler_of_the_users_is_called_in_the_end():
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with InterruptsPutOff() as outer, InterruptsPutOff() as inner:
            outer.begin()
            inner.begin()
            interrupt()
            inner.end()
            assert seen == []
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_behind_the_gate_an_interrupt_comes_at_once_and_is_put_off_where_it_is_asked_for():
    seen = []

    def patient():
        with InterruptsPutOff() as interrupts:
            interrupts.begin()
            interrupt()
            seen.append("the first waits")

    with interrupts_pass_gate():
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        with pytest.raises(KeyboardInterrupt):
            patient()
        with pytest.raises(KeyboardInterrupt):  # and nothing of that stays
            interrupt()
    assert seen == ["the first waits"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_is_installed_behind_the_gate_stays_and_is_called_in_the_end():
    seen = []

    def own(number, frame):
        seen.append(number)

    try:
        with interrupts_pass_gate():
            signal.signal(signal.SIGINT, own)
            with InterruptsPutOff() as interrupts:
                interrupts.begin()
                interrupt()
                assert seen == []
            assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_who_puts_the_gate_back_behind_its_end_is_interrupted_as_by_default():
    with interrupts_pass_gate():
        found = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signal.signal(signal.SIGINT, found)
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_no_function_stays_as_it_is(handler):
    signal.signal(signal.SIGINT, handler)
    try:
        with InterruptsPutOff() as interrupts:
            interrupts.begin()
            assert signal.getsignal(signal.SIGINT) == handler
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_st_26_who_neither_comes_nor_returns_is_named_with_what_it_is_at(caplog):
    """Again after each further such time, by one of those who wait."""
    rendezvous = Rendezvous(3, slow_secs=0.05)
    told_twice = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record):
            told.append(record.getMessage())
            if len(told) == 2:
                told_twice.set()

    def comes(replica):
        return rendezvous.exchange(replica, "merge_call(add)", replica)

    def is_busy_elsewhere():
        assert told_twice.wait(20)
        return comes(2)

    told = []
    watch = Watch()
    logging.getLogger("paceline").addHandler(watch)
    try:
        calls = [lambda: comes(0), lambda: comes(1), is_busy_elsewhere]
        found = run_replicas(calls, rendezvous, ["replica 0", "replica 1", "replica 2"])
    finally:
        logging.getLogger("paceline").removeHandler(watch)
    assert found == [(0, 1, 2)] * 3
    for line in told:
        assert line.startswith("Replica 0 has waited for ")
        assert "at merge_call(add) for replica 2" in line
        assert "in is_busy_elsewhere" in line


def test_an_on_read_variable_is_assigned_in_all_copies_or_in_none():
    strategy = MirroredStrategy(TWO)
    with strategy.scope():
        seen = Variable(
            0.0,
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.MEAN,
        )
    with InterruptAt(0) as counting:
        seen.assign(1.0)
    for number in range(1, counting.num_lines + 1):
        seen.assign(0.0)
        with pytest.raises(KeyboardInterrupt), InterruptAt(number):
            seen.assign(1.0)
        assert len({copy.tobytes() for copy in seen.local_values()}) == 1, number
        assert in_use() is HOST, number  # where this thread computes from here on
