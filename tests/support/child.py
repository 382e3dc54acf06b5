"""The command line as a user meets it: a child process, its two streams and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Most tests need a model and not a good one: this one is fast.
TINY = ("--model", "dsv4-tiny")
SMALL = (*TINY, "--requests", "4", "--max-requests", "2", "--max-new-tokens", "12", "--steps", "8")


@dataclass(frozen=True)
class Outcome:
    """What a child left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.stdout)


def dsv4prof(*arguments: str, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240) -> Outcome:
    """Run the command line in `cwd`."""
    child = subprocess.run(
        [sys.executable, "-m", "dsv4prof", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        timeout=timeout,
        check=False,
    )
    return Outcome(child.returncode, child.stdout, child.stderr)
