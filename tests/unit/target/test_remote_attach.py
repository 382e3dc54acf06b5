"""Attaching to a server that behaves as SGLang does, also when it misbehaves: nothing lost, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4prof.errors import InputError, InterruptedRunError, LifetimeError, OutputError, UsageError
from dsv4prof.model.session import EndedBy, Outcome
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import list_sessions
from dsv4prof.target.remote import attach as attaching
from dsv4prof.target.remote.attach import Attached, attach_sglang
from dsv4prof.target.remote.client import UrlClient
from dsv4prof.target.remote.facts import ask_facts
from dsv4prof.target.remote.local import LocalServer, only_one
from dsv4prof.target.remote.others import attach_folder, attach_own
from dsv4prof.target.remote.sglang import SglangProfiler
from dsv4prof.target.remote.spec import AttachSpec
from dsv4prof.target.remote.stopping import Stop
from fake_server import FakeServer, recorded
from traces import document, write

TWO = {"ranks": ("TP-0-DP-0", "TP-0-DP-1"), "info": {"dp_size": 2}}


def attach(server: FakeServer, root: Path, *, plan: dict | None = None, how=attach_sglang, **spec) -> Attached:
    given = {"patience": 0.7, "seconds": 0.2, **spec}
    wanted = AttachSpec(url=server.url, root=root, plan=RecordPlan(**{"active": 4, **(plan or {})}), **given)
    client = UrlClient(server.url)
    return how(client, ask_facts(client), wanted, lambda _: None)


def when_armed(server: FakeServer, act: Callable[[], object]) -> None:
    def run() -> None:
        deadline = time.monotonic() + 20
        while server.armed is None and time.monotonic() < deadline:
            time.sleep(0.01)
        act()

    threading.Thread(target=run, daemon=True).start()


def test_every_rank_comes_home_under_its_own_name(tmp_path: Path) -> None:
    with FakeServer(**TWO) as server:
        attached = attach(server, tmp_path)
        assert not server.profiling
        # The server had ended it: a stop could have hit somebody else's recording.
        assert server.paths("/stop") == []
    assert attached.session.outcome is Outcome.COMPLETE
    assert sorted(path.name for path in attached.folder.iterdir()) == [
        "manifest.json", "rank0.json", "rank0.trace.json.gz", "rank1.json", "rank1.trace.json.gz",
    ]  # fmt: skip
    first, second = attached.session.ranks
    assert (first.coordinates.dp, second.coordinates.dp) == (0, 1)
    assert [window.ended_by for window in first.windows] == [EndedBy.MAX_STEPS]
    assert (first.steps, first.windows[0].events) == (4, 8)
    assert attached.session.workload["version"] == "0.5.23"
    assert attached.session.workload["own_requests"] > 0
    assert attached.session.versions == {"sglang": "0.5.23"}


def test_seconds_end_with_a_stop(tmp_path: Path) -> None:
    with FakeServer() as server:
        attached = attach(server, tmp_path, plan={"active": None})
        assert not server.profiling
        assert server.paths("/stop") == ["/stop_profile"]
    assert attached.session.ranks[0].windows[0].ended_by is EndedBy.STOP


def test_stages_are_windows_of_their_own(tmp_path: Path) -> None:
    with FakeServer() as server:
        attached = attach(server, tmp_path, plan={"active": 1, "stages": ("prefill", "decode")})
        assert not server.recording
    (record,) = attached.session.ranks
    assert [(window.name, window.trace) for window in record.windows] == [
        ("prefill", "rank0.prefill.trace.json.gz"), ("decode", "rank0.decode.trace.json.gz"),
    ]  # fmt: skip
    assert record.outcome is Outcome.COMPLETE


def test_a_stage_that_ended_early_says_what_ended_it(tmp_path: Path) -> None:
    with FakeServer() as server:
        attached = attach(server, tmp_path, plan={"active": 9, "stages": ("prefill",)})
    assert attached.session.ranks[0].windows[0].ended_by is EndedBy.STAGE_CHANGE


def test_a_stage_that_nobody_asked_for_is_left_out(tmp_path: Path) -> None:
    with FakeServer() as server:
        attached = attach(server, tmp_path, plan={"active": 1, "stages": ("decode",)})
    assert [window.name for window in attached.session.ranks[0].windows] == ["decode"]


def test_speculative_decoding_by_stage_is_warned_about(tmp_path: Path) -> None:
    with FakeServer(info={"speculative_algorithm": "EAGLE"}) as server:
        attached = attach(server, tmp_path, plan={"active": 1, "stages": ("prefill",)})
    assert "counts the verify steps" in attached.notes[0]


def test_a_missing_rank_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    with FakeServer(**TWO, silent=("TP-0-DP-1",)) as server:
        attached = attach(server, tmp_path)
        assert not server.profiling
    assert [record.outcome for record in attached.session.ranks] == [Outcome.COMPLETE, Outcome.MISSING]
    assert "rank 1: no trace: it ran no step" in (attached.session.reason or "")


def test_half_a_file_is_kept_and_called_half(tmp_path: Path) -> None:
    with FakeServer(**TWO, half=("TP-0-DP-0",)) as server:
        attached = attach(server, tmp_path)
    assert attached.session.ranks[0].outcome is Outcome.INCOMPLETE
    assert "ends early" in (attached.session.ranks[0].reason or "")
    assert attached.session.ranks[1].outcome is Outcome.COMPLETE


@pytest.mark.parametrize("active", [4, None])
def test_an_idle_server_that_is_left_alone_records_nothing_and_is_disarmed(tmp_path: Path, active: int | None) -> None:
    with FakeServer() as server:
        with pytest.raises(InputError, match="ran no step"):
            attach(server, tmp_path, plan={"active": active}, load="none")
        assert server.paths("/generate") == []
        assert not server.profiling
        server._step("DECODE")
        assert not server.recording


def test_a_busy_server_gets_no_load_of_ours(tmp_path: Path) -> None:
    with FakeServer(busy=3) as server:
        when_armed(server, lambda: [server._step("DECODE") for _ in range(4)])
        attached = attach(server, tmp_path)
        assert server.paths("/generate") == []
    assert attached.session.outcome is Outcome.COMPLETE


def test_seconds_begin_with_the_first_request(tmp_path: Path) -> None:
    with FakeServer() as server:

        def work() -> None:
            server.busy = 1
            for _ in range(40):
                server._step("DECODE")
                time.sleep(0.02)

        threading.Timer(0.6, work).start()
        attached = attach(server, tmp_path, plan={"active": None}, load="none", patience=5)
    assert attached.session.ranks[0].steps > 5


def test_fewer_steps_than_asked_are_kept_and_said(tmp_path: Path) -> None:
    with FakeServer(busy=1) as server:
        when_armed(server, lambda: server._step("DECODE"))
        attached = attach(server, tmp_path)
    assert attached.session.ranks[0].windows[0].ended_by is EndedBy.STOP
    assert any("4 steps had not passed everywhere" in note for note in attached.notes)


def test_a_refused_load_is_said(tmp_path: Path) -> None:
    with FakeServer(answers={"/generate": (400, {"error": "no"})}) as server, pytest.raises(InputError) as nothing:
        attach(server, tmp_path)
    assert "the load was refused: HTTP 400" in nothing.value.message


def test_a_server_that_is_profiling_already_is_left_alone(tmp_path: Path) -> None:
    with FakeServer() as server:
        theirs = {"output_dir": str(tmp_path / "theirs"), "profile_id": "t"}
        UrlClient(server.url).post("/start_profile", theirs, timeout=5)
        server._step("DECODE")
        with pytest.raises(LifetimeError, match="most likely doing so already"):
            attach(server, tmp_path / "ours")
        assert server.recording
        assert server.armed["profile_id"] == "t"
        assert server.paths("/stop") == []
    assert list_sessions(tmp_path / "ours") == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [((404, {}), "has no /start_profile"), ((405, {}), "has no /start_profile"), ((401, {}), "without the right key"),
     ((422, {"detail": "x"}), "does not understand")],
)  # fmt: skip
def test_refusals_of_the_start_are_sentences(tmp_path: Path, answer, why: str) -> None:
    with FakeServer(answers={"/start_profile": answer}) as server, pytest.raises(UsageError, match=why) as refused:
        attach(server, tmp_path)
    assert refused.value.hint
    assert list_sessions(tmp_path) == []


def test_a_start_without_an_answer_is_stopped_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4prof.target.remote import sglang

    monkeypatch.setattr(sglang, "_START_TIMEOUT", 0.3)
    with FakeServer() as server:
        server.answers["/start_profile"] = lambda: time.sleep(1) or (200, b"")
        with pytest.raises(UsageError, match="did not answer"):
            attach(server, tmp_path)
        assert "/stop_profile" in server.paths()


def test_a_stop_that_fails_is_no_crash_of_ours(tmp_path: Path) -> None:
    with FakeServer() as server:
        server.answers["/v1/loads"] = (200, {"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 0}]})
        server.answers["/stop_profile"] = lambda: time.sleep(0.1) or (500, b"")
        with pytest.raises(InputError, match="nothing was recorded"):
            attach(server, tmp_path)


def test_files_that_are_saved_where_nobody_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4prof.target.remote import recording

    monkeypatch.setattr(recording, "_LAG_S", 0.3)
    here, there = tmp_path / "here", tmp_path / "container"
    with FakeServer() as server, pytest.raises(InputError, match=r"saved its traces, .*container") as refused:
        attach(server, tmp_path / "s", plan={"active": None}, output_dir=here, server_dir=str(there))
    assert "--output-dir" in (refused.value.hint or "")


def test_a_shared_folder_under_two_names(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "there").symlink_to(here)
    write(here / "old-TP-0.trace.json.gz", document(recorded(["DECODE"])))
    with FakeServer() as server:
        attached = attach(server, tmp_path / "s", output_dir=here, server_dir=str(tmp_path / "there"))
        starts = [body for _, path, body in server.requests if path == "/start_profile"]
    assert starts[0]["output_dir"] == str(tmp_path / "there")
    assert attached.session.outcome is Outcome.COMPLETE
    assert [path.name for path in here.iterdir()] == ["old-TP-0.trace.json.gz"]


def test_another_host_needs_a_folder_that_both_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "is_here", lambda url: False)
    with FakeServer() as server:
        with pytest.raises(UsageError, match="another host"):
            attach(server, tmp_path)
        assert server.paths("/start") == []


@pytest.mark.parametrize(
    ("here", "error", "why"),
    [(LocalServer(1, 0, True), UsageError, "records by stage only"),
     (LocalServer(1, 4242, False), OutputError, "may not write")],
)  # fmt: skip
def test_what_would_end_a_sglang_server_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: LocalServer, error: type, why: str
) -> None:
    monkeypatch.setattr(attaching, "local_server", lambda url: here)
    with FakeServer() as server:
        with pytest.raises(error, match=why):
            attach(server, tmp_path)
        assert server.paths("/start") == []
    assert list_sessions(tmp_path) == []


def test_a_manager_that_knows_no_stop_is_never_told_to() -> None:
    with FakeServer() as server:
        assert SglangProfiler(UrlClient(server.url), staged_only=True).end(timeout=1) is Stop.NOTHING
        assert server.requests == []


def test_two_attaches_at_once_are_one_too_many() -> None:
    with only_one("http://127.0.0.1:1"):
        with pytest.raises(LifetimeError, match=f"process {os.getpid()}"), only_one("http://127.0.0.1:1"):
            pass
        with only_one("http://127.0.0.1:2"):
            pass
    with only_one("http://127.0.0.1:1"):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_sigterm_stop_the_servers_profiler(tmp_path: Path, number: signal.Signals) -> None:
    with FakeServer() as server:
        child = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
             "from dsv4prof.cli.app import main; main()",
             "attach", server.url, "--seconds", "60", "--sessions-dir", str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while not server.recording and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(number)
        _, errors = child.communicate(timeout=30)
        assert child.returncode == 130, errors
        assert not server.profiling
    ((folder, session),) = list_sessions(tmp_path)
    assert f"hint: dsv4prof merge {session.id}" in errors
    assert session.outcome is Outcome.INCOMPLETE
    assert "interrupted before its end" in (session.reason or "")
    assert (folder / "rank0.trace.json.gz").is_file()


def test_interrupted_with_nothing_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4prof.target.remote import recording

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "_start_load", interrupt)
    with FakeServer() as server:
        with pytest.raises(InterruptedRunError, match="nothing was recorded"):
            attach(server, tmp_path)
        assert not server.profiling


def test_a_server_with_a_folder_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "theirs"
    source.mkdir()
    write(source / "dp0_pp0_tp0_rank0.1.pt.trace.json.gz", document(recorded(["DECODE"])))

    def save():
        for rank in (0, 1):
            write(source / f"dp0_pp0_tp{rank}_rank{rank}.2.pt.trace.json.gz", document(recorded(["DECODE"])))
        return 200, b""

    answers = {"/server_info": (404, b""), "/version": (200, {"version": "0.13"}), "/stop_profile": save,
               "/start_profile": (200, b""), "/metrics": (200, b'vllm:num_requests_running{a="b"} 1.0\n')}  # fmt: skip
    with FakeServer(answers=answers) as server:
        with pytest.raises(UsageError, match="decides itself"):
            attach(server, tmp_path / "s", how=attach_folder, plan={"active": None})
        attached = attach(server, tmp_path / "s", how=attach_folder, plan={"active": None}, output_dir=source)
    assert attached.facts.name == "vLLM 0.13"
    assert [record.trace for record in attached.session.ranks] == [
        "rank0-tp0-dp0-pp0.trace.json.gz", "rank1-tp1-dp0-pp0.trace.json.gz",
    ]  # fmt: skip
    assert [path.name for path in source.iterdir()] == ["dp0_pp0_tp0_rank0.1.pt.trace.json.gz"]


def test_files_that_do_not_tell_their_rank_are_not_guessed(tmp_path: Path) -> None:
    source = tmp_path / "theirs"
    source.mkdir()

    def save():
        for name in ("host_7.1.pt.trace.json.gz", "host_8.1.pt.trace.json.gz"):
            write(source / name, document(recorded(["DECODE"])))
        return 200, b""

    answers = {"/server_info": (404, b""), "/start_profile": (200, b""), "/stop_profile": save}
    with FakeServer(answers=answers) as server, pytest.raises(InputError, match="which rank"):
        attach(server, tmp_path / "s", how=attach_folder, plan={"active": None}, output_dir=source, load="none")


def test_our_own_manager_makes_the_session_itself(tmp_path: Path) -> None:
    from dsv4prof.recorder.sessions import create_session

    with FakeServer() as own:
        made = attach(own, tmp_path / "made").folder
    folder = create_session(tmp_path / "s", name="x", world_size=1)
    for path in made.glob("rank0*"):
        path.rename(folder / path.name)
    states = iter(["recording", "idle"])

    def status():
        return 200, {"server": "dsv4prof", "state": next(states, "idle"), "last": {"session": folder.name}}

    answers = {"/profile_status": status, "/stop_profile": (409, {"message": "not recording"})}
    with FakeServer(answers=answers) as server:
        attached = attach(server, tmp_path / "s", how=attach_own)
        started = next(body for _, path, body in server.requests if path == "/start_profile")
    assert attached.folder == folder.absolute()
    assert started["output_dir"] == str((tmp_path / "s").absolute())
    assert attached.session.outcome is Outcome.COMPLETE
    assert list_sessions(tmp_path / "s")[0][1].workload["kind"] == "dsv4prof"
