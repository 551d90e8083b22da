"""A bundle of wheels for a machine that has a GPU and no network, to run tests and benchmarks on.

    python benchmarks/wheels_for_gpu.py wheels/     # on a machine with a network
    python -m pip install --no-index --find-links wheels/ 'paceline[gpu,test]'     # on the other

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
    wanted = [f"{ROOT}[{args.extra},test,fast]", cupy, "setuptools>=68", "wheel"]
    command = [sys.executable, "-m", "pip", "wheel", "--wheel-dir", str(args.folder), *wanted]
    subprocess.run(command, check=True)
    wheels = sorted(args.folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    print(f"{len(wheels)} wheels, {size:.0f} MiB, in {args.folder}")


if __name__ == "__main__":
    main()
