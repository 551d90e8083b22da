"""The job's secret, by which its tasks know each other where other machines can call them."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ClusterError
from .ports import is_loopback
from .spec import ClusterSpec, split_address

TOKEN_VARIABLE = "PACELINE_TOKEN"
MIN_TOKEN_CHARACTERS = 16
MAKE_ONE = "python -c 'import secrets; print(secrets.token_hex())' prints one"


def job_token(environ: Mapping[str, str]) -> str | None:
    """The secret that all tasks of a job share, from PACELINE_TOKEN; None if there is none.

    It is for the tasks alone: no log line, error or command line shows it.

    Args:
        environ: Where the variable is looked up.

    Raises:
        ClusterError: It is so short that it can be guessed.
    """
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if token and len(token) < MIN_TOKEN_CHARACTERS:
        raise ClusterError(
            f"{TOKEN_VARIABLE} must have at least {MIN_TOKEN_CHARACTERS} characters, and has "
            f"{len(token)}; {MAKE_ONE}: give it to all tasks of the job"
        )
    return token or None


def needs_token(spec: ClusterSpec) -> bool:
    """Whether other machines can call the tasks of a cluster: RING then asks for a token."""
    tasks = (*spec.training_tasks(), *(t for t in spec.tasks() if t.type == "ps"))
    addresses = [address for task in tasks if (address := spec.address(task))]
    return len(tasks) > 1 and not all(is_loopback(split_address(a)[0]) for a in addresses)
