"""Which ranks a server has, what their files are called, and when a file is whole."""

from __future__ import annotations

import gzip
import threading
import time
from pathlib import Path

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.remote.client import UrlClient
from dsv4prof.target.remote.collect import Collector, examine
from dsv4prof.target.remote.expected import NamedFile, expected_ranks, read_name
from dsv4prof.target.remote.facts import ServerFacts, ask_facts, requests_in_progress
from dsv4prof.target.remote.spec import AttachSpec, sglang_body
from fake_server import FakeServer, recorded
from traces import document, write


def facts(**sizes) -> ServerFacts:
    return ServerFacts(kind="sglang", **sizes)


def spec(**plan) -> AttachSpec:
    return AttachSpec(url="x", plan=RecordPlan(**{"active": 3, **plan}))


@pytest.mark.parametrize(
    ("server", "name", "rank", "window"),
    [
        (facts(), "id-TP-0.trace.json.gz", 0, ""),
        (facts(tp=4), "id-TP-3.trace.json.gz", 3, ""),
        (facts(dp=2), "id-TP-0-DP-1.trace.json.gz", 1, ""),
        (facts(tp=2, dp=2), "id-TP-1-DP-1.trace.json.gz", 3, ""),
        (facts(tp=4, dp=2, dp_attention=True), "id-TP-2-DP-1.trace.json.gz", 2, ""),
        (facts(tp=4, pp=2), "id-TP-1-PP-1.trace.json.gz", 5, ""),
        (facts(tp=2, dp=3, pp=2), "id-TP-1-DP-2-PP-0.trace.json.gz", 9, ""),
        (facts(tp=8, ep=8), "id-TP-5-EP-5.trace.json.gz", 5, ""),
        (facts(), "id-TP-0-EXTEND.trace.json.gz", 0, "prefill"),
        (facts(dp=2), "id-TP-0-DP-1-DECODE.trace.json.gz", 1, "decode"),
        (facts(), "id-TP-0-prefill.trace.json.gz", 0, "prefill"),
    ],
)
def test_a_name_tells_rank_and_window(server: ServerFacts, name: str, rank: int, window: str) -> None:
    found = read_name(name, "id", server)
    assert found is not None
    assert (found.coordinates.rank, found.window) == (rank, window)
    assert rank in {expected.rank for expected in expected_ranks(server)}


@pytest.mark.parametrize(
    "name",
    ["other-TP-0.trace.json.gz", "id2-TP-0.trace.json.gz", "id-TP-0.trace.json.gz.tmp", "id-TP-7.trace.json.gz",
     "id-TP-0-DP-1.trace.json.gz", "merged-id.trace.json.gz", "manifest.json"],
)  # fmt: skip
def test_other_files_are_not_of_this_recording(name: str) -> None:
    assert read_name(name, "id", facts()) is None


@pytest.mark.parametrize(
    ("server", "count"),
    [(facts(tp=2, dp=3, pp=2), 12), (facts(tp=8, dp=4, dp_attention=True), 8), (facts(tp=8, ep=8), 8)],
)
def test_every_rank_is_expected_once(server: ServerFacts, count: int) -> None:
    ranks = expected_ranks(server)
    assert [rank.rank for rank in ranks] == list(range(count))
    assert {rank.world_size for rank in ranks} == {count}


def test_a_plain_start_always_names_a_step() -> None:
    # Without one SGLang lets a second start destroy the first recording.
    body = sglang_body(spec(), facts(), "/out", "id")
    assert (body["start_step"], body["num_steps"], body["activities"]) == (1, 3, ["CPU", "GPU"])
    assert sglang_body(spec(start_step=90), facts(), "/out", "id")["start_step"] == 90


def test_seconds_are_bounded_in_steps_for_a_client_that_dies() -> None:
    assert 100 <= sglang_body(spec(active=None), facts(), "/out", "id")["num_steps"] < 10_000


def test_by_stage_always_has_a_number_of_steps() -> None:
    body = sglang_body(spec(stages=("prefill", "decode")), facts(), "/out", "id")
    assert body["profile_by_stage"] is True
    assert body["num_steps"] == 3
    assert "start_step" not in body
    with pytest.raises(UsageError, match="number of steps"):
        spec(stages=("prefill",), active=None)


@pytest.mark.parametrize(
    ("plan", "server", "why"),
    [
        ({"activities": "gpu"}, facts(device="cpu"), "runs on its CPU"),
        ({"activities": "cpu+mem"}, facts(device="cpu"), "runs on its CPU"),
        ({"activities": "cpu+rpd"}, facts(), "'rpd'"),
        ({"stages": ("draft",)}, facts(), "no stage draft"),
    ],
)
def test_what_sglang_cannot_record_is_refused(plan: dict, server: ServerFacts, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sglang_body(spec(**plan), server, "/out", "id")


@pytest.mark.parametrize(
    "wrong",
    [{"seconds": 0}, {"seconds": float("nan")}, {"patience": -1}, {"load": "some"}, {"seconds": 86401},
     {"plan": RecordPlan(active=10_000_001)}, {"plan": RecordPlan(start_step=10**13)}],
)  # fmt: skip
def test_an_impossible_request_is_refused_when_made(wrong: dict) -> None:
    with pytest.raises(UsageError):
        AttachSpec(**{"url": "x", "plan": RecordPlan(), **wrong})


def test_facts_of_a_speculative_server() -> None:
    info = {
        "tp_size": 4, "dp_size": 2, "enable_dp_attention": True, "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 3, "speculative_num_draft_tokens": 4,
        "internal_states": [{"avg_spec_accept_length": 2.5}],
    }  # fmt: skip
    with FakeServer(info=info) as server:
        told = ask_facts(UrlClient(server.url))
    assert told.words() == (
        "SGLang 0.5.23, tiny on cpu, TP 4, DP 2, DP attention, EAGLE with 4 draft tokens, "
        "accept length 2.50 since its start"
    )
    assert told.speculative == {"algorithm": "EAGLE", "num_steps": 3, "num_draft_tokens": 4}


def test_sizes_that_make_no_sense_count_as_one() -> None:
    with FakeServer(info={"tp_size": "8", "dp_size": -1, "pp_size": True, "ep_size": None}) as server:
        assert set(ask_facts(UrlClient(server.url)).sizes.values()) == {1}


def test_requests_in_progress_by_whatever_tells() -> None:
    metrics = b'# HELP x\nvllm:num_requests_running{m="a"} 2.0\nvllm:num_requests_waiting{m="a"} 1.0\n'
    old = [{"dp_rank": 0, "num_reqs": 3, "num_waiting_reqs": 1}]
    answers = {"/v1/loads": (404, b""), "/get_load": (200, old), "/metrics": (200, metrics)}
    with FakeServer(busy=4) as new, FakeServer(answers=answers) as other:
        assert requests_in_progress(UrlClient(new.url), "sglang") == 4
        assert requests_in_progress(UrlClient(other.url), "sglang") == 3
        assert requests_in_progress(UrlClient(other.url), "vllm") == 3
        assert requests_in_progress(UrlClient(new.url), "vllm") is None


def named(name: str) -> NamedFile | None:
    return read_name(name, "id", facts(dp=2))


def test_a_file_that_grows_is_waited_for_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "id-TP-0-DP-0.trace.json.gz"
    whole = write(tmp_path / "whole.json.gz", document(recorded(["EXTEND", "DECODE", "DRAFT", "VERIFY"]))).read_bytes()

    def write_slowly() -> None:
        with path.open("wb", buffering=0) as file:
            for place in range(0, len(whole), 100):
                file.write(whole[place : place + 100])
                time.sleep(0.2)

    thread = threading.Thread(target=write_slowly)
    thread.start()
    collector = Collector(tmp_path, named, frozenset({(0, "")}))
    collector.wait(5)
    thread.join()
    assert collector.complete
    found = collector.found[0, ""]
    # A draft's forward is a part of its step.
    assert (found.bytes, found.events, found.steps) == (len(whole), 8, 3)
    assert sum(found.operators.values()) == 4


def test_a_file_that_stays_half_is_given_up_after_the_patience(tmp_path: Path) -> None:
    path = write(tmp_path / "id-TP-0-DP-0.trace.json.gz", document(recorded(["DECODE"])))
    path.write_bytes(path.read_bytes()[:-9])
    collector = Collector(tmp_path, named, frozenset({(0, ""), (1, "")}))
    began = time.monotonic()
    collector.wait(1.0, quiet=0.1)
    assert 1.0 <= time.monotonic() - began < 5
    assert not collector.found[0, ""].whole
    assert collector.missing == [(1, "")]


@pytest.mark.parametrize(
    ("cut", "whole"), [(lambda b: b, True), (lambda b: b[:-1], False), (lambda b: b[:-8] + bytes(8), False),
                       (lambda b: b + b, True), (lambda b: b"", False), (lambda b: b[:20] + b"x" * 50, False)],
)  # fmt: skip
def test_whole_means_up_to_the_checksum(tmp_path: Path, cut, whole: bool) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(cut(gzip.compress(b"x" * 1000, mtime=0)))
    assert examine(path, NamedFile(RankCoordinates(rank=0), "")).whole is whole
