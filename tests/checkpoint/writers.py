"""Writers of the other shards of a checkpoint, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Others:
    """As many writers as one likes, who do what a function does.

    Args:
        num: how many they are.
        begin: called with the draft; what it returns is called for their reports.
    """

    def __init__(self, num: int, begin: Callable[[str], Callable[[], Sequence[str]]]) -> None:
        self.num = num
        self._begin = begin
        self._reports: Callable[[], Sequence[str]] = tuple

    def begin(self, draft: str) -> None:
        self._reports = self._begin(draft)

    def reports(self) -> Sequence[str]:
        return self._reports()
