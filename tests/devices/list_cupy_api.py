"""Which functions, ufuncs and methods CuPy has, and with which arguments: writes `cupy_api.json`.

`StrictArray` has exactly these. They are CuPy's own answers: its package can be imported without
a GPU, since it looks for the driver only when an array is made.

    python -m pip install cupy-cuda13x nvidia-nccl-cu13 && python tests/devices/list_cupy_api.py

A function has its parameters as Python writes them, where each default is a 0. A ufunc has its
loops, in the order in which CuPy tries them. (CuPy for CUDA 12 gives the same list.)
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

API = Path(__file__).with_name("cupy_api.json")
MODULES = ("", "linalg", "fft", "lib.stride_tricks")
"""NumPy's modules of which an array hands functions to CuPy's of the same name."""

CLASSES = (
    *("Device", "Stream", "Event", "Graph"),
    *("MemoryPool", "MemoryPointer", "UnownedMemory"),
)
ALONE = ("array", "asarray", "fuse", "is_available", "get_default_memory_pool")
"""Functions of CuPy's of which NumPy has none, or none with these arguments."""

IN_DOCSTRING = re.compile(r"[\w.]+\((.*)\)")
PARAMETER = re.compile(r"(?:\w+ )?(\*{0,2}\w+)(=.*)?")


def main() -> None:
    API.write_text(in_lines(everything()))


def everything() -> dict[str, Any]:
    """The list, of the CuPy that is installed."""
    import cupy
    import cupyx.scipy.special

    functions: dict[str, str] = {}
    for name in MODULES:
        functions |= functions_of(name, _module(np, name), _module(cupy, name))
    return {
        "version": cupy.__version__,
        "ufuncs": loops_of(cupyx.scipy.special) | loops_of(cupy),
        "functions": functions,
        "methods": methods_of(cupy.ndarray),
        "attributes": attributes_of(cupy.ndarray),
        "cuda": names_of_cuda(cupy),
        "nccl": names_of_nccl(),
    }


def names_of_cuda(cupy: Any) -> dict[str, str]:
    """What makes and orders work of the device: classes, their methods, and functions."""
    found = {name: parameters_of(getattr(cupy, name)) for name in ALONE}
    for name in CLASSES:
        kind = getattr(cupy.cuda, name)
        found[f"cuda.{name}"] = parameters_of(kind)
        for member in (member for member in dir(kind) if not member.startswith("_")):
            value = getattr(kind, member)
            what = parameters_of(value) if callable(value) else "(an attribute)"
            found[f"cuda.{name}.{member}"] = what
    for prefix, module in (("cuda", cupy.cuda), ("cuda.runtime", cupy.cuda.runtime)):
        for name, value in vars(module).items():
            if inspect.isroutine(value) and not name.startswith("_"):
                found[f"{prefix}.{name}"] = parameters_of(value)
    return found


def names_of_nccl() -> dict[str, Any]:
    """The constants, functions and methods of CuPy's NCCL, which must be there for that."""
    from cupy.cuda import nccl

    ranks = nccl.NcclCommunicator
    found = {n: v for n, v in vars(nccl).items() if n.startswith("NCCL_")}
    found |= {n: parameters_of(getattr(nccl, n)) for n in ("groupStart", "groupEnd")}
    found |= {n: parameters_of(getattr(nccl, n)) for n in ("get_unique_id", "get_version")}
    methods = [n for n in dir(ranks) if not n.startswith("_")]
    return found | {
        f"NcclCommunicator.{n}": parameters_of(getattr(ranks, n))
        for n in methods
        if callable(getattr(ranks, n))
    }


def in_lines(parts: dict[str, Any]) -> str:
    """As JSON, one line for each name, so that a newer CuPy shows as what has changed."""
    lines = []
    for part, content in parts.items():
        if isinstance(content, dict):
            entries = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(content.items())]
            lines.append(f" {json.dumps(part)}: {{\n" + ",\n".join(entries) + "\n }")
        else:
            lines.append(f" {json.dumps(part)}: {json.dumps(content)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _module(root: Any, name: str) -> Any:
    for part in filter(None, name.split(".")):
        root = getattr(root, part)
    return root


def loops_of(module: Any) -> dict[str, str]:
    """The ufuncs of a module, each with its loops, such as `ff->f`.

    Without those of bfloat16 (`E`), which CuPy has where ml_dtypes is installed.
    """
    found = {name: getattr(f, "types", None) for name, f in vars(module).items()}
    return {
        name: " ".join(loop for loop in types if "E" not in loop)
        for name, types in found.items()
        if isinstance(types, list)
    }


def functions_of(module: str, of_numpy: Any, of_cupy: Any) -> dict[str, str]:
    """The functions that both have under one name; ufuncs have their own list."""
    found = {}
    for name in (name for name in dir(of_numpy) if not name.startswith("_")):
        theirs, ours = getattr(of_numpy, name), getattr(of_cupy, name, None)
        if isinstance(theirs, type) or not callable(theirs) or not callable(ours):
            continue
        if ours is not theirs and not hasattr(ours, "types"):
            found[f"{module}.{name}" if module else name] = parameters_of(ours)
    return found


def parameters_of(function: Any) -> str:
    """The parameters of a function; Cython's has them in the first line of its docstring."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        found = IN_DOCSTRING.match(function.__doc__)
        assert found is not None, function
        matches = [PARAMETER.fullmatch(part.strip()) for part in found[1].split(",")]
        return ", ".join(m[1] + ("=0" if m[2] else "") for m in matches if m and m[1] != "self")
    plain = [
        p.replace(annotation=p.empty, default=p.default if p.default is p.empty else 0)
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    return str(inspect.Signature(plain))[1:-1]


def methods_of(array: type) -> dict[str, str]:
    """What is called on an array, operators left out."""
    names = [n for n in dir(array) if not n.startswith("_") and callable(getattr(array, n))]
    return {name: parameters_of(getattr(array, name)) for name in names}


def attributes_of(array: type) -> str:
    """What is read of an array, and which of Python's own methods it has."""
    plain = [n for n in dir(array) if not n.startswith("_") and not callable(getattr(array, n))]
    special = [n for n in dir(array) if n.startswith("__") and not hasattr(object, n)]
    return " ".join(plain + special)


if __name__ == "__main__":
    main()
