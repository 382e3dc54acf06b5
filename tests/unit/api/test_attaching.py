"""The report of an attach: what was attached to, which ranks, and the exit status that follows."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from child import dsv4prof
from dsv4prof.api.attaching import attach
from dsv4prof.errors import InterruptedRunError, LifetimeError, UsageError
from dsv4prof.model.report import Report
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import list_sessions, open_session
from dsv4prof.report import render
from dsv4prof.target.remote.local import only_one
from dsv4prof.target.remote.spec import AttachSpec
from fake_server import FakeServer

TWO = {"ranks": ("TP-0-DP-0", "TP-0-DP-1"), "info": {"dp_size": 2}}


def report_of(server: FakeServer, root: Path, *, fail_on: str = "never", **plan) -> Report:
    spec = AttachSpec(url=server.url, root=root, patience=0.7, plan=RecordPlan(**{"active": 6, **plan}))
    return attach(spec, fail_on=fail_on)


def test_the_report_begins_with_the_server_and_ends_with_a_command(tmp_path: Path) -> None:
    with FakeServer(**TWO) as server:
        report = report_of(server, tmp_path)
        lines = render(report, "text").splitlines()
        assert lines[0] == f"✓ {server.url}: SGLang 0.5.23, tiny on cpu, TP 1, DP 2, no speculative decoding"
    assert "2 of 2 ranks, 6 steps" in lines[1]
    assert "ended by max_steps" in lines[1]
    assert "24 slices, 2 ranks" in lines[2]
    assert lines[-1] == f"Next: dsv4prof analyze {report.provenance.session}"
    assert report.verdict.exit_code == 0
    assert set(report.data["phases"]) == {"prefill", "decode", "idle"}
    folder = Path(report.data["session"]["path"])
    assert open_session(folder).merged == "merged.json.gz"
    assert (folder / "merged.json.gz").is_file()


def test_a_missing_rank_is_exit_status_1_and_named(tmp_path: Path) -> None:
    with FakeServer(**TWO, silent=("TP-0-DP-1",)) as server:
        report = report_of(server, tmp_path)
    assert report.verdict.exit_code == 1
    assert "rank 1" in report.verdict.summary
    assert report.data["missing_ranks"] == [1]
    assert [finding.code for finding in report.findings if finding.evidence.get("rank") == 1] == ["DSV504"]


def test_half_a_file_is_exit_status_1(tmp_path: Path) -> None:
    with FakeServer(half=("TP-0",)) as server:
        report = report_of(server, tmp_path)
    assert report.verdict.exit_code == 1
    assert "ends early" in report.verdict.summary


@pytest.mark.parametrize("content", [b"", b"no gzip at all"])
def test_a_rank_file_that_cannot_be_read_is_exit_status_1_and_named(tmp_path: Path, content: bytes) -> None:
    def spoil(server: FakeServer, rank: str) -> None:
        save = server._save

        def saved(suffix: str) -> None:
            folder, profile_id = Path(server.armed["output_dir"]), server.armed["profile_id"]
            save(suffix)
            (folder / f"{profile_id}-{rank}.trace.json.gz").write_bytes(content)

        server._save = saved

    with FakeServer(**TWO) as server:
        spoil(server, "TP-0-DP-1")
        report = report_of(server, tmp_path)
    assert report.verdict.exit_code == 1
    assert "rank 1" in report.verdict.summary
    assert [rank["rank"] for rank in report.data["ranks"]] == [0]
    with FakeServer() as server:
        spoil(server, "TP-0")
        alone = report_of(server, tmp_path)
    assert alone.verdict.exit_code == 1
    assert any("rank0.trace.json.gz" in finding.message for finding in alone.findings)
    assert render(alone, "text")
    assert alone.next_command == f"dsv4prof sessions show {alone.provenance.session}"


def test_interrupted_while_merging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4prof.api import attaching

    monkeypatch.setattr(attaching, "merge_source", lambda *_: signal.raise_signal(signal.SIGTERM))
    with FakeServer() as server, pytest.raises(InterruptedRunError, match="while merging") as ended:
        report_of(server, tmp_path)
    assert (ended.value.exit_code, ended.value.hint) == (130, f"dsv4prof merge {list_sessions(tmp_path)[0][1].id}")


def test_stages_are_merged_each_by_itself(tmp_path: Path) -> None:
    with FakeServer(**TWO) as server:
        report = report_of(server, tmp_path, active=1, stages=("prefill", "decode"))
    assert report.verdict.exit_code == 0
    assert list(report.data["windows"]) == ["prefill", "decode"]
    folder = Path(report.data["session"]["path"])
    assert {path.name for path in folder.glob("merged*")} == {"merged.prefill.json.gz", "merged.decode.json.gz"}
    assert report.data["merged"].endswith("merged.decode.json.gz")
    assert report.next_command == f"dsv4prof analyze {report.data['session']['id']} --window decode"


def test_a_wrong_severity_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    with FakeServer() as server:
        with pytest.raises(UsageError, match="fail_on"):
            report_of(server, tmp_path, fail_on="loud")
        assert server.requests == []


def test_the_second_of_two_is_refused_before_it_asks_the_server_anything(tmp_path: Path) -> None:
    with FakeServer() as server, only_one(server.url):
        with pytest.raises(LifetimeError, match="already being profiled"):
            report_of(server, tmp_path)
        assert server.requests == []


def test_the_command_line_from_end_to_end(tmp_path: Path) -> None:
    with FakeServer(api_key="secret") as server:
        fine = dsv4prof(
            "attach", server.url, "--steps", "4", "--api-key", "secret", "--format", "json", cwd=tmp_path
        )
        refused = dsv4prof("attach", server.url, "--steps", "4", cwd=tmp_path)
    assert fine.status == 0, fine.stderr
    assert fine.json["kind"] == "attach"
    assert fine.json["server"]["version"] == "0.5.23"
    manifest = Path(fine.json["session"]["path"], "manifest.json").read_text()
    assert "secret" not in manifest
    assert json.loads(manifest)["plan"]["active"] == 4
    assert refused.status == 2
    assert "error: " in refused.stderr
    assert "--api-key" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [["nowhere:1"], ["127.0.0.1:1", "--steps", "0"], ["127.0.0.1:1", "--by-stage"], ["127.0.0.1:1", "--seconds", "0"],
     ["127.0.0.1:1", "--activities", "nvtx"], ["127.0.0.1:1", "--stages", "lunch", "--steps", "2"], ["ftp://x"],
     ["127.0.0.1:1", "--output-dir", ""], ["127.0.0.1:1", "--output-dir", "x:"], ["127.0.0.1:1", "--stages", ","],
     ["127.0.0.1:1", "--steps", "99999999"], ["127.0.0.1:1", "--api-key", ""]],
)  # fmt: skip
def test_mistakes_are_two_lines_and_exit_status_2(tmp_path: Path, arguments: list[str]) -> None:
    child = dsv4prof("attach", *arguments, cwd=tmp_path)
    assert (child.status, child.stdout) == (2, "")
    error, hint = child.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [(["--by-stage"], "--by-stage needs --steps", "--by-stage --steps 8"),
     (["--stages", "draft", "--steps", "2"], "unknown stage 'draft'", "prefill, decode or prefill,decode"),
     (["--output-dir", ":x"], "--output-dir: ", "HERE:THERE")],
)  # fmt: skip
def test_mistakes_are_told_in_the_options_words(tmp_path: Path, arguments: list[str], error: str, hint: str) -> None:
    child = dsv4prof("attach", "127.0.0.1:1", *arguments, cwd=tmp_path)
    assert error in child.stderr
    assert hint in child.stderr


def test_a_folder_that_cannot_be_written_names_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with FakeServer() as server:
        child = dsv4prof("attach", server.url, "--steps", "2", "--output-dir", "file", cwd=tmp_path)
    assert child.status == 2
    assert child.stderr.splitlines()[-2].startswith("error: --output-dir: cannot write to")


PROGRAM = """
import time, torch
from dsv4prof.recorder.control import ProfilerManager
from dsv4prof.recorder.control_http import ControlServer
torch.set_num_threads(1)
with ProfilerManager(name="program") as manager, ControlServer(manager) as http:
    print(http.url, flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        manager.begin_step("decode")
        torch.ones(8, 8) @ torch.ones(8, 8)
        time.sleep(0.01)
        manager.end_step()
"""


def test_a_program_with_our_own_manager_keeps_its_session_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the engine extra is not installed")
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        url = program.stdout.readline().strip()
        child = dsv4prof("attach", url, "--steps", "5", "--format", "json", cwd=tmp_path)
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    assert child.status == 0, child.stderr
    assert child.json["server"]["kind"] == "dsv4prof"
    assert open_session(child.json["session"]["path"]).ranks[0].steps == 5
    assert len(list((tmp_path / "traces" / "local").iterdir())) == 1


def test_attaching_needs_no_torch(tmp_path: Path) -> None:
    with FakeServer() as server:
        code = (
            "import sys\nfrom dsv4prof.cli import console\nfrom dsv4prof.cli.app import app\n"
            f"code = console.guarded(lambda: app(['attach', {server.url!r}, '--steps', '4'], standalone_mode=False))\n"
            "sys.exit(code or 10 * ('torch' in sys.modules))"
        )
        child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
