"""The processes of a command put together: one site for a line that waited in the same way, in whatever rank."""

from __future__ import annotations

from collections import Counter

import msgspec

from dsv4prof.model.finding import Finding
from dsv4prof.model.syncs import Frame, Kind, Layer, SyncEvent
from dsv4prof.sync.exercised import Ran, RanFunction, RanSite
from dsv4prof.sync.runtime.watch.ran_log import Folder, ProcessLog

_Key = tuple[str, int, str, str, str, Kind, str, str]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A line that waited, or did what its kind says.

    calls, times: calls and waits in all processes; counted: waits that no allowance and no warm-up covers. per_step is
    None where no step was announced. blocked_ns is None where nothing was measured.
    """

    event: SyncEvent
    calls: int
    times: int
    counted: int
    processes: int
    per_step: float | None
    blocked_ns: int | None
    layers: tuple[Layer, ...]
    missing: dict[Layer, int]

    @property
    def frame(self) -> Frame | None:
        return self.event.stack[0] if self.event.stack else None


def sites_of(folder: Folder) -> list[Site]:
    """Worst first: what blocked longest where that was measured, then what waited most in steps, then all others."""
    found: dict[_Key, Site] = {}
    for log in folder.logs:
        steps = log.total.steps if log.total is not None else 0
        for id, event in log.sites.items():
            count = log.counts.get(id)
            if count is None:
                continue
            site = Site(
                event=event,
                calls=count.calls,
                times=count.times,
                counted=count.counted,
                processes=1,
                per_step=round(count.stepped / steps, 3) if steps and count.stepped else None,
                blocked_ns=count.blocked_ns,
                layers=tuple(count.layers),
                missing=count.missing,
            )
            key = _key(event)
            found[key] = _both(found[key], site) if key in found else site
    return sorted(found.values(), key=_badness)


def _badness(site: Site) -> tuple[float, float, int, str]:
    return -(site.blocked_ns or 0), -(site.per_step or 0), -site.times, str(site.frame)


def _key(event: SyncEvent) -> _Key:
    frame = event.stack[0] if event.stack else Frame("", 0, "")
    return (
        frame.file, frame.line, frame.function, event.op, event.form, event.kind, event.region, event.allowed_by,
    )  # fmt: skip


def _both(one: Site, other: Site) -> Site:
    """Ranks do the same steps, so counts a step are a mean, and all others are sums."""
    each = [site.per_step for site in (one, other)]
    known = [rate for rate in each if rate is not None]
    blocked = [site.blocked_ns for site in (one, other) if site.blocked_ns is not None]
    ranks = one.processes + other.processes
    weighted = (one.per_step or 0) * one.processes + (other.per_step or 0) * other.processes
    return Site(
        event=one.event,
        calls=one.calls + other.calls,
        times=one.times + other.times,
        counted=one.counted + other.counted,
        processes=ranks,
        per_step=round(weighted / ranks, 3) if known else None,
        blocked_ns=sum(blocked) if blocked else None,
        layers=tuple(dict.fromkeys((*one.layers, *other.layers))),
        missing=dict(Counter(one.missing) + Counter(other.missing)),
    )


def ran_of(folder: Folder, *, run: str, command: str, created: str) -> Ran:
    """What the command proved about source: see `exercised`."""
    first: ProcessLog | None = folder.logs[0] if folder.logs else None
    functions: dict[tuple[str, str, int], RanFunction] = {}
    for log in folder.logs:
        for key, line in log.functions.items():
            known = functions.get(key)
            lines = {*line.lines, *(known.lines if known is not None else ())}
            functions[key] = RanFunction(
                file=line.file, function=line.function, line=line.def_line, lines=tuple(sorted(lines))
            )
    return Ran(
        run=run,
        command=command,
        created=created,
        torch=first.head.torch if first is not None else "",
        vendor=first.head.vendor if first is not None else "cuda",
        gpu=first.head.gpu if first is not None else False,
        sites=(
            *(_ran_site(site, site.frame) for site in sites_of(folder) if site.frame is not None),
            *(site for log in folder.logs for finding in log.findings if (site := _hazard(finding)) is not None),
        ),
        functions=tuple(functions[key] for key in sorted(functions)),
    )


def _hazard(finding: Finding) -> RanSite | None:
    place = finding.location
    if place is None or place.line is None:
        return None
    return RanSite(
        file=place.file,
        line=place.line,
        function=place.function or "",
        code=finding.code,
        kind=Kind.CONTRACT if finding.code == "DSV201" else Kind.RACE,
        count=int(finding.evidence.get("seen") or 1),
        reason=finding.message,
    )


def _ran_site(site: Site, frame: Frame | None) -> RanSite:
    assert frame is not None
    event = site.event
    return RanSite(
        file=frame.file,
        line=frame.line,
        function=frame.function,
        code=event.code,
        kind=event.kind,
        count=site.times,
        form=event.form,
        ops=(event.op,) if event.op else (),
        reason=event.reason,
        region=event.region,
        blocked_ns=site.blocked_ns,
        stack=tuple(f"{each.file}:{each.line} {each.function}" for each in event.stack),
    )
