"""An optimizer that is made again with the same arguments is like one that is made anew."""

import copy
import itertools
import pickle
import threading

import numpy as np
import pytest

import paceline as pl
from paceline.nn import optimizers
from paceline.nn.optimizers import schedules
from paceline.strategies import Variable, VariableStore

MADE = [
    ("SGD", (0.1,), {}),
    ("SGD", (), {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", (0.01,), {"beta_1": 0.8, "name": "mine"}),
    ("AdamW", (), {"weight_decay": 0.1, "clipnorm": 1.0}),
    ("RMSprop", (schedules.ExponentialDecay(0.1, 10, 0.5),), {"use_ema": True}),
    ("Adagrad", (lambda: 0.1,), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), MADE)
def test_es15_its_settings_are_those_of_the_first(name, args, kwargs):
    kind = getattr(optimizers, name)
    with VariableStore().building():
        first = kind(*args, **kwargs)
    with VariableStore().building():
        again = kind(*args, **kwargs)
    assert again.name == first.name
    assert again.described(3) == first.described(3)
    assert again is not first
    if name != "Adagrad":  # a lambda cannot be written down
        assert again.get_config() == first.get_config()


def test_es15_arguments_are_looked_at_anew_where_they_differ_in_type_alone():
    for _ in range(2):
        optimizers.SGD(1)
        with pytest.raises(TypeError, match="it is True"):
            optimizers.SGD(True)
        with pytest.raises(ValueError, match="finite number"):
            optimizers.SGD(-0.5)


def test_es15_what_is_changed_in_one_is_not_changed_in_the_next():
    first = optimizers.AdamW(0.5, weight_decay=0.1)
    first.learning_rate = 0.25
    first.exclude_from_weight_decay(var_names=["bias"])
    again = optimizers.AdamW(0.5, weight_decay=0.1)
    assert again.learning_rate == 0.5
    assert "bias" not in again.described(0)
    assert "bias" in first.described(0)


def test_es15_each_has_a_name_of_its_own_and_slots_of_its_own():
    with VariableStore().building():
        w = Variable(np.ones(3))
        first, again = optimizers.Adam(0.1), optimizers.Adam(0.1)
        first.minimize(np.sum(w * w))()
        assert (first.name, again.name) == ("adam", "adam_1")
        assert (int(first.iterations.numpy()), int(again.iterations.numpy())) == (1, 0)


def test_es15_a_constructor_of_a_user_runs_each_time():
    calls = []

    class Counting(optimizers.SGD):
        def __init__(self, learning_rate):
            calls.append(learning_rate)
            super().__init__(learning_rate)

    for _ in range(2):
        Counting(0.1)
    assert calls == [0.1, 0.1]


def test_es15_one_that_was_made_again_can_be_copied_and_sent():
    optimizers.Adam(0.3)
    again = optimizers.Adam(0.3)
    for other in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert other.get_config()["learning_rate"] == 0.3


class Meeting(dict):
    """Both threads have found nothing before either goes on."""

    def __init__(self):
        self.both, self.num_asked = threading.Barrier(2, timeout=20), itertools.count()

    def get(self, *arguments):
        found = super().get(*arguments)
        if next(self.num_asked) < 2:
            self.both.wait()
        return found


def test_replicas_that_ask_for_slots_at_once_fill_the_same():
    """Else each would put them in another order, and take the one for the other."""
    with VariableStore().building():
        variable, optimizer = pl.get_variable("w", (3,)), optimizers.Adam()
        optimizer._membership.latest.slots = Meeting()
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(optimizer._slots_of(variable)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found[0] is found[1]
        assert [slot.name.rpartition("/")[2] for slot in optimizer.slots(variable)] == ["m", "v"]


def test_es15_replicas_that_differ_say_so_whoever_else_says_something_meanwhile(threads_alternate):
    store, said = VariableStore(), {}
    momenta = 0.5, 0.75

    def replica(momentum):
        with store.building():
            optimizer = optimizers.SGD(0.1, momentum=momentum)
        said[momentum] = {optimizer.described(0) for _ in range(2000)}

    threads = [threading.Thread(target=replica, args=(momentum,)) for momentum in momenta]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(said[momentum]) for momentum in momenta] == [1, 1]
    assert said[0.5] != said[0.75]
