"""What all replicas and workers must do alike in a step, and how it is found out when they do not.

Copies stay equal because all apply the same rule with the same numbers to the same gradients. Who
does otherwise, by a hyper-parameter of its own say, would make the copies differ for good without
anybody noticing. So each replica says in a few lines what it is about to do. Replicas of one worker
compare the lines; workers compare digests of them, which travel with the sums of the step.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

_DIGEST_BITS = 20
_MOST_LINES = 3


class DisagreementError(ValueError):
    """Replicas or workers that must do the same are about to do different things."""


def digest(lines: Sequence[str]) -> tuple[float, float, float]:
    """Three numbers that show, when they are added up over workers, whether all had these lines.

    They are 1, d and d² of a whole number d of 20 bits. Over n workers n · Σd² = (Σd)² if and only
    if all d are equal (Cauchy and Schwarz). In float64 the sums are exact for up to 2^13 workers.
    Who has nothing to say adds nothing.
    """
    if not lines:
        return 0.0, 0.0, 0.0
    number = zlib.crc32("\n".join(lines).encode()) >> (32 - _DIGEST_BITS)
    return 1.0, float(number), float(number**2)


def is_common(totals: Sequence[float]) -> bool:
    """Whether the three sums of `digest` are those of equal lines."""
    count, numbers, squares = totals
    return count * squares == numbers * numbers


def require_common(lines: Sequence[Sequence[str]], who: str) -> None:
    """Refuse to go on where not all have the same lines, or none.

    The `DisagreementError` has what each replica or worker (`who`) is about to do.
    """
    said = [(index, list(of_one)) for index, of_one in enumerate(lines) if of_one]
    first, *others = said or [(0, [])]
    for other in others:
        if other[1] != first[1]:
            raise DisagreementError(
                f"{who} {other[0]} and {who} {first[0]} must make the same step, else their copies "
                f"of the model differ from now on: {who} {other[0]} has {_only(other, first)}; "
                f"{who} {first[0]} has {_only(first, other)}. What a step depends on (the model, "
                f"hyper-parameters, values assigned outside steps) must be the same everywhere"
            )


def _only(of_one: tuple[int, list[str]], of_other: tuple[int, list[str]]) -> str:
    """The lines that only one has."""
    theirs = set(of_other[1])
    lines = [line for line in of_one[1] if line not in theirs]
    more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
    return "; ".join(lines[:_MOST_LINES]) + more or "nothing of the kind"
