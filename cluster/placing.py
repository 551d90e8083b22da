"""The place of a process among those that a launcher has numbered: its rank, and all addresses."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .addresses import LOOPBACK, is_loopback
from .ranks import as_number, checked_rank, number_in
from .spec import ClusterError, shown

ALONE_VARIABLE = "PACELINE_ALONE"
"""1 in it says that this process is alone on purpose, whatever a launcher says."""

FIRST_PORT = 8888
_ANY_COORDINATOR = ("MASTER_ADDR", "MASTER_PORT")


class IncompleteError(ClusterError):
    """A launcher has started several processes, but does not tell how they find each other."""


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """A launcher: the variables in which it tells a process its rank and the addresses.

    The addresses come from `hosts`, or from the fact that all are on one machine, or else from
    `coordinator`, which is rank 0: the others tell it theirs. MASTER_ADDR and MASTER_PORT, set by
    the user, stand in for what a launcher does not tell.

    Args:
        name: The launcher, for log lines and errors.
        rank: The variable with this process's rank.
        size: The variable with the number of processes; without one it is the number of hosts.
        marks: Variables that show that this launcher has started the process, any one of them; by
            default `rank` and `size`.
        shells: A variable, and the values of it with which the process is a shell of the user, who
            starts scripts in it by hand and alone.
        hosts: The variable that lists the host of each rank; a * in it stands for any word.
        rank_is_host: `rank` holds the name of this host. Ranks are in the order of these names.
        local_size: The variable with the number of processes on this machine.
        num_machines: The variable with the number of machines.
        num_per_machine: The variable with the number of processes on each machine. It must be 1,
            because `rank` and `size` count machines.
        coordinator: The variables with host and port of rank 0, or the one with both.
        is_port_taken: The launcher itself listens on the coordinator's port, so the next one is
            used.
        port: The first port on each machine, where no variable names one.
        knows_addresses: False for MPI, which connects its ranks by itself.
    """

    name: str
    rank: str
    size: str = ""
    marks: tuple[str, ...] = ()
    shells: tuple[str, tuple[str, ...]] = ("", ())
    hosts: str = ""
    rank_is_host: bool = False
    local_size: str = ""
    num_machines: str = ""
    num_per_machine: str = ""
    coordinator: tuple[str, ...] = _ANY_COORDINATOR
    is_port_taken: bool = False
    port: int = FIRST_PORT
    knows_addresses: bool = True

    @property
    def source(self) -> str:
        return f"{self.name} ({self.rank})"

    def speaks(self, environ: Mapping[str, str]) -> bool:
        """Whether this launcher has started the process."""
        marks = self.marks or tuple(filter(None, (self.rank, self.size)))
        name, values = self.shells
        return environ.get(name) not in values and any(environ.get(mark) for mark in marks)


def place_in(launcher: Launcher, environ: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
    """The rank of this process and the address of each rank, empty where it is not known.

    Raises:
        IncompleteError: The launcher has started several processes and does not tell enough.
        ClusterError: The value of a variable makes no sense.
    """
    _check_one_per_machine(launcher, environ)
    if launcher.size:
        size = _number(launcher, environ, launcher.size)
    else:
        size = len(_listed_hosts(launcher, environ))
    if size == 1:
        return 0, ("",)
    hosts = _listed_hosts(launcher, environ)
    rank = _rank(launcher, environ, hosts)
    if not launcher.knows_addresses:
        return checked_rank(rank, size, launcher.name), ("",) * size
    host, port = _coordinator(launcher, environ)
    if not hosts:
        hosts = _hosts_beside(launcher, environ, host, size)
    if len(hosts) != size:
        raise ClusterError(
            f"{launcher.hosts} lists {len(hosts)} hosts, but {launcher.size} is {size}; there must "
            f"be one host for each process: correct one of them, or set TF_CONFIG"
        )
    return checked_rank(rank, size, launcher.name), _addresses(hosts, port)


def _number(launcher: Launcher, environ: Mapping[str, str], name: str) -> int:
    if not environ.get(name):
        raise _incomplete(launcher, environ, f"{name} is not set; set it")
    return number_in(environ, name, launcher.name)


def _incomplete(launcher: Launcher, environ: Mapping[str, str], problem: str) -> IncompleteError:
    names = (*launcher.marks, launcher.rank, launcher.size)
    told = ", ".join(f"{name}={environ[name]}" for name in dict.fromkeys(names) if name in environ)
    return IncompleteError(
        f"{launcher.name} says that this process is one of several ({told}), but {problem}; or set "
        f"TF_CONFIG, or {ALONE_VARIABLE}=1 if this process is to train alone"
    )


def _listed_hosts(launcher: Launcher, environ: Mapping[str, str]) -> list[str]:
    """The hosts that the launcher lists: as JSON, or parted by commas, blanks or ends of lines."""
    if not launcher.hosts:
        return []
    pattern = re.compile(re.escape(launcher.hosts).replace(r"\*", r"\w+"))
    names = sorted(name for name in environ if pattern.fullmatch(name) and environ[name].strip())
    if not names:
        raise _incomplete(launcher, environ, f"{launcher.hosts} is not set; set it")
    if len(names) > 1:
        problem = f"not in which of {', '.join(names)} it is; start one group only"
        raise _incomplete(launcher, environ, problem)
    text = environ[names[0]].strip()
    try:
        listed = json.loads(text) if text.startswith("[") else re.split(r"[,\s]+", text)
    except ValueError:
        raise ClusterError(
            f"{names[0]} is {shown(text)}, but {launcher.name} sets it to a list of hosts; correct "
            f"it, or set TF_CONFIG"
        ) from None
    hosts = [str(host) for host in listed if host]
    # Each host may list them in an order of its own.
    return sorted(hosts) if launcher.rank_is_host else hosts


def _check_one_per_machine(launcher: Launcher, environ: Mapping[str, str]) -> None:
    """Torch's launchers also write words there, such as "auto": each machine then starts one."""
    name = launcher.num_per_machine
    text = environ.get(name, "")
    if text.isdecimal() and int(text) != 1:
        problem = (
            f"{name} is {text}, and {launcher.rank} numbers machines, not their processes; start "
            f"them with torchrun, or set {name}=1"
        )
        raise _incomplete(launcher, environ, problem)


def _rank(launcher: Launcher, environ: Mapping[str, str], hosts: Sequence[str]) -> int:
    if not launcher.rank_is_host:
        return _number(launcher, environ, launcher.rank)
    own = environ.get(launcher.rank, "")
    if own not in hosts:
        problem = f"{launcher.rank} is {shown(own)}, which is none of {launcher.hosts}; correct it"
        raise _incomplete(launcher, environ, problem)
    return hosts.index(own)


def _coordinator(launcher: Launcher, environ: Mapping[str, str]) -> tuple[str, int]:
    """Host of rank 0, empty if it is not known, and the first port on each machine."""
    names = launcher.coordinator
    if not environ.get(names[0]):
        names = _ANY_COORDINATOR
    host, port = environ.get(names[0], ""), environ.get(names[-1], "")
    if len(names) == 1:
        host, _, port = host.rpartition(":")
    if not host and not port:
        return "", launcher.port
    if not port:
        raise _incomplete(launcher, environ, f"{names[-1]} is not set; set it")
    return host.strip("[]"), as_number(port, names[-1], launcher.name) + launcher.is_port_taken


def _hosts_beside(
    launcher: Launcher, environ: Mapping[str, str], host: str, size: int
) -> list[str]:
    """The host of each rank, from the one of rank 0; empty for those on other machines."""
    is_one_machine = (
        environ.get(launcher.local_size) == str(size)
        or environ.get(launcher.num_machines) == "1"
        or is_loopback(host)
    )
    if is_one_machine:
        return [host or LOOPBACK] * size
    if not host:
        problem = (
            f"not where they are: {launcher.coordinator[0]} is not set; set MASTER_ADDR and "
            f"MASTER_PORT to an address of rank 0 in all processes"
        )
        raise _incomplete(launcher, environ, problem)
    return [host] + [""] * (size - 1)


def _addresses(hosts: Sequence[str], first_port: int) -> tuple[str, ...]:
    """The processes of one machine listen on successive ports."""
    earlier: Counter[str] = Counter()
    addresses = []
    for host in hosts:
        name = f"[{host}]" if ":" in host else host
        addresses.append(f"{name}:{first_port + earlier[host]}" if host else "")
        earlier[host] += 1
    return tuple(addresses)
