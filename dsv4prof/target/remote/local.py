"""What can be seen of a server that runs on this host, and that only one of us attaches to it at a time.

Two things take a SGLang server down and its HTTP does not tell: a folder that it may not write to (its export raises in
the scheduler), and SGLANG_PROFILE_V2, whose manager knows no plain start and no stop (both raise there; 0.5.23).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from dsv4prof.errors import LifetimeError
from dsv4prof.target.remote.client import host_of, is_loopback, port_of

_EVERY_ADDRESS = ("0.0.0.0", "::")


class LocalServer(msgspec.Struct, frozen=True):
    """The process that listens on a server's port; `staged_only` says that it can record by stage only."""

    pid: int
    uid: int
    staged_only: bool


def addresses_of(host: str) -> set[str]:
    """What a name stands for; empty when nobody knows it."""
    try:
        return {str(entry[4][0]).split("%")[0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()


def is_here(url: str) -> bool:
    """Whether a server's address is one of this host's own."""
    import psutil

    host = host_of(url)
    if is_loopback(host):
        return True
    own = {address.address.split("%")[0] for found in psutil.net_if_addrs().values() for address in found}
    return bool(addresses_of(host) & own)


def local_server(url: str) -> LocalServer | None:
    """The server's process; None when it is on another host, in a container, or not to be seen by this user."""
    import psutil

    if not is_here(url):
        return None
    port, addresses = port_of(url), addresses_of(host_of(url))
    with suppress(psutil.Error, OSError):
        listening = [
            connection
            for connection in psutil.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid
        ]
        # Several processes may share a socket, and one that listens on all addresses gives way to a closer one.
        exact = [connection for connection in listening if connection.laddr.ip in addresses]
        every = [connection for connection in listening if connection.laddr.ip in _EVERY_ADDRESS]
        pids = sorted(connection.pid for connection in exact or every or listening)
        if pids:
            process = psutil.Process(pids[0])
            return LocalServer(process.pid, process.uids().real, _staged_only(process))
    return None


def may_write(uid: int, folder: Path) -> bool:
    """Whether that user may create files in a folder, by its mode: the group and access lists are not looked at."""
    mode = folder.stat()
    return uid in (0, mode.st_uid) or bool(mode.st_mode & 0o002)


@contextmanager
def only_one(url: str) -> Iterator[None]:
    """Hold a server for one attach on this host. Raises LifetimeError when another has it.

    SGLang takes a second start before the first has recorded a step and forgets the first without a word.
    """
    name = hashlib.sha256(_identity(url).encode()).hexdigest()[:16]
    descriptor = _opened(Path(tempfile.gettempdir()) / f"dsv4prof-attach-{name}.lock")
    if descriptor is None:
        # Not a reason to refuse: the server itself mostly says no.
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "?"
            raise LifetimeError(
                f"{url} is already being profiled by another dsv4prof attach (process {owner})",
                hint="wait until that one ends",
            ) from None
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _identity(url: str) -> str:
    """The server itself: a host has many names, and `localhost`, `127.0.0.1` and its own name lead to one process."""
    server = local_server(url)
    if server is not None:
        return f"process {server.pid}:{port_of(url)}"
    where = "here" if is_here(url) else min(addresses_of(host_of(url)), default=host_of(url))
    return f"{where}:{port_of(url)}"


def _opened(path: Path) -> int | None:
    """The lock's file; another user's can be read, which is enough to lock it."""
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError:
            continue
    return None


def _staged_only(process: object) -> bool:
    import psutil

    with suppress(psutil.Error, OSError):
        value = process.environ().get("SGLANG_PROFILE_V2", "")  # type: ignore[attr-defined]
        return value.strip().lower() in ("1", "true", "yes", "y", "on")
    return False
