"""For models whose replicas add up more than gradients."""

from __future__ import annotations

from ...strategies import ReplicaContext, get_replica_context


def replica_of_all(model: str) -> ReplicaContext:
    """The replica that trains, which can meet all others of the job.

    Args:
        model: What is trained, for the message.

    Raises:
        ValueError: There are several workers, and they share variables on parameter servers only.
    """
    replica = get_replica_context()
    assert replica is not None
    extended = replica.strategy.extended
    if extended.remote_storage is not None and extended.job.num_trainers > 1:
        raise ValueError(
            f"{model} on parameter servers has one worker, here are "
            f"{extended.job.num_trainers}, which do not meet; use MultiWorkerMirroredStrategy"
        )
    return replica
