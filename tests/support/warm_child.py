"""Children that start warm: one process imports torch once, and each case runs in a fork of it.

A fork ends as any Python program does (threads joined, exit handlers run), and the process that it comes from has never
used torch, so only the seconds that each import of torch, and of what its profiler asks for, would cost are gone.

What was imported is frozen (`gc.freeze`), since a million objects that no case made took most of a case's time: in each
collection, and once more at the exit. A frozen heap frees nothing that would be kept otherwise. A case that is about
the exit itself, or about who holds what, asks for the heap of a plain program: `thawed`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

# The loop runs at the top of __main__, so that a child that leaves it goes on as the program itself.
_WARM = """
import gc, json, os, sys
gc.collect()
gc.freeze()
for line in sys.stdin:
    case = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
for number, name in ((0, os.devnull), (1, case["out"]), (2, case["err"])):
    opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY)
    os.dup2(opened, number)
    os.close(opened)
os.environ.clear()
os.environ.update(case["environment"])
os.chdir(case["folder"])
sys.argv[1:] = case["arguments"]
if case["thawed"]:
    gc.unfreeze()
del gc
exec(compile(case["body"], "<string>", "exec"))
"""


class WarmProcess:
    """Runs program texts that share a beginning, which it runs once."""

    def __init__(self, beginning: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", beginning + _WARM],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        atexit.register(self.close)

    def run(self, body: str, *arguments: str, timeout: float, thawed: bool = False) -> tuple[int, str, str]:
        """Exit status as subprocess gives it, standard output and standard error."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            out.touch(), err.touch()
            case = {
                "body": body, "arguments": arguments, "out": str(out), "err": str(err), "folder": os.getcwd(),
                "thawed": thawed, "environment": {**os.environ, "OMP_NUM_THREADS": "1"},
            }  # fmt: skip
            print(json.dumps(case), file=self._process.stdin, flush=True)
            pid = int(self._process.stdout.readline())
            killer = threading.Timer(timeout, os.kill, (pid, signal.SIGKILL))
            killer.start()
            status = int(self._process.stdout.readline())
            killer.cancel()
            return status, out.read_text(errors="replace"), err.read_text(errors="replace")

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
