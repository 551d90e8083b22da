"""What arguments mean, and what of them is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Meaning = TypeVar("Meaning")


def by_name(kind: str, name: str, known: Mapping[str, Meaning]) -> Meaning:
    """What is called `name`: in any case, with or without underscores, so Keras's classes too."""
    if name in known:
        return known[name]
    wanted = name.replace("_", "").lower()
    for other, meaning in known.items():
        if other.replace("_", "") == wanted:
            return meaning
    raise ValueError(f"no {kind} is called {name!r}; there are {', '.join(known)}")


def snake_case(name: str) -> str:
    """The name of a class as that of its objects: "MeanSquaredError" is "mean_squared_error"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def name_of_class(name: str) -> str:
    """Keras's name for objects of a layer's class: MaxPooling2D becomes max_pooling2d."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def meaning_of(kind: str, given: Any, known: Mapping[str, Any], allowed: str) -> Any:
    """What an argument stands for: what is called so, or itself where it can be called."""
    if isinstance(given, str):
        return by_name(kind, given, known)
    if not callable(given):
        raise TypeError(f"{kind} must be {allowed}, not {given!r}")
    return given


def check_channels_last(layer: str, data_format: str | None) -> None:
    """Refuse a `data_format` that is not Keras's default."""
    if data_format not in (None, "channels_last"):
        raise ValueError(
            f"{layer} takes data_format='channels_last' only, not {data_format!r}; "
            f"move the channels with np.transpose(images, (0, 2, 3, 1))"
        )


def check_no_activity_regularizer(layer: str, activity_regularizer: Any) -> None:
    """Refuse what is not supported, before it is believed to work."""
    if activity_regularizer is not None:
        raise ValueError(
            f"layer {layer!r} takes no activity_regularizer; add the penalty of its outputs to the "
            f"loss, as in loss + penalty(outputs) / len(outputs)"
        )


def check_choice(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        few = len(allowed) == 2
        choices = " or ".join(map(repr, allowed)) if few else f"one of {', '.join(allowed)}"
        raise ValueError(f"{argument} must be {choices}, it is {value!r}")
    return value


def pair(argument: str, value: int | Sequence[int]) -> tuple[int, int]:
    """Two positive numbers, for height and width, from one or two."""
    numbers = (value, value) if isinstance(value, (int, np.integer)) else tuple(value)
    if len(numbers) == 2 and all(isinstance(n, (int, np.integer)) and n > 0 for n in numbers):
        return int(numbers[0]), int(numbers[1])
    raise ValueError(f"{argument} must be one or two positive integers, it is {value!r}")


def count(argument: str, value: Any) -> int:
    """A number of something, at least one; 2.5 and True are none."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(f"{argument} must be a positive integer, it is {value!r}")
    return int(value)


def check_number(argument: str, value: Any) -> None:
    if not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
        raise ValueError(f"{argument} must be a finite number, it is {value!r}")


def check_positive(argument: str, value: Any) -> None:
    check_number(argument, value)
    if value <= 0:
        raise ValueError(f"{argument} must be positive, it is {value}")


def check_not_negative(argument: str, value: Any) -> None:
    check_number(argument, value)
    if value < 0:
        raise ValueError(f"{argument} must not be negative, it is {value}")


def check_fraction(argument: str, value: Any) -> None:
    check_number(argument, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{argument} must be between 0 and 1, it is {value}")


def check_decay(argument: str, value: Any) -> None:
    check_number(argument, value)
    if not 0 <= value < 1:
        raise ValueError(f"{argument} must be at least 0 and below 1, it is {value}")


def check_no_options(options: None) -> None:
    """Refuse TensorFlow's `SaveOptions` and `CheckpointOptions`."""
    if options is not None:
        raise ValueError(
            f"options must be None, it is {options!r}: they tell TensorFlow how to write its own "
            f"files, which paceline does not write; leave them out"
        )
