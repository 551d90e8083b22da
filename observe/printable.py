"""Text that others have written, for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with a backslash sequence for each character that is not printable.

    What was read from a file is shown in this form: else it may move the cursor, set the title of
    the terminal, turn the direction of writing, or look like lines of ours.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
