"""`tf.tpu`: there are none here; what asks for one says so."""

from . import experimental

__all__ = ["experimental"]
