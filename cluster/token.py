"""The job's secret, by which its tasks know each other where other machines can call them."""

from __future__ import annotations

import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
def token_file(environ: Mapping[str, str]) -> Iterator[str]:
    """The path of a file with the job's secret, which only this user can read, until the exit.

    It is the user's own file, if there is one. Else the file has no name in any directory: whatever
    ends this process, kill -9 too, the secret is gone with it. A secret that the user has not given
    is made here. (A variable would be inherited by all programs that the tasks start.)
    """
    token = job_token(environ) or secrets.token_hex()
    if environ.get(TOKEN_FILE_VARIABLE):
        yield os.path.abspath(environ[TOKEN_FILE_VARIABLE])
        return
    with ExitStack() as at_exit:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("paceline-token")
            path = f"/proc/{os.getpid()}/fd/{fd}"
        else:  # not Linux: the file needs a name there, and kill -9 leaves it
            fd, path = tempfile.mkstemp(prefix="paceline-token-")
            at_exit.callback(os.unlink, path)
        at_exit.callback(os.close, fd)
        os.fchmod(fd, 0o600)
        os.write(fd, token.encode())
        yield path


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
