"""`tensorflow_datasets`: `import paceline.compat.tfds as tfds`, then `tfds.load("mnist")`."""

from ..inputs import load

__all__ = ["load"]
