"""TensorFlow's names for the parts of this package: `import paceline.compat.tf as tf`.

So far `tf.distribute`, `tf.estimator`, `tf.feature_column` and `tf.summary` (as a `model_fn` calls
it: `tf.summary.scalar(name, value)`), and of `tf.config`, `tf.data` and `tf.tpu` what is said
before a strategy is made.
"""

from ... import estimator, summary
from ...estimator import feature_column
from . import config, data, distribute, tpu

__all__ = ["config", "data", "distribute", "estimator", "feature_column", "summary", "tpu"]
