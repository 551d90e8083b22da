"""`Rule`: what an optimizer does to one block of one variable.

A rule is a value: a frozen dataclass of its numbers (hyper-parameters), which `update` follows.
Almost all are elementwise, so that a caller may cut a variable into blocks that fit the cache, into
shards on several parameter servers, or pick the rows that a sparse gradient touches; one that is
not, as it divides by the norm of a variable, says so. Whatever is kept between steps is in the
slots.

The arithmetic stays in the dtype of the arrays: numbers are Python floats, which never widen
float32. It is done in place, since a large variable is updated as fast as memory can be read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from ...autodiff import Array
from ...kernels import Loop, compiled_loop
from ..arguments import check_decay, check_fraction, check_not_negative, check_number

Slots: TypeAlias = Sequence[Array]


def _check_not_positive(argument: str, value: float) -> None:
    check_number(argument, value)
    if value > 0:
        raise ValueError(f"{argument} must be ≤ 0, it is {value}")


_RANGES: Mapping[str, Callable[[str, Any], None]] = {
    "momentum": check_fraction,
    "beta_1": check_decay,
    "beta_2": check_decay,
    "rho": check_decay,
    "learning_rate_power": _check_not_positive,
    "beta_2_decay": _check_not_positive,
}
"""What hyper-parameters may be that may not be anything from 0 on."""
_OF_ALL = (("weight_decay", check_not_negative), ("ema_momentum", check_fraction))


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """An update rule with its hyper-parameters: a frozen dataclass of plain numbers.

    Around the arithmetic that gives it its name every rule has two things that optimizers share:
    decoupled weight decay, which comes first, and an exponential moving average of the values,
    which comes last.

    Args:
        weight_decay: Times the learning rate: the part of the value that each update takes away.
        use_ema: Whether a slot keeps the moving average of the value.
        ema_momentum: How much of the average stays in each update.
        ema_overwrite_frequency: The value becomes its average after each so many updates; 0: never.
    """

    weight_decay: float = 0.0
    use_ema: bool = False
    ema_momentum: float = 0.99
    ema_overwrite_frequency: int = 0

    name: ClassVar[str]
    is_elementwise: ClassVar[bool] = True
    """Whether a part of a variable can be updated without the rest."""
    _checks: ClassVar[Sequence[tuple[str, Callable[[str, Any], None]]]] = _OF_ALL

    def __init_subclass__(cls) -> None:
        # Once for a class: an optimizer is made anew for each step.
        own = [name for name, kind in cls.__annotations__.items() if kind == "float"]
        checks = [(name, _RANGES.get(name, check_not_negative)) for name in own]
        cls._checks = (*cls._checks, *checks)

    def __post_init__(self) -> None:
        numbers = self.__dict__
        for name, check in self._checks:
            check(name, numbers[name])

    @property
    def numbers(self) -> Mapping[str, float]:
        """The hyper-parameters by name, as a parameter server is told them."""
        return vars(self)

    def slots(self) -> Mapping[str, float | None]:
        """What is kept beside each variable, in `update`'s order: name → initial value.

        None stands for the variable's own value.
        """
        return {**self.own_slots(), "average": None} if self.use_ema else self.own_slots()

    def slot_shape(self, slot: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a slot of a variable of `shape`: the same, where the rule is elementwise."""
        return shape

    def keeps_unread(self) -> bool:
        """Whether a gradient of zero changes nothing, so that unread rows may be passed over."""
        return self.rests_at_zero() and not (self.weight_decay or self.use_ema)

    def loop_name(self) -> str | None:
        """The loop of `kernels` that does what `move` does, if there is one."""
        return None

    def compiled(self, value: Array, gradient: Array, slots: Slots) -> Loop | None:
        """That loop for these arrays; None: `move` goes on with NumPy."""
        name = self.loop_name()
        return None if name is None else compiled_loop(name, value, gradient, *slots)

    def is_one_pass(self, value: Array, gradient: Array, slots: Slots) -> bool:
        """Whether `update` reads each of these arrays once: to cut them into blocks gains nothing.

        One call that does not hold the GIL is then better than many, for each of which a replica
        may have to wait for another.
        """
        plain = not (self.weight_decay or self.use_ema)
        return plain and self.compiled(value, gradient, slots) is not None

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        """Make one update: overwrites `value` and `slots`, leaves `gradient` alone.

        Args:
            value, gradient: One block of a variable and its gradient, one-dimensional; or the whole
                of both in their shape, for a rule that is not elementwise.
            slots: One array for each of `self.slots()`.
            rate: The learning rate of this update.
            step: The number of this update, from 1.
        """
        if self.weight_decay:
            value *= 1 - rate * self.weight_decay
        if not self.use_ema:
            self.move(value, gradient, slots, rate, step)
            return
        *own, average = slots
        self.move(value, gradient, own, rate, step)
        # After the first update the average is the value, as in Keras 3: it does not remember what
        # chance began with.
        momentum = self.ema_momentum if step > 1 else 0.0
        average *= momentum
        average += (1 - momentum) * value
        if self.ema_overwrite_frequency and step % self.ema_overwrite_frequency == 0:
            value[...] = average

    @abstractmethod
    def own_slots(self) -> Mapping[str, float]:
        """Those of `slots` that `move` works with."""

    @abstractmethod
    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        """The arithmetic that gives the rule its name; as `update`."""

    def rests_at_zero(self) -> bool:
        """Whether a gradient of zero moves nothing."""
        return False


@dataclass(frozen=True)
class Assigning:
    """A rule by which a value becomes, or grows by, what is given as its gradient.

    It is one of those that parameter servers have built in.
    """

    name: str
    is_elementwise: ClassVar[bool] = True
    numbers: ClassVar[Mapping[str, float]] = {}

    def is_one_pass(self, value: Array, gradient: Array, slots: Slots) -> bool:
        return True

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        if self.name == "add":
            value += gradient
        else:
            value[...] = gradient


ADD, ASSIGN = Assigning("add"), Assigning("assign")
