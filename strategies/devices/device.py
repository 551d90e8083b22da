"""Devices: their names, which of them are here, and how arrays get onto them.

`CPU:i` is logical: there are as many as one asks for, and all share the host's memory. `GPU:i` is a
card that CuPy can see, and `GPU:i:j` a logical device of it: as many as one asks for, of which
`GPU:i` is the first, all in the card's memory, each with a stream of its own (`gpu`). Strategies
that are given no devices take those that are *visible*.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np

from ...autodiff import Array, is_placing, placing
from . import gpu, graphs

_NAME = re.compile(
    r"^/?(?:job:(?P<job>\w+)/)?(?:replica:(?P<replica>\d+)/)?(?:task:(?P<task>\d+)/)?"
    r"(?:device:)?(?P<kind>CPU|GPU):(?P<index>\d+|\*)(?::(?P<part>\d+))?$",
    re.IGNORECASE,
)
_NOTHING_TO_CHOOSE = nullcontext()


@dataclass(frozen=True)
class Device:
    """A place for arrays, of one task of the cluster: `CPU:i` (logical), `GPU:i` or `GPU:i:j`.

    `part` is j, the number of a logical device of a card; 0 for the first, and for CPUs.
    """

    kind: str
    index: int = 0
    job: str = "localhost"
    task: int = 0
    part: int = 0

    def __str__(self) -> str:
        return f"/job:{self.job}/replica:0/task:{self.task}/device:{self.short_name}"

    @property
    def short_name(self) -> str:
        """Its name among those of its task."""
        return f"{self.kind}:{self.index}" + (f":{self.part}" if self.part else "")

    @classmethod
    def parse(cls, name: str | Device) -> Device:
        """Read "GPU:0", "/gpu:0", "GPU:0:1" or "/job:worker/replica:0/task:1/device:GPU:0".

        Raises:
            ValueError: The name has none of these forms.
        """
        if isinstance(name, Device):
            return name
        found = _NAME.match(name) if isinstance(name, str) else None
        if found is None or found["index"] == "*":
            raise ValueError(
                f"device {name!r} is not a device name; write 'CPU:0', 'GPU:1', 'GPU:1:1' (another "
                f"logical device of that card) or '/job:worker/replica:0/task:0/device:GPU:0'"
            )
        kind, part = found["kind"].upper(), int(found["part"] or 0)
        if kind == "CPU" and part:
            raise ValueError(
                f"device {name!r} is not a device name: CPUs are logical, 'CPU:1' is another one"
            )
        job, task = found["job"] or "localhost", int(found["task"] or 0)
        return cls(kind, int(found["index"]), job, task, part)

    @classmethod
    def of(cls, array: Array) -> Device:
        """Whose an array is; the host's is that of all logical CPUs."""
        if isinstance(array, (np.ndarray, np.generic)):
            return HOST
        index, part = gpu.home(array)
        return cls("GPU", index, part=part)

    def put(self, array: Array) -> Array:
        """A copy of `array` in this device's memory."""
        if self.kind == "GPU":
            given = np.asarray(array) if isinstance(array, np.generic) else array
            return gpu.put(given, self.index, self.part)
        return np.array(to_host(array), order="C")

    def bring(self, array: Array) -> Array:
        """`array` itself where it is this device's already, else a copy that is."""
        if isinstance(array, (np.ndarray, np.generic)):
            is_here = self.kind == "CPU"
        else:
            is_here = self.kind == "GPU" and gpu.home(array) == (self.index, self.part)
        return array if is_here else self.put(array)

    def fetch(self, array: Array) -> SupportsFloat:
        """The only number of an array that the calling replica computes, for the host.

        It is on its way if it lies on a card; `float` of it waits for it, and for nothing else.
        """
        return float(array.item()) if isinstance(array, np.ndarray) else gpu.Fetched(array)

    @property
    def capture(self) -> Callable[[Callable[[], object]], Callable[[], None]] | None:
        """What makes a graph of work that is done on it: see `graphs.capture`; None on the host."""
        return graphs.capture if self.kind == "GPU" else None

    @property
    def memory(self) -> str:
        """Whose arrays it computes with; logical CPUs share the host's."""
        return self.short_name if self.kind == "GPU" else "host"

    def use(self) -> AbstractContextManager[object]:
        """Within it, new GPU arrays are made on this device, and operands are brought to it."""
        if self.kind == "GPU":
            return _on_gpu(self)
        # A replica that computes on a card has the host do some of its work.
        return _using(self, None) if is_placing() else _NOTHING_TO_CHOOSE


HOST = Device("CPU", 0)

_in_use: ContextVar[Device] = ContextVar("paceline_device_in_use", default=HOST)


def in_use() -> Device:
    """The device that the calling code `use`s; the host where it chooses none."""
    return _in_use.get()


@contextmanager
def _on_gpu(device: Device) -> Iterator[None]:
    with gpu.use(device.index, device.part), _using(device, device.bring):
        yield


@contextmanager
def _using(device: Device, put: Callable[[np.ndarray], Array] | None) -> Iterator[None]:
    before = _in_use.get()
    try:
        try:
            _in_use.set(device)
            with placing(put):
                yield
        finally:
            _in_use.set(before)
    finally:  # also where an interrupt came in front of it
        _in_use.set(before)


def to_host(array: Array) -> np.ndarray:
    """The values of an array in host memory; no copy where they are there already."""
    if isinstance(array, np.ndarray | np.generic | int | float | bool | list | tuple):
        return np.asarray(array)
    return gpu.get(array)


_visible: dict[str, tuple[Device, ...]] = {}
"""By kind, what the program has chosen. A kind that is not here has all its cards, or one CPU."""


def list_devices(kind: str, hidden: bool = False) -> tuple[Device, ...]:
    """The visible devices of one kind: every GPU and the one host CPU, if nothing else was chosen.

    Of other kinds, TPUs for instance, there are none.

    Args:
        kind: "CPU" or "GPU", in any case.
        hidden: Whether to list what the machine has, whatever was chosen.
    """
    kind = kind.upper()
    if kind in _visible and not hidden:
        return _visible[kind]
    if kind == "GPU":
        return tuple(Device("GPU", i) for i in range(gpu.count()))
    return (HOST,) if kind == "CPU" else ()


def set_visible_devices(devices: Iterable[str | Device] | None, kind: str) -> None:
    """Choose the devices of one kind for strategies that are given none when they are made.

    `set_visible_devices(["CPU:0", "CPU:1"], "CPU")` gives this process two logical CPUs, so that
    `MirroredStrategy()` has two replicas where there is no GPU; `set_visible_devices([], "GPU")`
    hides the GPUs; `set_visible_devices(["GPU:0", "GPU:0:1"], "GPU")` lets two replicas share a
    card. It holds for the process, and changes no strategy that is there already.

    Args:
        devices: Their names; None takes the choice back.
        kind: "CPU" or "GPU".

    Raises:
        ValueError: `kind` is another one, a device is of another kind, named twice, or a GPU that
            is not here; or there would be no CPU.
    """
    kind = kind.upper()
    if kind not in ("CPU", "GPU"):
        raise ValueError(f"kind must be 'CPU' or 'GPU', it is {kind!r}")
    if devices is None:
        _visible.pop(kind, None)
        return
    chosen = _distinct(devices)
    others = [str(d) for d in chosen if d.kind != kind]
    if others:
        raise ValueError(f"{', '.join(others)} cannot be chosen as devices of kind {kind}")
    if kind == "CPU" and not chosen:
        raise ValueError("the CPU cannot be hidden, since it runs the program; name 'CPU:0'")
    absent = [str(d) for d in chosen if kind == "GPU" and d.index >= gpu.count()]
    if absent:
        raise ValueError(f"{', '.join(absent)} is not here: CuPy sees {gpu.count()} GPU(s)")
    _visible[kind] = chosen


def default_devices(num_accelerators: Mapping[str, int] | None = None) -> tuple[Device, ...]:
    """The devices to run on where none are asked for: all visible GPUs, or all visible CPUs.

    A cluster's description may say of each task {"GPU": 2}, the first two, or {"GPU": 0}, its CPUs.
    """
    asked = {kind.upper(): number for kind, number in (num_accelerators or {}).items()}
    visible = list_devices("GPU")
    wanted = asked.get("GPU", len(visible))
    missing = [Device("GPU", i) for i in range(wanted) if Device("GPU", i) not in visible]
    return (*visible, *missing)[:wanted] or list_devices("CPU")


def _distinct(names: Iterable[str | Device]) -> tuple[Device, ...]:
    """The devices of these names.

    Raises:
        ValueError: One is named twice, or is no device name.
    """
    if isinstance(names, str):
        raise ValueError(f"devices must be a list of names, got {names!r}; write [{names!r}]")
    if not isinstance(names, Iterable):
        raise ValueError(
            f"devices must be a list of names, got {names!r}; name each of them, as in "
            f"['GPU:0', 'GPU:1'] or, for two replicas on the host, ['CPU:0', 'CPU:1']"
        )
    devices = tuple(Device.parse(name) for name in names)
    twice = sorted({str(d) for d in devices if devices.count(d) > 1})
    if twice:
        raise ValueError(
            f"devices names {', '.join(twice)} more than once; each can hold one replica. A card "
            f"can hold several, as logical devices: 'GPU:0', 'GPU:0:1'"
        )
    return devices


def resolve(names: Iterable[str | Device], strict: bool = False) -> tuple[Device, ...]:
    """The devices to run on for the devices asked for.

    A GPU that is not there is stood in for by a logical CPU, with one warning that names all such,
    so that a script written for GPUs runs anywhere.

    Args:
        names: Device names; at least one, none twice.
        strict: Whether an absent GPU is an error instead.

    Raises:
        ValueError: No device, one named twice, or (strict) one that is not there.
    """
    devices = _distinct(names)
    if not devices:
        raise ValueError("devices is empty; name at least one, such as 'CPU:0', or pass None")
    visible = list_devices("GPU")
    indexes = {device.index for device in visible}
    absent = [d for d in devices if d.kind == "GPU" and d.index not in indexes]
    if not absent:
        return devices
    names_absent = ", ".join(d.short_name for d in absent)
    seen = f"{len(visible)} GPU(s) visible to CuPy"
    if strict:
        raise ValueError(
            f"devices asks for {names_absent}, but there are {seen} (strict_devices=True)"
        )
    logging.getLogger("paceline").warning(
        "Devices %s are not here (%s): logical CPU devices stand in for them.", names_absent, seen
    )
    free = (i for i in range(2 * len(devices)) if Device("CPU", i) not in devices)
    return tuple(Device("CPU", next(free)) if d in absent else d for d in devices)
