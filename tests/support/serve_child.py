"""`dsv4prof serve` as a child process, for as long as a block takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from child import TINY


class ServeChild:
    """url while it runs; status and stderr afterwards."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process, self._log = process, log
        self.url = process.stdout.readline().strip()
        self.status: int | None = None

    @property
    def stderr(self) -> str:
        return self._log.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.status = self.process.wait(60)
        return self.status


@contextmanager
def serve_child(*arguments: str, cwd: Path) -> Iterator[ServeChild]:
    log = cwd / "serve.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "dsv4prof", "serve", "--threads", "1", *TINY, *arguments],
            stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    child = None
    try:
        child = ServeChild(process, log)
        assert child.url.startswith("http://127.0.0.1:"), child.stderr
        yield child
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
