"""Rank files shown by TensorBoard's PyTorch plugin: a log folder as it wants one, and a child that serves it.

The plugin takes `<worker>.<milliseconds>.pt.trace.json[.gz]` in a folder below the log folder, one folder a run; a
worker called `<host>_<number>` is a process of that host. Other names it passes over without a word.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from dsv4prof.errors import InputError, MissingExtraError, UsageError
from dsv4prof.view.links import LOOPBACK

EXTRA = "tensorboard"
PACKAGES = {"tensorboard": "tensorboard", "torch_tb_profiler": "torch-tb-profiler"}
ROUTES = "/data/plugin/pytorch_profiler"
# The tab's name in the address of TensorBoard's page.
_TAB = "pytorch_profiler"
_GZIP = b"\x1f\x8b"
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
# Milliseconds in a name only tell the windows of one worker apart, and here each has one.
_SPAN = 1_000_000_000_000
# A socket's path has room for 107 bytes, and multiprocessing adds 32 to the folder.
_SHORT = 75
_SHORT_FOLDER = "/tmp"
_FAULT = re.compile(r"^\w*(Error|Exception)\b")
_END_S = 5.0
_POLL_S = 0.2
_ASK_S = 5.0


def check_installed() -> None:
    """Raises MissingExtraError when TensorBoard or the plugin is not there; neither is imported."""
    for module, package in PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(package, EXTRA, purpose="--tensorboard")


def make_log_folder(folder: Path, files: Sequence[tuple[int, str | None, Path]], *, run: str) -> list[Path]:
    """Fill `folder` with links to rank files, named so that the plugin reads them; the links.

    `files` gives for each its rank, host and path. Raises InputError for a file that cannot be read or whose
    compression the plugin does not know.
    """
    home = folder / (_word(run) or "run")
    home.mkdir(parents=True)
    links = []
    for rank, host, path in files:
        end = _end_of(path)
        link = home / f"{_word(host or '') or 'rank'}_{rank}.{_SPAN}.pt.trace.json{end}"
        link.symlink_to(path.resolve())
        links.append(link)
    return links


def _temporary(scratch: Path) -> str:
    """Where the plugin keeps its caches: it leaves them behind when it is killed, so they go with the scratch folder.

    It also puts sockets there, whose paths may not be long; where they would be, it does not load at all.
    """
    return str(scratch) if len(os.fsencode(scratch.resolve())) <= _SHORT else _SHORT_FOLDER


def _word(text: str) -> str:
    """A name without what the plugin's pattern, or a file system, reads as something else."""
    return _UNSAFE.sub("-", text).strip("-")


def _end_of(path: Path) -> str:
    """What the plugin goes by is the name, so that must say what the content is."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="check its path") from error
    if head.startswith(_GZIP):
        return ".gz"
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        raise InputError(f"{path} is neither JSON nor gzip: the plugin cannot read it", hint="name .json[.gz] files")
    return ""


class TensorBoard:
    """A TensorBoard child on 127.0.0.1 that serves `folder` until `close`; everything it writes goes below `scratch`.

    Raises UsageError when it does not come up within `patience_s`, with what it said last.
    """

    def __init__(self, folder: Path, scratch: Path, *, port: int = 0, patience_s: float = 120.0) -> None:
        self._log = scratch / "tensorboard.log"
        self._went = False
        line = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", LOOPBACK]
        environment = {**os.environ, "TMPDIR": _temporary(scratch)}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*line, "--port", str(port), "--load_fast=false"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        try:
            self.address = self._await_address(time.monotonic() + patience_s)
        except BaseException:
            self.close()
            raise

    @property
    def page(self) -> str:
        """The address of the plugin's tab."""
        return f"{self.address}/#{_TAB}"

    def runs(self) -> tuple[list[str], bool]:
        """(names of the runs that are loaded, whether it is still loading)."""
        told = json.loads(self._get(f"{ROUTES}/runs"))
        return list(told["runs"]), bool(told["loading"])

    def ask(self, route: str, **query: str) -> tuple[int, bytes]:
        """(status, body as sent) of an endpoint of the plugin."""
        try:
            address = f"{self.address}{ROUTES}{route}?{urlencode(query)}"
            with urllib.request.urlopen(address, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def ended(self) -> bool:
        """Whether the child has gone by itself."""
        return self.process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether it went by itself, before it was told to."""
        return self._went

    def close(self) -> None:
        """End the child and the processes that it started to read traces."""
        self._went = self.ended()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(_END_S)
                break
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
        # It may have left readers behind, which have its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.address + path, timeout=_ASK_S) as answer:
            return bytes(answer.read())

    def _await_address(self, end: float) -> str:
        """It says its address on stderr when it listens; then it is asked until it answers."""
        pattern = re.compile(rb"at (http://[^/\s]+)/ ")
        while time.monotonic() < end:
            found = pattern.search(self._log.read_bytes())
            if found is not None:
                self.address = found[1].decode().replace("localhost", LOOPBACK)
                try:
                    self._get(f"{ROUTES}/runs")
                except urllib.error.HTTPError as error:
                    raise UsageError(
                        f"TensorBoard runs, but the PyTorch plugin did not load: {self._said(_FAULT)}",
                        hint=f"pip install -U 'dsv4prof[{EXTRA}]', or leave out --tensorboard",
                    ) from error
                except OSError:
                    pass
                else:
                    return self.address
            if self.ended():
                break
            time.sleep(_POLL_S)
        raise UsageError(f"TensorBoard did not come up: {self._said()}", hint="--port 0 takes a free port")

    def _said(self, wanted: re.Pattern[str] = re.compile("")) -> str:
        """The last line of its log that fits."""
        lines = self._log.read_text(errors="replace").splitlines()
        fitting = (line.strip() for line in reversed(lines) if line.strip() and wanted.search(line))
        return next(fitting, "it said nothing")
