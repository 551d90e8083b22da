"""Variables on parameter servers: `ParameterServerStrategy`, and where it puts them."""

from .placement import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
    Partitioner,
    Piece,
    Place,
)
from .strategy import ParameterServerStrategy

__all__ = [
    "FixedShardsPartitioner",
    "MaxSizePartitioner",
    "MinSizePartitioner",
    "ParameterServerStrategy",
    "Partitioner",
    "Piece",
    "Place",
]
