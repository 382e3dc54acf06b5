"""Which format a target's name asks for, and writing it."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.errors import UsageError
from dsv4prof.trace.merging import Merge
from dsv4prof.trace.perfetto.format import PftraceFormat
from dsv4prof.trace.perfetto.tar import TarMember, write_tar
from dsv4prof.trace.planning import MergePlan
from dsv4prof.trace.ranks import RankFile
from dsv4prof.trace.rows import rank_label

JSON = (".json", ".json.gz")
PFTRACE = (".pftrace", ".pftrace.gz")
TAR = ".tar"


def check_format(target: Path) -> None:
    """Raises UsageError for a name that says no format."""
    if not target.name.endswith((*JSON, *PFTRACE, TAR)):
        raise UsageError(
            f"cannot write a trace to {str(target)!r}",
            hint="name a file ending in .json, .json.gz, .pftrace, .pftrace.gz or .tar",
        )


def write(merging: Merge, plan: MergePlan, target: Path) -> None:
    """Write the plan as the target's name says.

    Raises as `Merge.write` and `write_tar`; UsageError for a .tar of anything but rank files.
    """
    if target.name.endswith(TAR):
        write_tar(_members(plan), target)
    elif target.name.endswith(PFTRACE):
        merging.write(plan, target, PftraceFormat())
    else:
        merging.write(plan, target)


def _members(plan: MergePlan) -> list[TarMember]:
    """The files as they are. A constant offset a file is all that the manifest can say: drifts are left out."""
    members = []
    for rank in plan.ranks:
        source = rank.surveyed.source
        if not isinstance(source, RankFile) or not Path(source.path).is_file():
            raise UsageError("a .tar holds untouched rank files", hint="name the rank files themselves")
        label = rank_label(rank.coordinates, with_host=rank.coordinates.host is not None)
        members.append(TarMember(Path(source.path), label, rank.base_ns - rank.clock.offset_ns))
    return members
