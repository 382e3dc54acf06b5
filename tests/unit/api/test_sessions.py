"""Sessions of others, damaged ones, several prunes at once: what is listed, shown and deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsv4prof.api import analyze, sessions_list, sessions_prune, sessions_show
from dsv4prof.errors import InputError
from dsv4prof.model.session import MANIFEST_NAME, Outcome, RankCoordinates, RankRecord, WindowRecord
from dsv4prof.recorder.sessions import assemble, create_session, open_session
from dsv4prof.recorder.sink import write_record
from dsv4prof.report import render
from traces import document, op, write


def make(root: Path, **changes: Any) -> Path:
    """A whole session of one rank."""
    folder = create_session(root, name="n", world_size=1, settings={"tp": [1, "--tp"]})
    trace = write(folder / "rank0.trace.json", document([op("aten::add", 0, 5)], rank=0, world=1))
    window = WindowRecord(steps=1, trace=changes.pop("trace", trace.name))
    fields = {"outcome": Outcome.COMPLETE, "windows": [window], **changes}
    write_record(folder, RankRecord(coordinates=RankCoordinates(rank=0, world_size=1), **fields))
    assemble(folder)
    return folder


def rewrite(folder: Path, **changes: Any) -> None:
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    (folder / MANIFEST_NAME).write_text(json.dumps({**manifest, **changes}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": "other/9"}, "other/9"),
        ({"settings": [1, 2, 3]}, "settings"),
        ({"world_size": 10**12}, "1000000000000 ranks"),
        ({"world_size": "two"}, "world_size"),
        (None, "it has no manifest.json"),
    ],
)
def test_what_cannot_be_read_is_listed_with_the_reason(
    changes: dict[str, Any] | None, why: str, tmp_path: Path
) -> None:
    whole, broken = make(tmp_path), make(tmp_path)
    (broken / MANIFEST_NAME).unlink() if changes is None else rewrite(broken, **changes)
    report = sessions_list(tmp_path)
    assert [row["outcome"] for row in report.data["sessions"]] == ["unreadable", "complete"]
    assert len(report.notes) == 1
    assert why in report.notes[0]
    assert why in render(report, "text")
    for name in (broken.name, broken.name[-4:]):
        with pytest.raises(InputError, match=why):
            sessions_show(name, tmp_path)
    assert sessions_show(whole.name[-4:], tmp_path).verdict.exit_code == 0
    sessions_prune(tmp_path, keep=0, delete=True)
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.parametrize("entry", [5, None, [1, 2, 3], {"a": 1}, "x"])
def test_odd_settings_are_shown_as_they_are(entry: object, tmp_path: Path) -> None:
    folder = make(tmp_path)
    rewrite(folder, settings={"tp": entry})
    rows = sessions_show("latest", tmp_path).sections[1].rows
    assert rows == [{"setting": "tp", "value": None if entry is None else str(entry), "source": None}]


def test_a_trace_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    outside = write(tmp_path / "rank0.trace.json", document([op("aten::add", 0, 5)], rank=0, world=1))
    for name in (str(outside), "../../rank0.trace.json"):
        folder = make(tmp_path / "sessions", trace=name)
        with pytest.raises(InputError, match="is not in the folder"):
            analyze([str(folder)])


def test_a_session_that_still_records_says_so(tmp_path: Path) -> None:
    folder = make(tmp_path, outcome=Outcome.RECORDING, trace="rank0.trace.json.gz", pid=os.getpid())
    with pytest.raises(InputError, match="still recording") as caught:
        analyze([str(folder)])
    assert caught.value.hint == "wait until it ends"


@pytest.mark.parametrize("alive", [True, False])
def test_ranks_that_never_reported_are_awaited_only_while_their_launcher_lives(alive: bool, tmp_path: Path) -> None:
    folder = create_session(tmp_path, name="n", world_size=2)
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    rewrite(folder, pid=os.getpid() if alive else int(gone.stdout))
    assert open_session(folder).outcome is (Outcome.RECORDING if alive else Outcome.INCOMPLETE)


def test_ranks_that_died_before_their_first_word_make_the_session_incomplete(tmp_path: Path) -> None:
    folder = create_session(tmp_path, name="n", world_size=1)
    here = RankCoordinates(rank=0, world_size=1)
    write_record(folder, RankRecord(coordinates=here, outcome=Outcome.MISSING, reason="ended with status 1"))
    assert assemble(folder).outcome is Outcome.INCOMPLETE
    assert sessions_list(tmp_path).data["sessions"][0]["reason"] == "rank 0: ended with status 1"


@pytest.mark.parametrize("recorded", [True, False])
def test_analysis_is_suggested_only_where_something_was_recorded(recorded: bool, tmp_path: Path) -> None:
    make(tmp_path, trace="rank0.trace.json" if recorded else None)
    for report in (sessions_list(tmp_path), sessions_show("latest", tmp_path)):
        assert (report.next_command or "").startswith("dsv4prof analyze" if recorded else "dsv4prof run")


def test_of_a_linked_session_only_the_link_is_deleted(tmp_path: Path) -> None:
    kept = make(tmp_path / "elsewhere")
    (tmp_path / "sessions").mkdir()
    link = tmp_path / "sessions" / kept.name
    link.symlink_to(kept)
    report = sessions_prune(tmp_path / "sessions", keep=0, delete=True)
    assert report.data["bytes"] == 0
    assert not link.is_symlink()
    assert open_session(kept).outcome is Outcome.COMPLETE


@pytest.mark.parametrize("finished", [True, False])
def test_prunes_at_the_same_time_do_not_disturb_each_other(
    finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has deleted a file, or all of the folder, between our look and our deletion of it."""
    real = shutil.rmtree
    calls = []

    def overtaken(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            real(folder) if finished else (folder / "rank0.trace.json").unlink()
            raise FileNotFoundError(folder / "rank0.trace.json")
        real(folder)

    for _ in range(3):
        make(tmp_path)
    monkeypatch.setattr(shutil, "rmtree", overtaken)
    sessions_prune(tmp_path, keep=1, delete=True)
    assert len(list(tmp_path.iterdir())) == 1
    assert len(calls) == (2 if finished else 3)


def test_a_session_that_vanishes_while_they_are_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = make(tmp_path), make(tmp_path)

    def overtaken(folder: Path) -> Any:
        if folder == gone:
            shutil.rmtree(folder)
        return open_session(folder)

    monkeypatch.setattr("dsv4prof.recorder.sessions.open_session", overtaken)
    report = sessions_list(tmp_path)
    assert [row["path"] for row in report.data["sessions"]] == [str(kept)]
    assert report.notes == []


def test_a_session_round_trips_with_its_maker(tmp_path: Path) -> None:
    session = open_session(make(tmp_path))
    assert session.pid == os.getpid()
    assert msgspec.json.decode(msgspec.json.encode(session), type=type(session)) == session


@pytest.mark.parametrize("command", [sessions_show, lambda name, root: analyze([name], sessions_dir=root)])
def test_latest_of_unreadable_sessions_only_says_so(command: Any, tmp_path: Path) -> None:
    rewrite(make(tmp_path), schema="other/9")
    with pytest.raises(InputError, match=r"no session under .* can be read \(1 unreadable one\): .*other/9"):
        command("latest", tmp_path)
    whole = make(tmp_path)
    assert sessions_show("latest", tmp_path).data["path"] == str(whole)


def test_a_reason_is_shown_without_the_place_in_torchs_sources(tmp_path: Path) -> None:
    why = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer"
    folder = make(tmp_path, outcome=Outcome.INCOMPLETE, reason=why)
    report = sessions_show(folder.name[-4:], tmp_path)
    assert report.sections[0].rows[0]["reason"] == "Connection closed by peer"
    assert ".cc" not in render(report, "text")
    assert report.data["manifest"]["ranks"][0]["reason"] == why
