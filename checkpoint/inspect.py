"""`paceline inspect`: what is in a directory of checkpoints, in one of them, or between two."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..observe import printable
from .access import lease
from .directory import latest_checkpoint
from .errors import CheckpointError, explained
from .names import checkpoint_name
from .places import steps_in
from .reading import CheckpointReader, is_checkpoint, load
from .small_files import read_metrics

_CHUNK = 1 << 20
_DESCRIPTION = """
Show the checkpoints of a model_dir, or the tensors of one checkpoint. Everything that is shown of a
tensor's values was verified against its checksum. The exit code is 1 where something is damaged,
or where --compare finds a difference, and 2 where there is nothing to look at.
"""


@dataclass(frozen=True)
class Statistics:
    """The finite values of a tensor in a few float64 numbers, and how many are not finite."""

    min: float
    mean: float
    max: float
    norm: float
    num_not_finite: int


def statistics_of(array: np.ndarray) -> Statistics:
    """The statistics of a bool, integer or float array; takes little memory beside it."""
    flat = array.reshape(-1)
    count, total, squares = 0, 0.0, 0.0
    low, high = math.inf, -math.inf
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK].astype(np.float64)
        chunk = chunk[np.isfinite(chunk)]
        if chunk.size:
            count += chunk.size
            total += float(chunk.sum())
            squares += float(chunk @ chunk)
            low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
    if not count:
        return Statistics(math.nan, math.nan, math.nan, 0.0, flat.size)
    return Statistics(low, total / count, high, math.sqrt(squares), flat.size - count)


def differences(one: CheckpointReader, other: CheckpointReader) -> Iterator[tuple[str, str]]:
    """(tensor, how they differ) for each tensor that is not the same bit for bit in both."""
    for name in dict.fromkeys((*one.names, *other.names)):
        if name not in other.shapes:
            yield name, "only in the first"
        elif name not in one.shapes:
            yield name, "only in the second"
        elif (one.shapes[name], one.dtypes[name]) != (other.shapes[name], other.dtypes[name]):
            kinds = [f"{c.dtypes[name]} {_shape(c.shapes[name])}" for c in (one, other)]
            yield name, " and ".join(kinds)
        else:
            difference = _difference(one.read(name), other.read(name))
            if difference:
                yield name, difference


def _difference(one: np.ndarray, other: np.ndarray) -> str | None:
    if one.tobytes() == other.tobytes():
        return None
    a, b = one.astype(np.float64), other.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        largest = np.abs(np.where(same, 0.0, a - b)).max()
    return f"{np.count_nonzero(~same)} of {a.size} elements, by {largest:.6g} at most"


def add_inspect_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("path", help="a model_dir, or a checkpoint in it")
    add("--verify", action="store_true", help="of a model_dir: read every byte of every checkpoint")
    add("--compare", metavar="OTHER", help="compare with this checkpoint (or model_dir's latest)")


def run_inspect(arguments: argparse.Namespace) -> int:
    """Carry out `paceline inspect`; its exit code."""
    try:
        if arguments.compare is not None:
            return _show_comparison(arguments.path, arguments.compare)
        if is_checkpoint(arguments.path):
            return _show_tensors(arguments.path)
        return _show_directory(arguments.path, arguments.verify)
    except CheckpointError as error:
        print(f"paceline inspect: {printable(str(error))}", file=sys.stderr)
        return 2


def _show_directory(model_dir: str, verify: bool) -> int:
    with explained(model_dir, "read model_dir"):
        steps = steps_in(model_dir)
    if not steps:
        raise CheckpointError(f"there is no checkpoint in '{model_dir}'")
    rows, problems = [], []
    latest = _latest_or_none(model_dir)
    for step in steps:
        path = os.path.join(model_dir, checkpoint_name(step))
        try:
            with lease(path):
                rows.append(_checkpoint_row(load(path), verify, path == latest))
        except CheckpointError as error:
            rows.append([str(step), "", "", "", "", "damaged"])
            problems.append(str(error))
    _print_table(["step", "written", "size", "tensors", "writers", ""], rows)
    for problem in problems:
        print(printable(problem), file=sys.stderr)
    return 1 if problems else 0


def _latest_or_none(model_dir: str) -> str | None:
    try:
        return latest_checkpoint(model_dir)
    except CheckpointError:
        return None


def _checkpoint_row(checkpoint: CheckpointReader, verify: bool, is_latest: bool) -> list[str]:
    if verify:
        checkpoint.verify()
    remarks = ["latest"] if is_latest else []
    remarks += ["verified"] if verify else []
    remarks += [f"{name} {value:.6g}" for name, value in read_metrics(checkpoint.path).items()]
    return [
        str(checkpoint.step),
        checkpoint.created[:19].replace("T", " "),
        _size(checkpoint.size_bytes),
        str(len(checkpoint.names)),
        str(checkpoint.num_writers),
        ", ".join(remarks),
    ]


def _show_tensors(path: str) -> int:
    with lease(path):
        checkpoint = load(path)
        versions = [f"{name} {version}" for name, version in checkpoint.versions.items()]
        print(
            f"step {checkpoint.step}, written {checkpoint.created[:19].replace('T', ' ')} by "
            f"{printable(', '.join(versions))}; {len(checkpoint.names)} tensors, "
            f"{_size(checkpoint.size_bytes)}, {checkpoint.num_writers} writer(s)\n"
        )
        problems: list[str] = []
        rows = [_tensor_row(checkpoint, name, problems) for name in checkpoint.names]
    _print_table(["tensor", "shape", "dtype", "min", "mean", "max", "norm", "not finite"], rows)
    if checkpoint.state:
        print(f"\nstate: {printable(', '.join(checkpoint.state))}")
    _show_files(checkpoint, problems)
    for problem in problems:
        print(printable(problem), file=sys.stderr)
    return 1 if problems else 0


def _show_files(checkpoint: CheckpointReader, problems: list[str]) -> None:
    """Tell which other files of an export were verified, and which are under no checksum."""
    try:
        checkpoint.verify_files()
    except CheckpointError as error:
        problems.append(str(error))
    unchecked = checkpoint.unverifiable_files()
    for heading, names in (("files", checkpoint.files), ("under no checksum", unchecked)):
        if names:
            print(f"\n{heading}: {printable(', '.join(names))}")


def _tensor_row(checkpoint: CheckpointReader, name: str, problems: list[str]) -> list[str]:
    row = [name, _shape(checkpoint.shapes[name]), str(checkpoint.dtypes[name])]
    try:
        found = statistics_of(checkpoint.read(name))
    except CheckpointError as error:
        problems.append(str(error))
        return [*row, "damaged", "", "", "", ""]
    numbers = [f"{value:.6g}" for value in (found.min, found.mean, found.max, found.norm)]
    return [*row, *numbers, str(found.num_not_finite or "")]


def _show_comparison(path: str, other_path: str) -> int:
    one, other = _chosen(path), _chosen(other_path)
    with lease(one), lease(other):
        first, second = load(one), load(other)
        print(f"first:  {one} (step {first.step})\nsecond: {other} (step {second.step})\n")
        rows = [list(pair) for pair in differences(first, second)]
    if not rows:
        print(f"all {len(first.names)} tensors are the same bit for bit")
        return 0
    _print_table(["tensor", "difference"], rows)
    return 1


def _chosen(path: str) -> str:
    """A checkpoint's path; of a model_dir that of its latest checkpoint."""
    if is_checkpoint(path):
        return path
    latest = latest_checkpoint(path)
    if latest is None:
        raise CheckpointError(f"there is no checkpoint in '{path}'")
    return latest


def _shape(shape: Sequence[int]) -> str:
    return str(tuple(shape))


def _size(num_bytes: float) -> str:
    units = iter(("B", "KB", "MB", "GB"))
    unit = next(units)
    while num_bytes >= 1000 and unit != "GB":
        num_bytes, unit = num_bytes / 1000, next(units)
    return f"{num_bytes:.4g} {unit}"


def _print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [[printable(cell) for cell in line] for line in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())
