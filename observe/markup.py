"""HTML and SVG whose text is escaped by construction."""

from __future__ import annotations

import html
from typing import TypeAlias, final


@final
class Markup(str):
    """Text that is markup already; any other text is escaped where it becomes part of some."""

    __slots__ = ()


Child: TypeAlias = "str | float | None"


def element(name: str, *children: Child, **attributes: Child) -> Markup:
    """An element.

    Args:
        name: Such as "div".
        children: Markup, or text to be escaped; None is left out.
        attributes: `class_` stands for `class`, other `_` for `-`; None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Several pieces one after another."""
    return Markup("".join(_escaped(child) for child in children if child is not None))


def _escaped(child: str | float) -> str:
    return child if isinstance(child, Markup) else html.escape(str(child))
