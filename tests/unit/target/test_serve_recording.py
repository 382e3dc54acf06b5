"""The recorder in a served engine: told by hooks, carried to every rank, and known to attach."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

pytest.importorskip("uvicorn")

from dsv4prof.errors import LifetimeError, UsageError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.control import ProfilerManager
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.hooks import ProfilingHooks
from dsv4prof.target.remote.client import UrlClient
from dsv4prof.target.remote.facts import ask_facts, requests_in_progress
from dsv4prof.target.remote.load import Load
from dsv4prof.target.server.ranks import OtherRanks
from dsv4prof.target.server.recording import Hearing, RankedManager, Recording, StepFollower
from dsv4prof.target.server.spec import ServeSpec
from dsv4prof.target.spec import RunSpec
from fake_backend import FakeBackend
from served import serving


@pytest.fixture(autouse=True)
def fake_profiler(monkeypatch):
    monkeypatch.setattr("dsv4prof.recorder.control.make_backend", lambda plan, **_: FakeBackend())
    monkeypatch.setattr("dsv4prof.recorder.control.preload_profiler", lambda: None)


class OtherRank:
    """A manager of another process, as far as messages reach it: what it was asked for, and before which step."""

    def __init__(self):
        self.asked, self.step = [], 0

    def start(self, plan, *, session):
        self.asked.append(("start", plan.active, session, self.step))

    def stop(self, *, wait_s):
        self.asked.append(("stop", wait_s, self.step))


class Engine:
    """Rank 0's thread, which steps and obeys; the other rank hears the same messages before the same steps."""

    def __init__(self, root):
        self.inbox, self.over = [], False
        me = RankCoordinates(rank=0, world_size=2)
        self.manager = ProfilerManager(name="s", root=root, coordinates=me)
        self.ranked = RankedManager(self.manager, self.inbox.append, root=root, name="s", world=2)
        self.other = OtherRank()
        self.hears = [Hearing(self.manager, self.ranked.answered), Hearing(self.other)]

    def live(self):
        follower = StepFollower(self.manager, ProfilingHooks())
        while not self.over:
            for message in [self.inbox.pop(0) for _ in range(len(self.inbox))]:
                for hearing in self.hears:
                    hearing.hear(message)
            follower.begin_step("decode")
            self.other.step += 1
            time.sleep(0.001)
            follower.after_step()
        follower.end()


@pytest.fixture
def engine(tmp_path):
    made = Engine(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(made.live)
        yield made
        made.over = True
        life.result(20)


def test_all_ranks_are_asked_before_the_same_step_and_for_one_session(engine):
    started = engine.ranked.start(RecordPlan(active=3))
    until = time.monotonic() + 10
    while engine.manager.status().last is None and time.monotonic() < until:
        time.sleep(0.01)
    last = engine.manager.status().last
    assert last.steps == 3 and last.session == started.session
    assert [each[:3] for each in engine.other.asked] == [("start", 3, last.session)]


def test_a_stop_reaches_all_ranks_and_a_second_start_is_refused(engine):
    engine.ranked.start(RecordPlan(active=None))
    with pytest.raises(LifetimeError, match="already under way"):
        engine.ranked.start(RecordPlan(active=None))
    time.sleep(0.05)
    result = engine.ranked.stop(wait_s=10)
    assert result.ended_by == "stop" and engine.manager.wait(10)
    (_, _, _, began), (stopped, wait_s, ended) = engine.other.asked
    assert (stopped, wait_s) == ("stop", 0) and result.steps == ended - began > 0
    with pytest.raises(LifetimeError, match="not recording"):
        engine.ranked.stop(wait_s=1)


def test_a_start_that_cannot_be_is_told_to_the_client(engine, tmp_path):
    with pytest.raises((LifetimeError, UsageError)):
        engine.ranked.start(RecordPlan(active=1), name="x" * 300)
    status, answer = Recording(engine.ranked, RecordPlan(active=None)).answer("POST", "/start_profile", b'{"nope": 1}')
    assert status == 400 and "unknown field 'nope'" in answer["message"]
    assert msgspec.json.encode(answer)


def test_attach_knows_our_server_and_gives_it_work(tmp_path):
    manager = ProfilerManager(name="s", root=tmp_path)
    with serving(profile=Recording(manager, RecordPlan(active=None))) as server:
        client = UrlClient(server.url)
        facts = ask_facts(client)
        assert (facts.kind, facts.model, facts.tp, facts.accept_length) == ("dsv4prof", "tiny", 1, 1.5)
        assert "tiny" in facts.words() and requests_in_progress(client, facts.kind) == 0
        load = Load(client, facts)
        load.start()
        until = time.monotonic() + 10
        while load.served < 3 and time.monotonic() < until:
            time.sleep(0.01)
        load.halt()
        load.join(wait_s=5)
        assert load.served >= 3 and load.refusal is None
    manager.close()


def test_a_server_has_one_replica():
    with pytest.raises(UsageError, match="one replica"):
        ServeSpec(engine=RunSpec(tp=1, dp=2))


def test_no_session_of_a_server_holds_its_key(monkeypatch, tmp_path):
    words = ["dsv4prof", "serve", "--api-key", "hush", "--port", "1"]
    monkeypatch.setattr("sys.argv", [*words, "--admin-api-key=hush"])
    alone = ProfilerManager(name="s", root=tmp_path)
    ranked = RankedManager(alone, lambda data: None, root=tmp_path / "ranked", name="s", world=2)
    monkeypatch.setattr("dsv4prof.target.server.recording._ANSWER_S", 0.01)
    with pytest.raises(LifetimeError):
        ranked.start()
    alone.start()
    alone.stop(wait_s=5)
    manifests = [path.read_text() for path in tmp_path.rglob("manifest.json")]
    assert len(manifests) == 2 and not any("hush" in text for text in manifests)
    assert all(msgspec.json.decode(text)["command"] == [*words[:3], "...", *words[4:], "--admin-api-key=..."]
               for text in manifests)  # fmt: skip


def test_a_rank_that_ends_is_told_soon(monkeypatch):
    monkeypatch.setattr("dsv4prof.target.server.ranks._LOOK_S", 0.01)
    others, told = OtherRanks(), []
    others.started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
    with others.watched(told.append):
        time.sleep(0.05)
        assert not told
        others.started[0].kill()
        end = time.monotonic() + 5
        while not told and time.monotonic() < end:
            time.sleep(0.01)
    assert told == ["rank 1 ended with status -9"]
