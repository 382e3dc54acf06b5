"""A session's folder: made whole, put together from its ranks, found again, honest about ranks that never reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dsv4prof.errors import InputError, OutputError, UsageError
from dsv4prof.model.session import Outcome, RankCoordinates, RankRecord
from dsv4prof.recorder.atomic import atomic_path, write_atomic
from dsv4prof.recorder.sessions import assemble, create_session, find_session, list_sessions, open_session
from dsv4prof.recorder.sink import RankSink, check_writable, rank_name, write_record


def make(root: Path, name: str = "n", world: int = 1) -> Path:
    return create_session(root, name=name, world_size=world, command=["x"], settings={"tp": [2, "--tp"]})


def finish(folder: Path, rank: int, outcome: Outcome = Outcome.COMPLETE, reason: str | None = None) -> None:
    write_record(folder, RankRecord(coordinates=RankCoordinates(rank=rank), outcome=outcome, reason=reason))


def test_the_folder_is_named_and_its_manifest_readable_at_once(tmp_path: Path) -> None:
    folder = make(tmp_path / "a" / "b", name="my model/v 2")
    session = open_session(folder)
    assert folder.name.endswith(f"-my-model-v-2-{session.id}")
    assert folder.name[:9].rstrip("T").isdigit()
    assert session.settings == {"tp": [2, "--tp"]}
    assert session.outcome is Outcome.RECORDING
    assert session.versions["python"]
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]


def test_an_outcome_is_the_worst_ranks_with_every_reason(tmp_path: Path) -> None:
    folder = make(tmp_path, world=3)
    finish(folder, 0)
    finish(folder, 1, Outcome.INCOMPLETE, "was killed by SIGKILL")
    session = assemble(folder, workload={"tp": 3})
    assert session == open_session(folder)
    assert session.outcome is Outcome.INCOMPLETE
    assert session.reason == "rank 1: was killed by SIGKILL; rank 2: this rank never reported"
    assert [rank.outcome for rank in session.ranks] == [Outcome.COMPLETE, Outcome.INCOMPLETE, Outcome.MISSING]
    assert session.workload == {"tp": 3}


def test_a_rank_that_reports_after_the_manifest_counts(tmp_path: Path) -> None:
    folder = make(tmp_path, world=2)
    finish(folder, 0)
    assemble(folder)
    finish(folder, 1)
    assert open_session(folder).outcome is Outcome.COMPLETE
    assert open_session(folder).reason is None


def test_a_record_of_a_process_that_is_gone_was_never_finished(tmp_path: Path) -> None:
    import socket

    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    folder = make(tmp_path)
    for pid, expected in ((int(child.stdout), Outcome.INCOMPLETE), (os.getpid(), Outcome.RECORDING)):
        here = RankCoordinates(rank=0, host=socket.gethostname())
        write_record(folder, RankRecord(coordinates=here, outcome=Outcome.RECORDING, pid=pid))
        assert open_session(folder).outcome is expected


def test_sessions_are_found_by_id_prefix_path_and_latest(tmp_path: Path) -> None:
    first, second = make(tmp_path, "one"), make(tmp_path, "two")
    (tmp_path / "not-a-session").mkdir()
    identity = open_session(first).id
    assert {path for path, _ in list_sessions(tmp_path)} == {first, second}
    assert find_session(tmp_path, identity) == first
    assert find_session(tmp_path, first.name[:-4]) == first
    assert find_session(tmp_path / "nowhere", str(second)) == second
    assert find_session(tmp_path, "latest") in (first, second)
    with pytest.raises(InputError) as caught:
        find_session(tmp_path, "nothing")
    assert caught.value.hint
    with pytest.raises(UsageError, match="fits 2 sessions"):
        find_session(tmp_path, first.name[:4])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": "dsv4prof.session/1"}'])
def test_a_manifest_that_is_none_is_refused_and_hides_no_other(tmp_path: Path, content: bytes) -> None:
    broken, whole = make(tmp_path), make(tmp_path)
    (broken / "manifest.json").write_bytes(content)
    with pytest.raises(InputError, match=r"manifest\.json"):
        open_session(broken)
    assert [path for path, _ in list_sessions(tmp_path)] == [whole]


def test_a_manifest_of_another_schema_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path)
    later = msgspec.structs.replace(open_session(folder), schema="dsv4prof.session/9")
    (folder / "manifest.json").write_bytes(msgspec.json.encode(later))
    with pytest.raises(InputError, match="session/9"):
        open_session(folder)


def test_an_unwritable_root_is_refused_before_anything(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to"):
        make(tmp_path / "file" / "sessions")


def test_too_little_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="are free"):
        check_writable(tmp_path, need_bytes=1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_a_probe_that_finds_the_disk_full_goes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        write(self, b"")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="No space left"):
        check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    write_atomic(target, b"old")
    with pytest.raises(ZeroDivisionError), atomic_path(target) as part:
        part.write_bytes(b"half")
        raise ZeroDivisionError
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_names_carry_every_coordinate_that_the_rank_does_not_tell() -> None:
    assert rank_name(RankCoordinates(rank=1, tp=1)) == "rank1"
    assert rank_name(RankCoordinates(rank=5)) == "rank5"
    grid = [
        RankCoordinates(rank=rank, tp=rank % 2, dp=rank // 2 % 2, ep=rank // 4) for rank in range(8)
    ]
    names = [rank_name(each) for each in grid]
    assert names[5] == "rank5-tp1-dp0-ep1"
    assert len(set(names)) == 8


def test_what_a_rank_says_is_on_disk_at_once(tmp_path: Path) -> None:
    folder = make(tmp_path)
    sink = RankSink(folder, RankCoordinates(rank=0, world_size=1))
    sink.window("").update(first_step=4)
    assert open_session(folder).ranks[0].first_step == 4
    sink.window("").update(steps=2)
    sink.update(outcome=Outcome.COMPLETE)
    assert open_session(folder).outcome is Outcome.COMPLETE
    assert open_session(folder).ranks[0].first_step == 4


def test_reading_sessions_needs_no_torch() -> None:
    code = "import dsv4prof.recorder, sys; sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_recording_without_torch_says_what_to_install_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["torch"] = None
from dsv4prof import record
with record(root=sys.argv[1]): pass
"""
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert child.returncode == 1
    last = child.stderr.strip().splitlines()[-1]
    assert "MissingExtraError" in last
    assert "pip install 'dsv4prof[engine]'" in last
    assert list(tmp_path.iterdir()) == []
