"""CUDA graphs: what a card was given to do, given to it again by one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...autodiff import Array, placing
from . import gpu


def capture(work: Callable[[], object]) -> Callable[[], None]:
    """What queues again, as one CUDA graph, what `work` queues on the calling thread's stream.

    `work` is called twice. The first time all that is made once is made: compiled kernels, handles
    of libraries, memory. The second time nothing is computed, only noted. Both take their memory
    from a pool of their own, which lives as long as the graph and which nobody else uses: what a
    kernel wrote and nobody holds any more, a later kernel of the graph may overwrite, in its order.

    Raises:
        RuntimeError: `work` copies from host memory: the graph would do so from wherever it lay.
        Exception: Of CUDA's, where it waits for the card.
    """
    cupy = gpu._cupy()
    pool, stream = cupy.cuda.MemoryPool(), cupy.cuda.get_current_stream()
    with gpu.taking_from(pool.malloc):
        work()
        with placing(_refuse_upload):
            stream.begin_capture()
            try:
                work()
            finally:
                graph = stream.end_capture()
    if "HtoD" in graph.debug_dot_str():  # what did not come by `placed`
        raise _uploads()

    def launch(pool: Any = pool) -> None:
        graph.launch()

    return launch


def _refuse_upload(array: Any) -> Array:
    if isinstance(array, np.ndarray):
        raise _uploads()
    return array


def _uploads() -> RuntimeError:
    return RuntimeError("it copies an array from host memory in each step")
