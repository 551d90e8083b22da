"""A variable that is read elsewhere than where it is kept: its value goes there, and its gradient
comes back."""

from __future__ import annotations

from ...autodiff import Tensor, record
from ..devices.device import Device


def seen_from(here: Device, tensor: Tensor, home: Device) -> Tensor:
    """A copy that lies at `home`, as who computes on `here` reads it."""
    brought = here.bring(tensor.data)
    if brought is tensor.data:
        return tensor
    if here.kind == "CPU":  # an optimizer takes gradients from there, and the caller's arrays are
        return record(brought, (tensor,), lambda gradient, outs: (gradient,))
    return record(brought, (tensor,), lambda gradient, outs: (home.bring(gradient),))
