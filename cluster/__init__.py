"""Who is in the job, and this process's place in it."""

from .memory import tune_malloc

__all__ = ["tune_malloc"]
