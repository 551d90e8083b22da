"""A bundle of wheels for a machine that has a GPU and no network, to run tests and benchmarks on.

On a machine with a network, in this repository:

    python benchmarks/wheels_for_gpu.py wheels/

On the other one, in a copy of the repository, with the wheels beside it:

    export PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/wheels
    make .venv/test && .venv/bin/python -m pip install cupy-cuda13x
    make gpu-test gpu-bench

Both have the same Python and the same kind of processor. CUDA's driver has to be there already;
CUDA's libraries come as wheels (CuPy's extra `ctk`, some GB), unless the other has them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CUPY = {"gpu": "cupy-cuda13x", "gpu12": "cupy-cuda12x"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extra", choices=list(CUPY), default="gpu", help="gpu12: for CUDA 12")
    parser.add_argument(
        "--without-cuda", action="store_true", help="CUDA's libraries are there already"
    )
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    cupy = CUPY[args.extra] + ("" if args.without_cuda else "[ctk]") + ">=14"
    ours = f"{ROOT}[{args.extra},examples,test,mpich]"  # what `make .venv/test` installs
    wanted = [ours, cupy, "setuptools>=68", "wheel"]
    command = [sys.executable, "-m", "pip", "wheel", "--wheel-dir", str(args.folder), *wanted]
    subprocess.run(command, check=True)
    wheels = sorted(args.folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    print(f"{len(wheels)} wheels, {size:.0f} MiB, in {args.folder}")


if __name__ == "__main__":
    main()
