"""What MPI calls our dtypes and operations."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .arrays import UFUNCS
from .communicator import Op


def mpi_kind(mpi: Any, dtype: np.dtype[Any], op: Op) -> tuple[Any, Any]:
    """Return the MPI datatype, and the operation that gives what NumPy gives.

    MPI need not know float16, and leaves open what the larger of a number and NaN is, so that ranks
    could come to different results; there NumPy itself is called back.
    """
    if dtype.name == "float16" or (dtype.kind == "f" and op in (Op.MIN, Op.MAX)):
        return _numpy_kind(mpi, dtype.name, op)
    mpi_type = {
        "float32": mpi.FLOAT,
        "float64": mpi.DOUBLE,
        "int32": mpi.INT32_T,
        "int64": mpi.INT64_T,
        "bool": mpi.C_BOOL,
    }[dtype.name]
    if dtype.kind == "b":
        return mpi_type, mpi.LOR if op in (Op.SUM, Op.MAX) else mpi.LAND
    return mpi_type, {
        Op.SUM: mpi.SUM,
        Op.MIN: mpi.MIN,
        Op.MAX: mpi.MAX,
        Op.PRODUCT: mpi.PROD,
    }[op]


@cache
def _numpy_kind(mpi: Any, dtype_name: str, op: Op) -> tuple[Any, Any]:
    """Return an MPI datatype of opaque elements, and an operation that calls NumPy's.

    Ranks are combined in order, for NumPy's operations are not commutative to the last bit either
    (-0.0 and 0.0, NaNs). mpi4py has room for 16 such operations in a process: hence the cache.
    """
    ufunc, dtype = UFUNCS[op], np.dtype(dtype_name)

    def combine(first: Any, second: Any, _datatype: Any) -> None:
        result = np.frombuffer(second, dtype)
        ufunc(np.frombuffer(first, dtype), result, out=result)

    opaque = mpi.BYTE.Create_contiguous(dtype.itemsize)
    opaque.Commit()
    return opaque, mpi.Op.Create(combine, commute=False)
