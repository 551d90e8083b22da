"""TensorFlow's names for the parts of this package: `import paceline.compat.tf as tf`.

So far `tf.distribute` and `tf.estimator`.
"""

from ... import estimator
from . import distribute

__all__ = ["distribute", "estimator"]
