"""From the losses of examples to one number: weights, masks, and who divides by what."""

from __future__ import annotations

import enum
import functools
from typing import Any

import numpy as np

from ...autodiff import Array, Tensor, TensorLike, lift, operation, traceable
from ...strategies import ReplicaContext, current_store, get_replica_context
from ..shapes import as_tensor, like_values


class Reduction(enum.StrEnum):
    """What a loss object makes of the examples' losses. Strings and None are accepted as well."""

    AUTO = "auto"
    """The same as SUM_OVER_BATCH_SIZE."""
    NONE = "none"
    """One loss for each example."""
    SUM = "sum"
    """Their sum."""
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    """Their mean over this replica's batch; 0 of an empty one, as in Keras."""
    MEAN = "mean"
    """The same."""
    MEAN_WITH_SAMPLE_WEIGHT = "mean_with_sample_weight"
    """Their weighted mean: divided by the sum of the weights, and not by their number."""

    @classmethod
    def parse(cls, value: Reduction | str | None) -> Reduction:
        """A `Reduction` from itself, from its value in any case, or from None for NONE.

        The values of TensorFlow 1's `Reduction` are accepted where one here has their meaning.
        """
        try:
            text = "none" if value is None else value.lower()
            return cls(_OF_TENSORFLOW_1.get(text, text))
        except (AttributeError, ValueError):
            known = ", ".join(repr(member.value) for member in cls)
            raise ValueError(f"reduction must be None or one of {known}, it is {value!r}") from None


_OF_TENSORFLOW_1 = {
    "weighted_sum": "sum",
    "weighted_sum_over_batch_size": "sum_over_batch_size",
    "weighted_mean": "mean_with_sample_weight",
}


def weighted(name: str, losses: Any, sample_weight: Any) -> Tensor:
    """Losses times their examples' weights; None leaves them as they are."""
    losses = as_tensor(losses)
    if sample_weight is None:
        return losses
    weight = as_tensor(sample_weight).astype(losses.dtype)
    return losses * like_values(name, weight, losses)


def reduced(
    name: str, losses: Any, sample_weight: Any, mask: Array | None, how: Reduction
) -> Tensor:
    """What `how` says of the losses of one replica, weighted, and without those masked out.

    A mean that is to divide by the sum of weights, or by what a mask leaves, divides by that of the
    global batch where the replicas' means are averaged: all replicas must make the call.

    Raises:
        ValueError: A shape does not fit, or a mean is asked for where gradients are summed.
    """
    if mask is not None:
        mask = np.broadcast_to(like_values(name, mask, losses, "mask"), losses.shape)
        # What is masked out is left out, not multiplied by zero: padding may be no number.
        losses = np.where(mask, losses, 0)
    if sample_weight is not None:
        losses = weighted(name, losses, sample_weight)
    if how is Reduction.NONE:
        return losses
    if how is Reduction.SUM:
        return losses.sum()
    _check_mean(how)
    by_weight = how is Reduction.MEAN_WITH_SAMPLE_WEIGHT and sample_weight is not None
    if mask is None and not by_weight:
        return losses.mean() if losses.size else losses.sum()
    weights = like_values(name, as_tensor(sample_weight), losses) if by_weight else None
    return _mean_of_counted(losses, mask, weights)


def _mean_of_counted(losses: Tensor, mask: Any, weights: Any) -> Tensor:
    """The losses of a replica, of which the step's average is the mean over what counts.

    The step averages replicas by their numbers of examples, n: with a factor of Σn / (n · Σcounted)
    the average of the sums S is Σ(n · S · factor) / Σn = ΣS / Σcounted. Of nothing it is 0.
    """
    counted = _counted(mask, weights, losses.shape)
    if not is_one_of_several():
        return _times_share(losses.sum(), 1.0, counted)
    num_examples = losses.shape[0] if losses.ndim else 1
    sums = _over_replicas(_pair(num_examples, counted))
    return _times_share(losses.sum(), sums[0], max(num_examples, 1) * sums[1])


@operation
def _counted(mask: Any, weights: Any, shape: tuple[int, ...]) -> Array:
    """How many losses a mask leaves, or the sum of their weights, in float64, where they lie."""
    parts = [lift(part).data.astype(np.float64) for part in (mask, weights) if part is not None]
    product = functools.reduce(np.multiply, parts)
    return traceable(np.broadcast_to(product, shape).copy(order="C").sum())


@operation
def _pair(number: int, beside: Any) -> Array:
    array = _array(beside)
    return traceable(np.stack([np.full_like(array, number), array]))


@operation
def _times_share(total: Tensor, part: Any, whole: Any) -> Tensor:
    """A loss times `part / whole`, in float64; times 0 where the whole is 0."""
    divisor = _array(whole)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(divisor != 0, _array(part) / divisor, 0.0)
    return _times(total, share)


@operation
def _times(loss: Tensor, factor: Any) -> Tensor:
    """A loss times a number in float64 that may lie on a GPU, which nobody waits for."""
    number = _array(factor)
    dtype = number.dtype if loss.dtype.kind in "biu" else loss.dtype
    return loss * number.astype(dtype)[()]


def _array(value: Any) -> Any:
    """Within an operation: what is computed with, also where its caller is followed."""
    return value.tensor().data if isinstance(value, TensorLike) else value


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
    num_replicas = _replica_of("compute_average_loss").num_replicas_in_sync
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
    num_replicas = _replica_of("scale_regularization_loss").num_replicas_in_sync
    return as_tensor(regularization_loss).sum() / float(num_replicas)


def sum_over_replicas(loss: Any, num_examples: int) -> Any:
    """A replica's loss that is a sum, such that the step makes the sum over the global batch of it.

    The step averages replicas by their numbers of examples, n: with a factor of Σn / n the average
    of the sums S is Σ(n · S · Σn / n) / Σn = ΣS. All replicas must make the call.

    Raises:
        ValueError: Workers make each step together at parameter servers.
    """
    if not is_one_of_several():
        return loss
    all_examples = _over_replicas(np.array(num_examples, np.float64))
    return _times(as_tensor(loss), all_examples / max(num_examples, 1))


def is_one_of_several() -> bool:
    """Whether the caller has a part of a batch, of which other replicas have the rest."""
    replica = get_replica_context()
    return replica is not None and replica.num_replicas_in_sync > 1


def _replica_of(caller: str) -> ReplicaContext:
    replica = get_replica_context()
    if replica is None:
        raise RuntimeError(
            f"{caller} was called in cross-replica context; call it in the step function that is "
            f"given to strategy.run, where the losses of one replica are"
        )
    return replica


def _check_mean(reduction: Reduction) -> None:
    """Refuse a mean over one replica's batch where gradients of several replicas are summed.

    The sum of N means is N times the loss that was meant; nothing else would show it.
    """
    if current_store().averages_replicas:
        return
    replica = get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return
    raise ValueError(
        f"reduction {reduction.value!r} is the mean over one replica's batch, and in a custom loop "
        f"over {replica.num_replicas_in_sync} replicas gradients are summed; make the loss with "
        f"reduction=Reduction.NONE and pass what it gives to nn.compute_average_loss"
    )


def _over_replicas(numbers: Array) -> Array:
    """Numbers added up over the replicas of the step, on the caller's device."""
    replica = get_replica_context()
    assert replica is not None
    extended = replica.strategy.extended
    if extended.shard[0] != extended.num_workers:
        raise ValueError(
            "a sum, or a mean over what a mask or weights leave, takes a number of the global "
            "batch that several workers, which make each step together at parameter servers "
            "(max_staleness=0), do not know of each other; use reduction='sum_over_batch_size' "
            "without a mask, let workers make steps of their own (max_staleness=None), or use "
            "MultiWorkerMirroredStrategy"
        )
    return replica.all_reduce("SUM", numbers)
