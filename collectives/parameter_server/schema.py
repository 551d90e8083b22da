"""What a body on the parameter-server channel may hold: plain, bounded, checked before use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_WAIT_SECS = 10.0
"""No request keeps its connection waiting for longer: whoever wants to wait on asks again."""

DType = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
Aggregation = Literal["mean", "sum", "first", "equal"]
Natural = Annotated[int, Field(ge=0, lt=2**62)]
Rank = Annotated[int, Field(ge=0, lt=2**20)]
WaitSecs = Annotated[float, Field(ge=0, le=MAX_WAIT_SECS)]
Name = Annotated[str, Field(min_length=1, max_length=1024)]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
Text = Annotated[str, Field(max_length=256 << 10)]
Shape = Annotated[tuple[Natural, ...], Field(strict=False, max_length=8)]
Ids = Annotated[tuple[Natural, ...], Field(strict=False, max_length=10_000)]
Names = Annotated[tuple[str, ...], Field(strict=False, max_length=2**20)]


class Record(BaseModel):
    """What all bodies, and what they are made of, have in common."""

    # Built on first use: importing costs milliseconds less.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )
