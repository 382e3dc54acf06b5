"""What is made of the logs of a watched command: sites of all ranks, bounds, drift, and the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsv4prof.api.audit_watching import Ending, WatchRequest, audit_run
from dsv4prof.errors import OutputError, UsageError
from dsv4prof.model.finding import Severity
from dsv4prof.model.report import Report
from dsv4prof.model.syncs import Frame, Kind, SyncEvent
from dsv4prof.report import render
from dsv4prof.sync.exercised import read_ran
from dsv4prof.sync.runtime.hazards.watch import KEEP_ENV
from dsv4prof.sync.runtime.watch import orders, ran_log
from dsv4prof.sync.runtime.watch.ran_log import CountLine, EndLine, FunctionLine, Head, SiteLine, TotalLine


def event(line: int = 3, **changes: Any) -> SyncEvent:
    fields: dict[str, Any] = {
        "kind": Kind.SYNC, "direction": "d2h", "op": "aten::item", "reason": "a value is read", "form": "item",
        "code": "DSV101", "times": 1, "shapes": ((),), "stack": (Frame("/src/model.py", line, "Model.build"),),
        "stream": 0, "thread": 1, "start_ns": 5, "blocked_ns": None, "layers": ("warn",), "region": "verify", "step": 2,
    }  # fmt: skip
    return SyncEvent(**{**fields, **changes})


def lines(*sites: tuple[SyncEvent, int, int | None], rank: int | None = None, **total: Any) -> list[ran_log.Line]:
    """A process with sites: event, waits in all, time blocked. Ten steps."""
    counts: dict[str, Any] = {
        "syncs": 0, "allowed": 0, "warm": 0, "units": 10, "steps": 10, "most": 3, "over": 0, "violations": [],
    }  # fmt: skip
    made: list[ran_log.Line] = [
        Head(pid=100 + (rank or 0), argv=["python", "x.py"], rank=rank, torch="2.11", gpu=True, vendor="cuda",
             layers=["warn", "dispatch"])
    ]  # fmt: skip
    for id, (what, times, blocked) in enumerate(sites):
        made.append(SiteLine(id=id, event=what))
        made.append(
            CountLine(id=id, calls=times, times=times, counted=times, stepped=times, blocked_ns=blocked,
                      layers=list(what.layers), missing=dict.fromkeys(what.missing, times))
        )  # fmt: skip
    return [*made, TotalLine(**{**counts, **total}), EndLine()]


def ran(
    tmp_path: Path, *processes: list[ran_log.Line], status: int = 0, torn: bytes = b"", started: int = 0, **options: Any
) -> Report:
    def run(command: Sequence[str], environment: Mapping[str, str], own_stdout: bool) -> Ending:
        folder = Path(orders.read(Path(environment[orders.ENV])).folder)
        for number, process in enumerate(processes):
            data = b"".join(msgspec.json.encode(line) + b"\n" for line in process)
            (folder / f"{number}.jsonl").write_bytes(data + torn)
        (folder / ran_log.STARTED).write_text("1 python\n" * (started or len(processes)))
        return Ending(status)

    return audit_run(["python", "x.py"], WatchRequest(sessions_dir=tmp_path, **options), run=run)


def test_ranks_are_one_site_with_a_mean_a_step(tmp_path: Path) -> None:
    report = ran(
        tmp_path,
        lines((event(), 20, 4_000_000), rank=1),
        lines((event(), 40, 6_000_000), (event(9), 5, None), rank=0),
    )
    worst, other = report.findings
    assert (worst.code, worst.evidence["reads"], worst.evidence["per_step"], worst.evidence["processes"]) == (
        "DSV101", 60, 3.0, 2,
    )  # fmt: skip
    # A step waits three times, of 60 that took 10 ms.
    assert worst.cost_ns == 500_000
    assert (other.evidence["per_step"], other.cost_ns) == (0.5, None)
    assert worst.location is not None and str(worst.location) == "Model.build, /src/model.py:3"
    assert worst.message == "aten::item: a value is read (in verify)"
    assert [process["rank"] for process in report.data["processes"]] == [0, 1]
    assert [section.key for section in report.sections] == ["processes"]
    assert report.verdict.exit_code == 0


def test_what_blocks_longest_comes_first_then_what_waits_most(tmp_path: Path) -> None:
    report = ran(tmp_path, lines((event(1), 900, None), (event(2), 1, 7), (event(3), 5, 9_000)))
    assert [finding.location.line for finding in report.findings if finding.location] == [3, 2, 1]


def test_allowed_waits_are_a_table_and_no_findings(tmp_path: Path) -> None:
    report = ran(tmp_path, lines((event(allowed_by="one a step"), 10, None), (event(4), 2, None)))
    assert [finding.location.line for finding in report.findings if finding.location] == [4]
    (section,) = report.sections
    assert (section.key, section.rows[0]["times"], section.rows[0]["reason"]) == ("allowed", 10, "one a step")


def test_layers_that_disagree_are_a_table(tmp_path: Path) -> None:
    report = ran(tmp_path, lines((event(layers=("warn",), missing=("dispatch",)), 4, None)))
    (section,) = report.sections
    assert section.key == "drift"
    assert (section.rows[0]["layer"], section.rows[0]["others"], section.rows[0]["calls"]) == ("dispatch", "warn", 4)


@pytest.mark.parametrize(
    ("status", "options", "violations", "expected"),
    [
        (0, {}, [], 0),
        (5, {"fail_on": "warning"}, [], 5),
        (0, {"fail_on": "warning"}, [], 1),
        (0, {"fail_on": "error"}, [], 0),
        (0, {"max_syncs": 1}, ["step 3 waited 2 times, and 1 are allowed"], 1),
        (139, {"max_syncs": 1}, ["step 3 waited 2 times, and 1 are allowed"], 139),
    ],
)
def test_the_status(status: int, options: dict[str, Any], violations: list[str], expected: int, tmp_path: Path) -> None:
    report = ran(tmp_path, lines((event(), 1, None), violations=violations), status=status, **options)
    assert report.verdict.exit_code == expected
    if violations:
        assert any(check.message == violations[0] and check.ok is False for check in report.checks)


def test_a_suspect_is_a_note(tmp_path: Path) -> None:
    report = ran(tmp_path, lines((event(kind=Kind.SUSPECT, code="DSV111"), 1, None)), fail_on="warning")
    assert report.findings[0].severity is Severity.NOTE
    assert report.verdict.exit_code == 0


def test_a_line_that_is_cut_costs_itself_alone(tmp_path: Path) -> None:
    process = lines((event(), 7, None))[:-1]
    report = ran(tmp_path, process, torn=b'{"line":"count","id":0,"cal')
    assert report.findings[0].evidence["reads"] == 7
    assert report.data["processes"][0]["ended"] is False


def test_python_without_torch_is_no_error_and_no_python_is(tmp_path: Path) -> None:
    report = ran(tmp_path, started=3)
    assert report.verdict.exit_code == 0
    assert "3 Python processes started and none imported it" in report.verdict.summary
    nothing = audit_run(["python"], WatchRequest(sessions_dir=tmp_path), run=lambda *_: Ending(0))
    assert nothing.verdict.exit_code == 2


def test_the_export_has_sites_and_functions(tmp_path: Path) -> None:
    process = lines((event(), 7, 5_000))
    function = FunctionLine(file="/src/model.py", function="Model.build", def_line=1)
    both = [*process[:-1], function, msgspec.structs.replace(function, lines=(2, 3)), process[-1]]
    ran(tmp_path, both, export=tmp_path / "ran.json")
    proof = read_ran(tmp_path / "ran.json")
    (site,) = proof.sites
    assert (site.file, site.line, site.count, site.blocked_ns, site.region) == ("/src/model.py", 3, 7, 5_000, "verify")
    assert [(each.function, each.line, each.lines) for each in proof.functions] == [("Model.build", 1, (2, 3))]
    assert (proof.gpu, proof.torch) == (True, "2.11")


@pytest.mark.parametrize("fmt", ["text", "json", "concise", "jsonl", "sarif", "github", "markdown", "junit"])
def test_every_format_says_where(fmt: str, tmp_path: Path) -> None:
    text = render(ran(tmp_path, lines((event(), 20, None))), fmt)
    assert "model.py" in text
    assert "DSV101" in text


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ([], {}, "no command"),
        (["no-such-program"], {}, "no-such-program"),
        (["python"], {"disallow": ("up",)}, "no direction"),
        (["python"], {"layers": ("foo",)}, "'foo' is no layer"),
        (["python"], {"layers": ("warn",), "no_gpu": True}, "--no-gpu watches on shadow"),
        (["python"], {"regions": ("build",)}, "MODULE:FUNCTION"),
        (["python"], {"exercised": ("nowhere",)}, "there is no nowhere"),
        (["python"], {"fail_on": "sometimes"}, "fail_on"),
    ],
)
def test_nothing_is_started_for_a_request_that_makes_no_sense(
    command: list[str], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        audit_run(command, WatchRequest(sessions_dir=tmp_path / "logs", **options))
    assert not (tmp_path / "logs").exists()


def test_logs_that_cannot_be_written_are_an_error_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        audit_run(["python"], WatchRequest(sessions_dir=tmp_path / "file"))


def test_places_that_wait_are_counted_without_suspects_and_hazards_apart(tmp_path: Path) -> None:
    suspect = event(line=9, kind=Kind.SUSPECT, code="DSV111", form="pin-memory")
    report = ran(tmp_path, lines((event(), 4, None), (suspect, 1, None)), hazards=True)
    assert report.verdict is not None
    assert report.verdict.summary == "4 waits at 1 place, 0 hazards"
    assert any("no hazard in this run" in note for note in report.notes)


def test_the_next_command_keeps_a_run_or_asks_the_one_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEEP_ENV, raising=False)
    fresh = ran(tmp_path / "a", lines((event(), 4, None)), no_gpu=True)
    assert (fresh.next_command or "").startswith("dsv4prof hazards --no-gpu -o ")
    kept = tmp_path / "run.gz"
    kept.touch()
    monkeypatch.setenv(KEEP_ENV, str(kept))
    asked = ran(tmp_path / "b", lines((event(), 4, None)), hazards=True)
    assert (asked.next_command or "").startswith("dsv4prof hazards explain ")
    assert "--ran " in (asked.next_command or "")
