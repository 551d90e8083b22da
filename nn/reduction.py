"""From one loss for each example to one number, in a job of one replica or many."""

from __future__ import annotations

import enum
from typing import Any

from ..autodiff import Tensor
from ..strategies import current_store, get_replica_context
from ._shapes import as_tensor, like_values


class Reduction(enum.StrEnum):
    """What a loss object makes of the examples' losses. Strings are accepted as well."""

    AUTO = "auto"
    """The same as SUM_OVER_BATCH_SIZE."""
    NONE = "none"
    """One loss for each example."""
    SUM = "sum"
    """Their sum."""
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    """Their mean over this replica's batch; 0 of an empty one, as in Keras."""

    @classmethod
    def parse(cls, value: Reduction | str) -> Reduction:
        """A `Reduction` from itself or from its value in any case.

        Raises:
            ValueError: There is no such reduction.
        """
        try:
            return cls(value.lower())
        except (AttributeError, ValueError):
            known = ", ".join(repr(member.value) for member in cls)
            raise ValueError(f"reduction must be one of {known}, it is {value!r}") from None


def reduce_losses(losses: Tensor, reduction: Reduction) -> Tensor:
    """Apply a reduction to losses of any shape.

    Raises:
        ValueError: A mean is asked for where replicas add their gradients up, see `_check_mean`.
    """
    if reduction is Reduction.NONE:
        return losses
    if reduction is Reduction.SUM:
        return losses.sum()
    _check_mean(reduction)
    return losses.mean() if losses.size else losses.sum()


def weighted(name: str, losses: Any, sample_weight: Any) -> Tensor:
    """Losses times their examples' weights; None leaves them as they are."""
    losses = as_tensor(losses)
    if sample_weight is None:
        return losses
    weight = as_tensor(sample_weight).astype(losses.dtype)
    return losses * like_values(name, weight, losses)


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: int | None = None
) -> Tensor:
    """This replica's share of the mean loss over the global batch, for a custom training loop.

    There gradients are summed over replicas, so that each replica divides by the *global* batch.
    (`minimize` in an Estimator averages over replicas itself: there take the plain mean.)

    Args:
        per_example_loss: (n,) or (n, ...) losses of this replica's examples.
        sample_weight: Weights of the examples; they do not change the divisor.
        global_batch_size: By default this replica's batch times the number of replicas, which is
            right where all batches are equal.

    Returns:
        A scalar: the sum of the (weighted) losses divided by `global_batch_size`.

    Raises:
        RuntimeError: It is called outside a replica, where there is no batch of one's own.
        ValueError: `per_example_loss` is a scalar, or `global_batch_size` is not positive.
    """
    num_replicas = _num_replicas("compute_average_loss")
    losses = weighted("compute_average_loss", per_example_loss, sample_weight)
    if losses.ndim == 0:
        raise ValueError(
            "per_example_loss must have one loss for each example, it is a scalar; "
            "make the loss object with reduction=Reduction.NONE"
        )
    if global_batch_size is None:
        global_batch_size = losses.shape[0] * num_replicas
    elif not global_batch_size > 0:
        raise ValueError(f"global_batch_size must be positive, it is {global_batch_size}")
    if global_batch_size == 0:
        return losses.sum()  # of nothing: a replica without data
    return losses.sum() / float(global_batch_size)


def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """This replica's share of a penalty that all replicas compute alike: its sum over their number.

    Raises:
        RuntimeError: It is called outside a replica.
    """
    num_replicas = _num_replicas("scale_regularization_loss")
    return as_tensor(regularization_loss).sum() / float(num_replicas)


def _num_replicas(caller: str) -> int:
    replica = get_replica_context()
    if replica is None:
        raise RuntimeError(
            f"{caller} was called in cross-replica context; call it in the step function that is "
            f"given to strategy.run, where the losses of one replica are"
        )
    return replica.num_replicas_in_sync


def _check_mean(reduction: Reduction) -> None:
    """Refuse a mean over one replica's batch where gradients of several replicas are summed.

    The sum of N means is N times the loss that was meant; nothing else would show it.
    """
    replica = get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1 or current_store().averages_replicas:
        return
    raise ValueError(
        f"reduction {reduction.value!r} is the mean over one replica's batch, and in a custom loop "
        f"over {replica.num_replicas_in_sync} replicas gradients are summed; make the loss with "
        f"reduction=Reduction.NONE and pass what it gives to nn.compute_average_loss"
    )
