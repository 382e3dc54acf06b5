"""A server of our own for the length of a benchmark, in another process: it shares no interpreter with the client."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dsv4prof.errors import UsageError

_END_S = 30.0


@contextmanager
def own_server(arguments: Sequence[str]) -> Iterator[str]:
    """`dsv4prof serve` with these arguments on a free port; its address. Raises UsageError when it does not start."""
    command = [sys.executable, "-m", "dsv4prof", "serve", "--by-bench", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise UsageError(f"the server ended with status {process.wait()}", hint="its error is above")
        yield url
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
