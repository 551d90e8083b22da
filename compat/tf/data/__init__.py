"""`tf.data`: datasets and their options."""

from ....inputs import Dataset, Options
from . import experimental

__all__ = ["Dataset", "Options", "experimental"]
