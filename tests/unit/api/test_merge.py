from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4prof.api import analyze, merge
from dsv4prof.errors import InputError, OutputError, UsageError
from dsv4prof.report import render
from traces import document, note, op, write


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        events = [op("aten::add", 10 * i, 5) for i in range(4)]
        write(folder / f"rank{rank}.trace.json", document(events, rank=rank, world=3))
    return folder


def test_whole_ranks_exit_zero(ranks: Path, tmp_path: Path) -> None:
    report = merge([str(ranks)], output=tmp_path / "out.json.gz")
    assert report.verdict.exit_code == 0
    assert [rank["slices"] for rank in report.data["ranks"]] == [4, 4, 4]
    assert report.findings == []


def test_a_missing_rank_exits_one_and_is_named(ranks: Path, tmp_path: Path) -> None:
    (ranks / "rank1.trace.json").unlink()
    report = merge([str(ranks)], output=tmp_path / "out.json.gz")
    assert report.verdict.exit_code == 1
    assert report.data["missing_ranks"] == [1]
    assert [finding.code for finding in report.findings] == ["DSV501"]
    assert (tmp_path / "out.json.gz").exists()
    assert merge([str(ranks)], output=tmp_path / "out.json.gz", allow_partial=True).verdict.exit_code == 0


@pytest.mark.parametrize(("lost", "allowed", "ok", "mark"), [
    (False, False, True, "✓"), (True, False, False, "✗"), (True, True, None, "-"), (False, True, True, "✓"),
])  # fmt: skip
def test_a_part_that_was_allowed_is_no_failure(
    lost: bool, allowed: bool, ok: bool | None, mark: str, ranks: Path, tmp_path: Path
) -> None:
    if lost:
        (ranks / "rank1.trace.json").unlink()
    report = merge([str(ranks)], output=tmp_path / "out.json.gz", allow_partial=allowed)
    assert report.checks[0].ok is ok
    assert [line[0] for line in render(report, "text").splitlines() if "out.json.gz: " in line] == [mark]


def test_counts_are_of_what_the_file_holds(tmp_path: Path) -> None:
    window = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 90}
    trace = write(tmp_path / "rank0.trace.json", document([op("a", 0, 5), op("b", 10, 5), window], rank=0, world=1))
    report = merge([str(trace)], output=tmp_path / "out.json", check=True)
    written = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert [rank["events"] for rank in report.data["ranks"]] == [sum(event["ph"] != "M" for event in written)]
    assert "2 slices, 1 rank, clocks by base time, 0 dropped slices" in report.checks[0].message
    assert report.verdict.summary == "whole: 1 rank merged"


@pytest.mark.parametrize("collective", ["gloo:all_reduce", "other"])
def test_a_residual_is_told_only_where_something_matched(collective: str, ranks: Path, tmp_path: Path) -> None:
    for rank in range(3):
        # Ends that no clock can bring together: 2 us apart, to and fro.
        events = [note(collective, 100 * n, 10 + 2 * (rank == 1) * (n % 2)) for n in range(20)]
        write(ranks / f"rank{rank}.trace.json", document(events, rank=rank, world=3))
    message = merge([str(ranks)], output=tmp_path / "out.json").checks[0].message
    assert ("clock residual " in message) is (collective != "other")
    assert ("clocks by base time" in message) is (collective == "other")


def test_an_unreadable_rank_is_left_out_and_named(ranks: Path, tmp_path: Path) -> None:
    (ranks / "rank2.trace.json").write_text("")
    report = merge([str(ranks)], output=tmp_path / "out.json.gz")
    assert report.verdict.exit_code == 1
    assert len(report.data["ranks"]) == 2
    assert "rank2.trace.json" in report.data["unreadable"][0]


def test_strict_refuses_and_writes_nothing(ranks: Path, tmp_path: Path) -> None:
    (ranks / "rank1.trace.json").unlink()
    with pytest.raises(InputError, match="rank 1"):
        merge([str(ranks)], output=tmp_path / "out.json.gz", strict=True)
    assert not (tmp_path / "out.json.gz").exists()


def test_only_our_own_output_is_replaced(ranks: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text('{"traceEvents": []}')
    with pytest.raises(OutputError, match=r"out\.json"):
        merge([str(ranks)], output=target)
    assert target.read_text() == '{"traceEvents": []}'
    merge([str(ranks)], output=target, force=True)
    assert merge([str(ranks)], output=target).verdict.exit_code == 0


@pytest.mark.parametrize("name", ["-", "", "out", "out.txt", "out.json.zst", "out.gz"])
def test_an_output_without_a_format_in_its_name_is_refused(name: str, ranks: Path) -> None:
    with pytest.raises(UsageError) as caught:
        merge([str(ranks)], output=Path(name), force=True)
    assert ".json.gz" in (caught.value.hint or "")


def test_what_is_no_regular_file_is_refused_even_with_force(ranks: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "null.json").symlink_to(os.devnull)
    for name in ("folder.json", "fifo.json", "null.json"):
        with pytest.raises(OutputError, match=name):
            merge([str(ranks)], output=tmp_path / name, force=True)
    assert (tmp_path / "null.json").is_symlink()


def test_an_input_is_never_the_output(ranks: Path, tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(ranks / "rank1.trace.json")
    before = (ranks / "rank1.trace.json").read_bytes()
    for target in (ranks / "rank1.trace.json", tmp_path / "link.json"):
        with pytest.raises(OutputError, match="one of the inputs"):
            merge([str(ranks)], output=target, force=True)
    assert (ranks / "rank1.trace.json").read_bytes() == before


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
@pytest.mark.parametrize("marks", [{"trace_id": "B"}, {}])
def test_the_merge_of_another_recording_is_not_replaced(
    name: str, marks: dict[str, str], ranks: Path, tmp_path: Path
) -> None:
    other, target = tmp_path / "other", tmp_path / name
    other.mkdir()
    for rank in range(3):
        kept = {"trace_id": f"A{rank}"} if marks else {}
        events = [op("aten::add", 10 * i, 5) for i in range(4)]
        write(ranks / f"rank{rank}.trace.json", document(events, rank=rank, world=3, **kept))
        write(other / f"rank{rank}.trace.json", document(events[: 4 if marks else 3], rank=rank, world=3, **marks))
    merge([str(ranks)], output=target)
    before = target.read_bytes()
    with pytest.raises(OutputError, match="another recording") as caught:
        merge([str(other)], output=target)
    assert "--force" in (caught.value.hint or "")
    assert target.read_bytes() == before
    assert merge([str(ranks / "rank1.trace.json")], output=target, allow_partial=True).verdict.exit_code == 0
    merge([str(other)], output=target, force=True)
    assert target.read_bytes() != before


@pytest.mark.parametrize("command", [merge, analyze])
def test_an_empty_name_is_not_the_current_folder(command: Callable[[list[str]], object]) -> None:
    with pytest.raises(UsageError, match="empty"):
        command([""])


def test_order_of_input_does_not_matter(ranks: Path, tmp_path: Path) -> None:
    files = sorted(str(path) for path in ranks.iterdir())
    merge(files, output=tmp_path / "a.json.gz")
    merge(files[::-1], output=tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.parametrize("name", ["absent.json", "absent/folder", "nosuchsession"])
def test_what_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=name):
        merge([name], sessions_dir=tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace"):
        merge([str(tmp_path)])


def test_analysis_of_a_merged_file_equals_that_of_its_ranks(ranks: Path, tmp_path: Path) -> None:
    merge([str(ranks)], output=tmp_path / "out.json.gz")
    of_merged, of_ranks = analyze([str(tmp_path / "out.json.gz")]), analyze([str(ranks)])
    assert of_merged.data["host_reads"] == of_ranks.data["host_reads"]
    assert of_merged.sections == of_ranks.sections


def test_fail_on_decides_the_exit_status(ranks: Path) -> None:
    (ranks / "rank1.trace.json").unlink()
    assert analyze([str(ranks)]).verdict.exit_code == 0
    assert analyze([str(ranks)], fail_on="warning").verdict.exit_code == 1
    assert analyze([str(ranks)], fail_on="error").verdict.exit_code == 0


def test_an_unknown_severity_is_refused(ranks: Path) -> None:
    with pytest.raises(UsageError, match="fatal") as caught:
        analyze([str(ranks)], fail_on="fatal")
    assert "warning" in str(caught.value.hint)
