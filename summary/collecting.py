"""What a `model_fn` shows of itself: summaries by name, over all replicas and workers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from ..observe import log_once
from ..strategies import current_store
from .event_file import FileWriter
from .values import Histogram, Images, as_number, as_text

_OUTSIDE_MODELS = (
    "paceline.summary.scalar and its like were called outside a model_fn and show nothing "
    "there: write with paceline.summary.FileWriter(directory).scalar(name, value, step)."
)


@final
@dataclass(frozen=True)
class Mean:
    """A scalar as the mean over examples.

    Args:
        total: The sum of the replicas' values, each times its number of examples.
        weight: The number of examples.
    """

    total: float
    weight: float

    def __add__(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.weight + other.weight)

    @property
    def value(self) -> float:
        return self.total / self.weight


Summary: TypeAlias = Mean | Histogram | Images | str


@final
class Summaries:
    """Summaries by name, in the order in which they were noted; empty to begin with."""

    def __init__(self, found: Mapping[str, Summary] | None = None) -> None:
        self._found = dict(found or {})

    def __len__(self) -> int:
        return len(self._found)

    def note(self, name: str, summary: Summary) -> None:
        """Take one more; a name that is there already is numbered, as in TensorFlow."""
        unique, number = name, 0
        while unique in self._found:
            number += 1
            unique = f"{name}_{number}"
        self._found[unique] = summary

    def of_examples(self, num_examples: float) -> Summaries:
        """Those of a replica with so many: its scalars count as often; without any none does."""
        if not num_examples:
            return Summaries()
        return Summaries({name: _times(s, num_examples) for name, s in self._found.items()})

    @classmethod
    def together(cls, several: Iterable[Summaries]) -> Summaries:
        """As one process would have them that has all examples of a step.

        Scalars are means over all examples, histograms are of all numbers; images and texts are
        those of the first that has them.

        Raises:
            ValueError: A name is a scalar on one replica and something else on another.
        """
        result: dict[str, Summary] = {}
        for summaries in several:
            for name, summary in summaries._found.items():
                before = result.get(name)
                result[name] = summary if before is None else _added(name, before, summary)
        return cls(result)

    def scalars(self) -> dict[str, float]:
        """The numbers by name."""
        return {name: s.value for name, s in self._found.items() if isinstance(s, Mean)}

    def write(self, writer: FileWriter, step: int) -> None:
        """Write all of them."""
        for name, summary in self._found.items():
            if isinstance(summary, Mean):
                writer.scalar(name, summary.value, step)
            elif isinstance(summary, Histogram):
                writer.histogram(name, summary, step)
            elif isinstance(summary, Images):
                writer.image(name, summary, step)
            else:
                writer.text(name, summary, step)

    def shown_once(self) -> Summaries:
        """The images and texts, of which the first replica's are shown."""
        kept = {n: s for n, s in self._found.items() if isinstance(s, Images | str)}
        return Summaries(kept)

    def added_up_as_text(self) -> str:
        """The scalars and histograms, which workers add up, as JSON."""
        means = {n: vars(s) for n, s in self._found.items() if isinstance(s, Mean)}
        histograms = {n: s.as_json() for n, s in self._found.items() if isinstance(s, Histogram)}
        return json.dumps([means, histograms])

    @classmethod
    def from_text(cls, text: str) -> Summaries:
        """What `added_up_as_text` gave."""
        means, histograms = json.loads(text)
        found: dict[str, Summary] = {name: Mean(**told) for name, told in means.items()}
        return cls(found | {n: Histogram.from_json(told) for n, told in histograms.items()})


def _times(summary: Summary, num_examples: float) -> Summary:
    if isinstance(summary, Mean):
        return Mean(summary.total * num_examples, summary.weight * num_examples)
    return summary


def _added(name: str, one: Summary, other: Summary) -> Summary:
    if isinstance(one, Mean) and isinstance(other, Mean):
        return one + other
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        return one + other
    if type(one) is type(other):
        return one
    kinds = " and ".join(sorted({type(one).__name__, type(other).__name__}))
    raise ValueError(
        f"the summary {name!r} is of different kinds on different replicas ({kinds}); give each "
        f"kind a name of its own"
    )


_collected: ContextVar[Summaries | None] = ContextVar("paceline_summaries", default=None)


@contextmanager
def collecting(summaries: Summaries | None) -> Iterator[None]:
    """Let what a model shows within the block be noted in `summaries`; with None nowhere."""
    token = _collected.set(summaries)
    try:
        yield
    finally:
        _collected.reset(token)


def collect_for_good(summaries: Summaries) -> None:
    """`collecting` for all that follows in the calling context, which is the caller's own."""
    _collected.set(summaries)


def scalar(name: str, value: Any) -> None:
    """Show a number of this step, in a `model_fn`.

    It is evaluated every `RunConfig.save_summary_steps` steps, and does nothing in between. On
    several replicas and workers what is shown is the mean over all examples of the step: each
    replica's value counts as often as it has examples. With parameter servers each worker makes
    steps of its own, and the chief shows its own.

    Args:
        name: What TensorBoard shows it as; a `/` in it makes groups.
        value: A number, or an array, tensor or variable of one element; or a function without
            arguments that gives one, which is called in steps that show it only. All workers show
            the same steps, as long as `RunConfig` alone says which: so it may ask a metric for its
            `result`, which all replicas must do together.

    Raises:
        TypeError: It is no number.
    """
    summaries = _here()
    if summaries is not None:
        number = value() if callable(value) else value
        summaries.note(name, Mean(as_number(name, number), 1))


def histogram(name: str, value: Any) -> None:
    """Show how numbers are distributed, in a `model_fn`; those of all replicas together.

    Args:
        name: What TensorBoard shows it as.
        value: An array, tensor or variable; what is not finite is left out.
    """
    summaries = _here()
    if summaries is not None:
        summaries.note(name, Histogram.of(value))


def image(name: str, value: Any) -> None:
    """Show up to three images, in a `model_fn`: those of the first replica.

    Args:
        name: What TensorBoard shows them as.
        value: See `FileWriter.image`.

    Raises:
        ValueError: It has another shape or dtype.
    """
    summaries = _here()
    if summaries is not None:
        summaries.note(name, Images.of(name, value))


def text(name: str, value: str) -> None:
    """Show a text, in a `model_fn`: that of the first replica.

    Raises:
        TypeError: It is no text.
    """
    summaries = _here()
    if summaries is not None:
        summaries.note(name, as_text(name, value))


def _here() -> Summaries | None:
    """Where the calling model's summaries are noted; None where this step shows none."""
    found = _collected.get()
    if found is None and not current_store().keep:
        log_once(logging.WARNING, _OUTSIDE_MODELS)
    return found
