"""`RunOptions`, and the warning of options that are accepted for TensorFlow's signatures only."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..observe import log_once

_NO_EFFECT = "%s has no effect: it is taken for TensorFlow's signature only."


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `Strategy.run`, with TensorFlow's names; of no effect, which is warned about."""

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None


def warn_of_no_effect(options: Any, names: Sequence[str]) -> None:
    """Say once of each of these options that it changes nothing, where it is not the default."""
    defaults = type(options)()
    for name in names:
        if getattr(options, name) != getattr(defaults, name):
            option = f"{type(options).__name__}({name}=...)"
            log_once(logging.WARNING, _NO_EFFECT, option)
