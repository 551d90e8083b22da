"""Summaries: what a model shows of itself, in event files that TensorBoard reads.

scalar, histogram, image, text   in a `model_fn`, every `RunConfig.save_summary_steps` steps
FileWriter                       anywhere: an event file of one's own
"""

from .collecting import (
    Mean,
    Summaries,
    collect_for_good,
    collecting,
    histogram,
    image,
    scalar,
    text,
)
from .event_file import FileWriter

__all__ = [
    "FileWriter",
    "Mean",
    "Summaries",
    "collect_for_good",
    "collecting",
    "histogram",
    "image",
    "scalar",
    "text",
]
