"""The job's secret, by which its tasks know each other where other machines can call them."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .addresses import is_loopback, split_address
from .spec import ClusterError, ClusterSpec

TOKEN_VARIABLE = "PACELINE_TOKEN"
TOKEN_FILE_VARIABLE = "PACELINE_TOKEN_FILE"
MIN_TOKEN_CHARACTERS = 16
MAKE_ONE = "python -c 'import secrets; print(secrets.token_hex())' prints one"

_logger = logging.getLogger("paceline")


def job_token(environ: Mapping[str, str]) -> str | None:
    """The secret that all tasks of a job share; None if there is none.

    It is what PACELINE_TOKEN holds, or the file that PACELINE_TOKEN_FILE names: the processes that
    a task starts inherit that name, and not the secret. It is for the tasks alone: no log line,
    error or command line shows it.

    Args:
        environ: Where the variables are looked up.

    Raises:
        ClusterError: It is so short that it can be guessed, the file cannot be read, or the two
            differ.
    """
    token, path = (environ.get(TOKEN_VARIABLE, "").strip(), environ.get(TOKEN_FILE_VARIABLE, ""))
    told = _read(path) if path else token
    if token and told != token:
        raise ClusterError(
            f"{TOKEN_VARIABLE} and the file that {TOKEN_FILE_VARIABLE} names, {path}, hold "
            "different secrets; set one of the two"
        )
    where = f"the file that {TOKEN_FILE_VARIABLE} names, {path}," if path else TOKEN_VARIABLE
    if (told or path) and len(told) < MIN_TOKEN_CHARACTERS:
        raise ClusterError(
            f"{where} must have at least {MIN_TOKEN_CHARACTERS} characters, and has "
            f"{len(told)}; {MAKE_ONE}: give it to all tasks of the job"
        )
    return told or None


@contextmanager
def token_file(token: str) -> Iterator[str]:
    """Within it there is a file that holds ``token`` and that only this user can read: its path."""
    # A file, as a variable would be inherited by whatever the tasks start. mkstemp lets nobody else
    # read it, from the first moment on.
    fd, path = tempfile.mkstemp(prefix="paceline-token-")
    try:
        with os.fdopen(fd, "w") as file:
            file.write(token)
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def _read(path: str) -> str:
    try:
        text, mode = Path(path).read_text().strip(), Path(path).stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{TOKEN_FILE_VARIABLE} is {path!r}: {error}") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        _logger.warning(
            "%s is %s, which every user of this machine can read or write: 'chmod 600' it.",
            TOKEN_FILE_VARIABLE,
            path,
        )
    return text


def needs_token(spec: ClusterSpec) -> bool:
    """Whether other machines can call the tasks of a cluster: RING then asks for a token."""
    tasks = (*spec.training_tasks(), *(t for t in spec.tasks() if t.type == "ps"))
    addresses = [address for task in tasks if (address := spec.address(task))]
    return len(tasks) > 1 and not all(is_loopback(split_address(a)[0]) for a in addresses)
