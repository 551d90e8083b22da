"""`tf.data.experimental`: how several workers divide a dataset."""

from ....inputs import AutoShardPolicy

__all__ = ["AutoShardPolicy"]
