"""One replica: on one explicit device, or, by default, where the code runs anyway."""

from __future__ import annotations

from typing import Any

from .context import ReplicaContext
from .devices.cross_device_ops import ReductionToOneDevice
from .devices.device import HOST, Device, resolve
from .extended import StrategyExtended
from .replicas.frame import Frame, default_frame, install_default_frame
from .replicas.rendezvous import Rendezvous
from .strategy import Strategy


class OneDeviceStrategy(Strategy):
    """Places all variables and all computation on one device.

    Args:
        device: Its name, such as "GPU:0".
        strict_devices: Whether a GPU that is not there is an error; else a logical CPU stands in
            for it, with a warning.
    """

    def __init__(self, device: str | Device, strict_devices: bool = False) -> None:
        devices = resolve([device], strict_devices)
        super().__init__(StrategyExtended(devices, devices, ReductionToOneDevice()))


class DefaultStrategy(Strategy):
    """The strategy that is current outside any scope: a pass-through with one replica on the host.

    There is exactly one; `get_strategy()` returns it.
    """

    _passes_through = True

    def __init__(self) -> None:
        raise RuntimeError(
            "the default strategy is a singleton and cannot be constructed; "
            "get it with get_strategy() outside any scope"
        )


def _the_one() -> Any:
    return default_frame().strategy


def _make() -> Any:
    # Past __init__, which refuses: this is the only one.
    strategy = DefaultStrategy.__new__(DefaultStrategy)
    strategy._remake = (_the_one, ())
    Strategy.__init__(strategy, StrategyExtended([HOST], [HOST], ReductionToOneDevice()))
    return strategy


class _OnFirstDevice(OneDeviceStrategy):
    _passes_through = True


def on_first_device(strategy: Strategy) -> Strategy:
    """A single replica on the first device of a strategy; on the host that is the default one."""
    device = strategy.extended.replica_devices[0]
    return DEFAULT_STRATEGY if device.kind == "CPU" else _OnFirstDevice(device)


DEFAULT_STRATEGY = _make()
install_default_frame(Frame(DEFAULT_STRATEGY, ReplicaContext(DEFAULT_STRATEGY, 0, Rendezvous(1))))
