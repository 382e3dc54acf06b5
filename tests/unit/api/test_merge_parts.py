"""What a user selects and waits for: a part is no whole, an empty one a mistake, and somebody says what goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from dsv4prof.api import Patience, merge, narrow
from dsv4prof.errors import InputError, UsageError
from traces import document, flow, kernel, op, write


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        events = [op("a", 0, 5), op("b", 2000, 5), kernel("k", 2002, 9, 1), flow("s", 1, 2001)]
        events.append(flow("f", 1, 2002, pid=0, tid=7))
        write(folder / f"rank{rank}.json", document(events, rank=rank, world=2))
    return folder


def test_a_part_has_a_file_of_its_own(ranks: Path) -> None:
    whole = merge([str(ranks)]).data["output"]
    _, narrowing = narrow("1ms:3ms")
    part = merge([str(ranks)], narrowing=narrowing).data
    assert (Path(whole).name, Path(part["output"]).name) == ("merged.json.gz", "merged.part.json.gz")
    assert [(rank["slices"], rank["flows"]) for rank in part["ranks"]] == [(2, 1)] * 2


@pytest.mark.parametrize("wanted", [{"window": "5s:6s"}, {"steps": "3"}, {"categories": "none"}])
def test_a_selection_of_nothing_is_refused_and_writes_nothing(ranks: Path, wanted: dict[str, str]) -> None:
    _, narrowing = narrow(wanted.get("window"), steps=wanted.get("steps"), categories=wanted.get("categories"))
    with pytest.raises(InputError, match="nothing of the trace is selected") as refused:
        merge([str(ranks)], narrowing=narrowing)
    assert "ms long" in (refused.value.hint or "")
    assert sorted(path.name for path in ranks.iterdir()) == ["rank0.json", "rank1.json"]


def test_the_same_ranks_may_be_aligned_anew(ranks: Path) -> None:
    merge([str(ranks)])
    report = merge([str(ranks)], align="none")
    assert report.verdict.exit_code == 0
    assert any("as asked for" in note for note in report.notes)


def test_a_regex_that_finds_nothing_is_a_mistake(ranks: Path) -> None:
    with pytest.raises(UsageError, match="finds no rank in any name"):
        merge([str(ranks)], rank_regex=r"worker(\d)")


def test_strict_names_the_first_fault_and_counts_the_others(ranks: Path) -> None:
    (ranks / "rank0.json").write_bytes(b"")
    with pytest.raises(InputError, match=r"rank0\.json is empty \(and 1 more fault\)"):
        merge([str(ranks)], strict=True)


def test_an_earlier_merge_in_a_remote_folder_is_no_rank(ranks: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    merge([str(ranks)])
    report = merge([f"file://{ranks}"], output=tmp_path / "out.json")
    assert report.verdict.exit_code == 0 and len(report.data["ranks"]) == 2


def test_a_folder_may_hold_json_that_is_no_trace(ranks: Path) -> None:
    (ranks / "truth.json").write_text("{}")
    report = merge([str(ranks)])
    assert report.verdict.exit_code == 0
    assert any("truth.json" in note for note in report.notes)


def test_a_url_is_no_place_to_write(ranks: Path) -> None:
    with pytest.raises(UsageError, match="cannot write to"):
        merge([str(ranks)], output=Path("s3://bucket/x.json"))


def test_a_rank_that_is_still_written_is_waited_for(ranks: Path) -> None:
    late = ranks / "rank1.json"
    text = late.read_bytes()
    late.write_bytes(text[: len(text) // 2])
    said: list[str] = []

    def finish() -> None:
        time.sleep(0.6)
        late.write_bytes(text)

    writer = threading.Thread(target=finish)
    writer.start()
    report = merge([str(ranks)], patience=Patience(20), progress=said.append)
    writer.join()
    assert report.verdict.exit_code == 0
    assert any(line.startswith("waiting: rank 1") for line in said)


def test_waiting_ends(ranks: Path) -> None:
    (ranks / "rank1.json").unlink()
    began = time.monotonic()
    report = merge([str(ranks)], patience=Patience(1.5, asked=True))
    assert report.verdict.exit_code == 1 and 1 < time.monotonic() - began < 15
