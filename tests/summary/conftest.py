"""Event files, read by TensorBoard itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


class Shown:
    """What TensorBoard makes of the event files of a directory."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self._found = EventAccumulator(str(directory), dict.fromkeys(("scalars", "tensors"), 0))
        self._found.Reload()

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of each kind of summary that there is."""
        tags = self._found.Tags()
        return {kind: names for kind, names in tags.items() if isinstance(names, list) and names}

    def scalars(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of a scalar."""
        return [(event.step, event.value) for event in self._found.Scalars(name)]

    def histogram(self, name: str) -> Any:
        """The last one: min, max, num, sum, sum_squares, bucket_limit, bucket."""
        return self._found.Histograms(name)[-1].histogram_value

    def strings(self, name: str) -> list[bytes]:
        """The last text; or the last images: width, height, and PNG files."""
        return list(self._found.Tensors(name)[-1].tensor_proto.string_val)

    def plugin(self, name: str) -> str:
        """Who shows a text or an image."""
        plugin: str = self._found.SummaryMetadata(name).plugin_data.plugin_name
        return plugin


@pytest.fixture
def shown() -> type[Shown]:
    """`shown(directory)` has what TensorBoard reads there."""
    return Shown
