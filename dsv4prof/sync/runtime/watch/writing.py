"""Writes the log of a watched process, while it runs: see `ran_log`."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec

from dsv4prof.model.finding import Finding
from dsv4prof.model.syncs import Layer
from dsv4prof.sync.runtime.watch import ran_log
from dsv4prof.sync.runtime.watch.merging import Call
from dsv4prof.sync.runtime.watch.tally import Tally

_PAUSE_S = 0.5
_AT_ONCE = 16
_MOST_SITES = 20_000


class _Site:
    __slots__ = ("blocked_ns", "calls", "counted", "id", "layers", "missing", "stepped", "times", "written")

    def __init__(self, id: int) -> None:
        self.id = id
        self.calls = self.times = self.counted = self.stepped = self.written = 0
        self.blocked_ns: int | None = None
        self.layers: dict[Layer, None] = {}
        self.missing: Counter[Layer] = Counter()


class LogWriter:
    """`settled` is told of every call. A forked child goes on in a file of its own, with counts of its own."""

    def __init__(self, folder: Path, head: ran_log.Head) -> None:
        self._folder, self._head = folder, head
        self._lock = threading.RLock()
        self._tally: Tally | None = None
        self._begin()
        os.register_at_fork(after_in_child=self._forked)

    def follow(self, tally: Tally) -> None:
        """Whose totals are written."""
        self._tally = tally

    def _begin(self) -> None:
        pid = os.getpid()
        path = self._folder / f"{pid}-{time.monotonic_ns()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._sites: dict[object, _Site] = {}
        self._left_out = 0
        self._since = time.monotonic()
        self._cut = self._failed = False
        self._write(msgspec.structs.replace(self._head, pid=pid))

    def _forked(self) -> None:
        self._lock = threading.RLock()
        os.close(self._file)
        if self._tally is not None:
            self._tally.forget()
        self._begin()

    def settled(self, call: Call, missing: tuple[Layer, ...]) -> None:
        first = call.first
        key = (call.place.site, first.op, first.form, call.kind, call.region, bool(call.allowed_by))
        with self._lock:
            site = self._sites.get(key)
            if site is None:
                if len(self._sites) >= _MOST_SITES:
                    self._left_out += 1
                    return
                site = self._sites[key] = _Site(len(self._sites))
                self._write(ran_log.SiteLine(id=site.id, event=call.event(missing)))
            self._count(site, call, missing)
            if site.calls <= _AT_ONCE:
                self._write_count(site)
            if site.calls <= _AT_ONCE or time.monotonic() - self._since > _PAUSE_S:
                self._flush()

    def _count(self, site: _Site, call: Call, missing: tuple[Layer, ...]) -> None:
        site.calls += 1
        site.times += call.times
        site.counted += call.counted
        if call.step is not None and not call.warm:
            site.stepped += call.times
        site.layers.update(dict.fromkeys(call.counts))
        site.missing.update(missing)
        blocked = call.blocked_ns
        if blocked is not None:
            site.blocked_ns = (site.blocked_ns or 0) + blocked

    def function(self, file: str, name: str, line: int, lines: tuple[int, ...] = ()) -> None:
        """A function was entered for the first time, or `lines` of it are all that ran."""
        with self._lock:
            self._write(ran_log.FunctionLine(file=file, function=name, def_line=line, lines=lines))

    def finding(self, finding: Finding) -> None:
        with self._lock:
            self._write(ran_log.FindingLine(finding=finding))

    def note(self, text: str) -> None:
        with self._lock:
            self._write(ran_log.NoteLine(text=text))

    def finish(self) -> None:
        """Everything that is still only in memory."""
        with self._lock:
            if self._left_out:
                self.note(f"{self._left_out:,} calls of more than {_MOST_SITES:,} sites are not listed")
            self._flush()
            self._write(ran_log.EndLine())

    def _flush(self) -> None:
        self._since = time.monotonic()
        for site in self._sites.values():
            if site.written != site.calls:
                self._write_count(site)
        tally = self._tally
        if tally is not None:
            self._write(
                ran_log.TotalLine(
                    syncs=tally.syncs,
                    allowed=tally.allowed,
                    warm=tally.warm,
                    units=tally.units,
                    steps=tally.steps,
                    most=tally.most,
                    over=tally.over,
                    violations=[each.message for each in tally.violations],
                )
            )

    def _write_count(self, site: _Site) -> None:
        site.written = site.calls
        self._write(
            ran_log.CountLine(
                id=site.id,
                calls=site.calls,
                times=site.times,
                counted=site.counted,
                stepped=site.stepped,
                blocked_ns=site.blocked_ns,
                layers=list(site.layers),
                missing=dict(site.missing),
            )
        )

    def _write(self, line: ran_log.Line) -> None:
        data = (b"\n" if self._cut else b"") + msgspec.json.encode(line) + b"\n"
        try:
            # A disk that fills up takes a part: what comes next must not be glued to it.
            self._cut = os.write(self._file, data) < len(data)
        except OSError as error:
            # The program goes on: it did not ask to be watched. Its end would be worse than a short log.
            if not self._failed and sys.stderr is not None:
                print(f"dsv4prof: the log of syncs cannot be written: {error.strerror}", file=sys.stderr)
            self._failed = True
