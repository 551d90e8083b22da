"""`tf.ConfigProto`, which TensorFlow 1's scripts fill attribute by attribute.

There are no sessions: `RunConfig(session_config=...)` takes it, and says in the log that it has no
effect. An attribute that TensorFlow does not have is refused, as there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass(slots=True)
class GPUOptions:
    """Settings of a session's GPUs. CuPy takes memory as needed; strategies choose devices."""

    per_process_gpu_memory_fraction: float = 0.0
    allow_growth: bool = False
    allocator_type: str = ""
    deferred_deletion_bytes: int = 0
    visible_device_list: str = ""
    polling_active_delay_usecs: int = 0
    polling_inactive_delay_msecs: int = 0
    force_gpu_compatible: bool = False
    experimental: Any = field(default_factory=SimpleNamespace)


def _graph_options() -> SimpleNamespace:
    return SimpleNamespace(optimizer_options=SimpleNamespace(), rewrite_options=SimpleNamespace())


@dataclass(slots=True)
class ConfigProto:
    """Settings of a session."""

    device_count: dict[str, int] = field(default_factory=dict)
    intra_op_parallelism_threads: int = 0
    inter_op_parallelism_threads: int = 0
    use_per_session_threads: bool = False
    session_inter_op_thread_pool: list[Any] = field(default_factory=list)
    placement_period: int = 0
    device_filters: list[str] = field(default_factory=list)
    gpu_options: GPUOptions = field(default_factory=GPUOptions)
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    graph_options: Any = field(default_factory=_graph_options)
    operation_timeout_in_ms: int = 0
    rpc_options: Any = field(default_factory=SimpleNamespace)
    cluster_def: Any = None
    isolate_session_state: bool = False
    share_cluster_devices_in_session: bool = False
    experimental: Any = field(default_factory=SimpleNamespace)
