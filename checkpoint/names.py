"""What files and directories are called, and which of them are ours.

model_dir/
    checkpoint                              state file, names the survivors
    model.ckpt-10/
        manifest.json
        data-00000-of-00001.safetensors     one of each writer
        metrics.json                        only if somebody noted some
    .paceline-lock                          says who writes here
    .paceline-tmp-model.ckpt-20-1f3b5c7d/   being written, or being deleted
    .paceline-old-model.ckpt-10-1f3b5c7d/   set aside while it is replaced
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

MANIFEST = "manifest.json"
METRICS = "metrics.json"
STATE_FILE = "checkpoint"
LOCK_FILE = ".paceline-lock"
TEMPORARY_PREFIX = ".paceline-tmp-"
ASIDE_PREFIX = ".paceline-old-"

_CHECKPOINT = re.compile(r"model\.ckpt-(0|[1-9][0-9]{0,18})")
_TENSORFLOW_INDEX = re.compile(r"(.*ckpt-[0-9]+)\.index")
_ASIDE = re.compile(re.escape(ASIDE_PREFIX) + r"(.+)-[0-9a-f]{8}")


def directory_of(path: str) -> str:
    """The directory in which a path or URL lies: of a bare name the current one."""
    scheme, separator, rest = path.rpartition("://")
    directory = os.path.dirname(rest)
    return f"{scheme}{separator}{directory}" or os.curdir


def check_relative(name: str) -> str:
    """Refuse the name of a file that may lie outside of its directory.

    Raises:
        ValueError: it may.
    """
    parts = name.split("/")
    if os.path.isabs(name) or {"", ".", ".."} & set(parts) or "\\" in name:
        raise ValueError(
            f"a file of an export is named by its relative path, as 'vocabularies/words.txt', "
            f"without '..'; got {name!r}"
        )
    return name


def checkpoint_name(step: int) -> str:
    """The directory name of the checkpoint of `step`."""
    return f"model.ckpt-{step}"


def step_of(name: str) -> int | None:
    """The step in a checkpoint's directory name, or None if it is not such a name."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def tensorflow_indexes(names: Sequence[str]) -> list[str]:
    """Those that are the index of one of TensorFlow's checkpoints, which has its data beside it."""
    stems = {name.partition(".data-")[0] for name in names if ".data-" in name}
    matches = map(_TENSORFLOW_INDEX.fullmatch, names)
    return sorted(match[0] for match in matches if match and match[1] in stems)


def shard_name(index: int, count: int) -> str:
    """The file name of shard `index` of `count`."""
    return f"data-{index:05d}-of-{count:05d}.safetensors"


def temporary_name(name: str) -> str:
    """A new name for `name` while it is being written or deleted; readers never look at it."""
    return f"{TEMPORARY_PREFIX}{name}-{os.urandom(4).hex()}"


def aside_name(name: str) -> str:
    """A new name for `name` while another one takes its place."""
    return f"{ASIDE_PREFIX}{name}-{os.urandom(4).hex()}"


def name_before_aside(name: str) -> str | None:
    """The name that `aside_name` was given, or None if `name` is not from there."""
    match = _ASIDE.fullmatch(name)
    return match[1] if match else None
