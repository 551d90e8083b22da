"""A small blackboard, by which trainers tell each other what is not the server's business."""

from __future__ import annotations

from typing import final

MAX_KEYS = 10_000
MAX_CHARACTERS = 16 << 20


@final
class Board:
    """Texts by key, bounded in number and size. Whoever calls a method holds the server's lock."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._num_characters = 0

    def read(self, key: str) -> str | None:
        """What is there."""
        return self._texts.get(key)

    def post(self, key: str, text: str | None) -> None:
        """Put a text in place of what was there; None takes it off.

        Raises:
            ValueError: The board is full.
        """
        if text is None:
            self._num_characters -= len(self._texts.pop(key, ""))
            return
        if key not in self._texts and len(self._texts) >= MAX_KEYS:
            raise ValueError(
                f"the board holds {MAX_KEYS} keys, no room for '{key}'; post None for keys that "
                "are needed no longer"
            )
        num_characters = self._num_characters - len(self._texts.get(key, "")) + len(text)
        if num_characters > MAX_CHARACTERS:
            raise ValueError(
                f"the board holds {MAX_CHARACTERS} characters, with '{key}' they would be "
                f"{num_characters}; post shorter texts, or files for what is large"
            )
        self._texts[key] = text
        self._num_characters = num_characters
