"""Arguments of TensorFlow's functions that have another name here, no effect, or no counterpart."""

from __future__ import annotations

from typing import Any


def refuse(function: str, *arguments: tuple[str, Any, Any, str]) -> None:
    """Refuse arguments that would change a result and are not supported.

    Args:
        function: The name of the function.
        arguments: For each its name, its value, the default, and what to do instead.

    Raises:
        ValueError: A value is not the default.
    """
    for name, value, default, instead in arguments:
        if value is not default and value != default:
            raise ValueError(f"{function}: {name} must be {default!r}, got {value!r}; {instead}")
