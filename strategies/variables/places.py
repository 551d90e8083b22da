"""A variable that is read elsewhere than where it is kept: its value goes there, and its gradient
comes back."""

from __future__ import annotations

from typing import Any

from ...autodiff import Array, Tensor, record
from ..devices.device import Device


def seen_from(here: Device, tensor: Tensor, home: Device) -> Tensor:
    """A copy that lies at `home`, as who computes on `here` reads it.

    Raises:
        ValueError: Backward, where both are cards: what other uses of the variable contribute would
            be added there, out of the order of its own work.
    """
    brought = here.bring(tensor.data)
    if brought is tensor.data:
        return tensor

    def back(gradient: Array, outs: Any) -> tuple[Array]:
        if here.kind == "CPU":  # an optimizer takes it from there, and the caller's arrays are
            return (gradient,)
        if home.kind == "CPU":
            return (home.bring(gradient),)
        raise ValueError(
            f"{tensor.label} lies on {home.short_name}, and a replica on {here.short_name} asks "
            f"for its gradient; create it inside `with strategy.scope():` of the strategy that "
            f"trains it, so that each card has a copy, or outside any, so that the host has it"
        )

    return record(brought, (tensor,), back)
