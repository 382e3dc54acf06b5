"""How an attach may end: slow saves, servers that go, signals at every moment. No trace lost, no server taken down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4prof.errors import InputError, InterruptedRunError, LifetimeError, UsageError
from dsv4prof.model.session import EndedBy, Outcome
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import list_sessions
from dsv4prof.target.remote import recording, sglang
from dsv4prof.target.remote.attach import Attached, attach_sglang
from dsv4prof.target.remote.client import UrlClient
from dsv4prof.target.remote.facts import ask_facts
from dsv4prof.target.remote.interrupts import Interrupts, interruptible
from dsv4prof.target.remote.local import only_one
from dsv4prof.target.remote.spec import AttachSpec
from dsv4prof.target.remote.stopping import Stop, stop_bounded
from fake_server import FakeServer, recorded
from traces import document, write

# Mostly waiting for time to pass.
pytestmark = pytest.mark.slow


def attach(
    server: FakeServer, root: Path, *, plan: dict | None = None, said: list[str] | None = None, **spec
) -> Attached:
    given = {"patience": 0.7, "seconds": 0.2, **spec}
    wanted = AttachSpec(url=server.url, root=root, plan=RecordPlan(**{"active": 4, **(plan or {})}), **given)
    client = UrlClient(server.url)
    return attach_sglang(client, ask_facts(client), wanted, (said if said is not None else []).append)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second instead of the minutes that a save is given."""
    monkeypatch.setattr(recording, "SAVING_S", 0.5)
    monkeypatch.setattr(recording, "_LEAST_STOP_S", 0.5)


def test_a_save_that_takes_longer_than_the_patience_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    with FakeServer(saving_s=2.5) as server:
        attached = attach(server, tmp_path, plan={"active": None}, said=said)
        assert server.failed_saves == []
    assert attached.session.outcome is Outcome.COMPLETE
    assert "waiting 600 s at most" in said[-1]


def test_a_stop_without_an_answer_leaves_the_server_its_folder(tmp_path: Path, impatient: None) -> None:
    with FakeServer(saving_s=3.0) as server:
        with pytest.raises(InputError, match="is still saving: the trace will appear in") as ended:
            attach(server, tmp_path, plan={"active": None}, patience=0.4)
        assert "ran no step" not in ended.value.message
        ((folder, session),) = list_sessions(tmp_path)
        assert "still saving" in (session.reason or "")
        deadline = time.monotonic() + 10
        while server.recording or not list((folder / "server").glob("*.gz")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert server.failed_saves == []
    assert str(folder / "server") in ended.value.message


def test_a_start_without_an_answer_keeps_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "_START_TIMEOUT", 0.3)
    with FakeServer() as server:
        server.answers["/start_profile"] = server.answers["/stop_profile"] = lambda: time.sleep(2) or (200, b"")
        with pytest.raises(UsageError, match="its trace will appear in"):
            attach(server, tmp_path)
    assert (list_sessions(tmp_path)[0][0] / "server").is_dir()


def test_files_of_ranks_that_nobody_told_of_are_kept_and_named(tmp_path: Path) -> None:
    with FakeServer(ranks=("TP-0", "TP-0-EP-0", "TP-1", "TP-2")) as server:
        attached = attach(server, tmp_path)
    kept = sorted(path.name.partition("-TP")[2] for path in (attached.folder / "server").iterdir())
    # A duplicate is left as well: which of the two is right, nobody can tell.
    assert kept.pop(0) in ("-0-EP-0.trace.json.gz", "-0.trace.json.gz")
    assert kept == ["-1.trace.json.gz", "-2.trace.json.gz"]
    (note,) = [note for note in attached.notes if "taken for no rank's" in note]
    assert "-TP-1.trace.json.gz" in note
    assert attached.session.outcome is Outcome.COMPLETE


def test_a_stage_that_nobody_asked_for_leaves_nothing_behind(tmp_path: Path) -> None:
    with FakeServer() as server:
        attached = attach(server, tmp_path, plan={"active": 1, "stages": ("decode",)})
    assert not (attached.folder / "server").exists()


def test_the_other_stage_is_not_left_recording(tmp_path: Path) -> None:
    with FakeServer() as server:
        attached = attach(server, tmp_path, plan={"active": 9, "stages": ("prefill",)})
        assert not server.profiling
        server._step("EXTEND")
        assert not server.recording
    assert [window.name for window in attached.session.ranks[0].windows] == ["prefill"]
    assert not (attached.folder / "server").exists()
    assert attached.notes == []


def test_with_several_replies_an_empty_folder_stays(tmp_path: Path) -> None:
    with FakeServer(ranks=("TP-0-DP-0",), info={"dp_size": 2}) as server:
        attached = attach(server, tmp_path)
    assert (attached.folder / "server").is_dir()
    assert any("may still save there" in note for note in attached.notes)


def test_what_is_no_file_is_skipped(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    os.mkfifo(here / "some.trace.json.gz")
    real = FakeServer._save

    def save(self: FakeServer, suffix: str) -> None:
        names = [f"{self.armed['profile_id']}-{rank}.trace.json.gz" for rank in ("TP-1", "TP-2", "TP-3")]
        os.mkfifo(here / names[0])
        (here / names[1]).mkdir()
        (here / names[2]).symlink_to(names[2])
        real(self, suffix)

    with FakeServer(info={"tp_size": 4}) as server:
        server._save = lambda suffix: save(server, suffix)
        attached = attach(server, tmp_path / "s", output_dir=here)
    assert [record.outcome for record in attached.session.ranks] == [Outcome.COMPLETE, *[Outcome.MISSING] * 3]


@pytest.mark.parametrize("plan", [{"active": 400}, {"active": None}])
def test_a_server_that_goes_while_it_records_is_noticed_at_once(tmp_path: Path, plan: dict) -> None:
    with FakeServer() as server:
        threading.Timer(1.0, lambda: server.__exit__()).start()
        began = time.monotonic()
        with pytest.raises(InputError, match="the server is gone"):
            attach(server, tmp_path, plan=plan, seconds=60, patience=60, load="none")
        assert time.monotonic() - began < 12
        server.__enter__()


def test_what_a_server_saved_before_it_went_is_reported(tmp_path: Path) -> None:
    with FakeServer(ranks=("TP-0",), info={"tp_size": 2}) as server:
        threading.Timer(2.0, lambda: server.__exit__()).start()
        attached = attach(server, tmp_path, patience=60)
        server.__enter__()
    assert [record.outcome for record in attached.session.ranks] == [Outcome.COMPLETE, Outcome.MISSING]
    assert "the server is gone" in (attached.session.ranks[1].reason or "")


def test_one_server_has_one_lock_whatever_it_is_called() -> None:
    with FakeServer() as server, FakeServer() as other:
        port = server.url.rpartition(":")[2]
        with only_one(server.url):
            for name in ("localhost", "127.0.0.1", "LOCALHOST"):
                with pytest.raises(LifetimeError, match="already being profiled"), only_one(f"http://{name}:{port}"):
                    pass
            with only_one(other.url):
                pass


def test_the_loads_requests_end_with_the_recording(tmp_path: Path) -> None:
    with FakeServer(step_s=30.0, saving_s=0.5) as server:
        began = time.monotonic()
        with pytest.raises(InputError, match="nothing was recorded"):
            attach(server, tmp_path, plan={"active": None})
        sent = {body["rid"] for _, path, body in server.requests if path == "/generate"}
        ended = {body["rid"] for _, path, body in server.requests if path == "/abort_request"}
        assert sent
        assert ended == sent
        assert time.monotonic() - began < 20


def test_a_session_tells_what_was_asked_of_which_server(tmp_path: Path) -> None:
    with FakeServer(api_key="secret") as server:
        client = UrlClient(server.url, api_key="secret")
        spec = AttachSpec(
            url=server.url, root=tmp_path, plan=RecordPlan(active=1, stages=("prefill", "decode")), patience=0.7,
            api_key="secret",
        )  # fmt: skip
        attached = attach_sglang(client, ask_facts(client), spec, lambda _: None)
    told = {name: value for name, (value, _) in attached.session.settings.items()}
    assert told["url"] == server.url
    assert (told["steps"], told["by_stage"], told["load"]) == (1, True, "auto")
    assert told["server"] == "SGLang 0.5.23"
    assert "secret" not in (attached.folder / "manifest.json").read_text()


CHILD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from dsv4prof.cli.app import main

main()
"""


def child_of(server: FakeServer, root: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, "attach", server.url, *arguments, "--sessions-dir", str(root)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until(true, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_while_the_server_saves_keeps_what_it_saves(tmp_path: Path) -> None:
    with FakeServer(saving_s=2.0) as server:
        child = child_of(server, tmp_path, "--seconds", "0.5")
        wait_until(lambda: "/stop_profile" in server.paths())
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
    assert child.returncode == 130, errors
    ((folder, session),) = list_sessions(tmp_path)
    assert "the traces of 1 of 1 ranks are kept" in errors
    assert (folder / "rank0.trace.json.gz").is_file()
    # All of it had been recorded.
    assert session.outcome is Outcome.COMPLETE


def test_ctrl_c_twice_while_the_server_saves_leaves_it_its_folder(tmp_path: Path) -> None:
    with FakeServer(saving_s=6.0) as server:
        child = child_of(server, tmp_path, "--seconds", "0.5")
        wait_until(lambda: "/stop_profile" in server.paths())
        for _ in range(2):
            time.sleep(0.6)
            child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
        assert child.returncode == 130, errors
        assert "will appear in" in errors
        ((folder, _),) = list_sessions(tmp_path)
        wait_until(lambda: list((folder / "server").glob("*.gz")))
        assert server.failed_saves == []


def test_a_save_that_outlasts_the_patience_of_steps_still_ends_by_itself(tmp_path: Path) -> None:
    with FakeServer(saving_s=2.0) as server:
        attached = attach(server, tmp_path, patience=0.5)
    (window,) = attached.session.ranks[0].windows
    assert (window.steps, window.ended_by) == (4, EndedBy.MAX_STEPS)
    assert attached.notes == []


@pytest.fixture
def default_signals() -> Iterator[None]:
    """A test run in the background starts with some of them ignored, and they stay so."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_is_raised_once_and_then_counted(default_signals: None) -> None:
    with interruptible() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGINT)
        assert interrupts.count == 3
    with interruptible() as interrupts:
        interrupts.hold()
        signal.raise_signal(signal.SIGINT)
        assert interrupts.count == 1


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interrupts:
            signal.raise_signal(signal.SIGHUP)
        assert interrupts.count == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_broken_connection_is_no_server_that_is_gone() -> None:
    class Broken:
        everyone = True
        lingers = False

        def end(self, *, timeout: float) -> Stop:
            return Stop.GONE

    with FakeServer() as server:
        client = UrlClient(server.url)
        assert stop_bounded(Broken(), client, 1, Interrupts(), lambda _: None) is Stop.UNANSWERED
    assert stop_bounded(Broken(), client, 1, Interrupts(), lambda _: None) is Stop.GONE


def test_interrupted_before_anything_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4prof.api import attaching

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attaching, "ask_facts", interrupt)
    with FakeServer() as server, pytest.raises(InterruptedRunError, match="before anything was recorded"):
        attaching.attach(AttachSpec(url=server.url, root=tmp_path, plan=RecordPlan(active=1)))


def test_somebody_elses_snapshot_stays_where_it_is(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "1-TP-0-memory-1.pickle").write_bytes(b"x")
    write(here / "old-TP-0.trace.json.gz", document(recorded(["DECODE"])))
    with FakeServer() as server:
        attach(server, tmp_path / "s", output_dir=here)
    assert sorted(path.name for path in here.iterdir()) == ["1-TP-0-memory-1.pickle", "old-TP-0.trace.json.gz"]
