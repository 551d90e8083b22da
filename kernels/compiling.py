"""Loops compiled by numba, once for a machine and dtype."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numba
from numba.extending import lower_builtin, type_callable

from .loops import LOOPS, PRODUCTS, Loop, keep_positive, take_widest_vectors

VERSION: str = numba.__version__


def compile_loop(name: str, dtype: str, constants: tuple[int, ...]) -> Loop:
    """The loop of that name, compiled or read from the disk.

    Args:
        name: In `LOOPS`.
        dtype: "f" for float32, "d" for float64.
        constants: What the function is called with, if it makes the loop of numbers.
    """
    function, types = LOOPS[name]
    signature = types.replace("float", "f4" if dtype == "f" else "f8")
    loop = function(*constants) if constants else function
    fused = name in PRODUCTS
    try:
        return _compiled(loop, signature, fused, cache=True)
    except RuntimeError as error:
        if "locator" not in str(error):  # numba's word for a place to keep what it has compiled
            raise
        return _compiled(loop, signature, fused, cache=False)  # for this process only


def _compiled(loop: Loop, signature: str, fused: bool, cache: bool) -> Loop:
    # Without the GIL, so that replicas in threads compute at the same time. Of what fastmath allows
    # at most fused multiply-add: sums in another order would be other numbers.
    compiled: Loop = numba.njit(
        [signature],
        cache=cache,
        nogil=True,
        error_model="numpy",
        fastmath={"contract"} if fused else False,
    )(loop)
    return compiled


@type_callable(take_widest_vectors)
def _type_of(context: Any) -> Any:
    return lambda: numba.types.none


@lower_builtin(take_widest_vectors)
def _widen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    # An attribute of LLVM's that llvmlite's list of them lacks: it is added to their set as it is.
    with suppress(TypeError):
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    return context.get_dummy_value()


def cache_directory() -> str:
    """Where compiled loops are kept: beside the sources, or where the user may write.

    numba chooses it, or `NUMBA_CACHE_DIR` does.
    """
    try:
        probe = numba.njit(cache=True)(keep_positive)
    except RuntimeError:
        return "memory: no directory can be written (NUMBA_CACHE_DIR names another)"
    return str(probe.stats.cache_path)
