"""Computing in half precision, under Keras's names: policies, and losses that are scaled."""

from .optimizers import LossScaleOptimizer
from .policies import Policy, global_policy, set_global_policy

__all__ = ["LossScaleOptimizer", "Policy", "global_policy", "set_global_policy"]
