"""The benchmark client against a server whose engine is a fake: requests, moments, counts and failures."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from statistics import fmean

import pytest

pytest.importorskip("uvicorn")

from dsv4prof.api.benching import bench
from dsv4prof.cli import bench as bench_command
from dsv4prof.cli import console
from dsv4prof.cli.app import app
from dsv4prof.errors import UsageError
from dsv4prof.settings import SETTINGS
from dsv4prof.target.bench.client import Served
from dsv4prof.target.bench.figures import figures, spread
from dsv4prof.target.bench.requests import make_requests
from dsv4prof.target.bench.spec import BenchSpec
from fake_engine import FakeEngine
from served import serving

HERE = "http://127.0.0.1:9"


def test_equal_seeds_give_equal_requests_and_lengths_keep_their_bounds():
    spec = BenchSpec(url=HERE, num_prompts=200, input_len=40, output_len=10, range_ratio=0.5, vocab_size=64)
    first, again = make_requests(spec), make_requests(spec)
    assert first == again != make_requests(BenchSpec(url=HERE, num_prompts=200, input_len=40, output_len=10, seed=2))
    lengths = [len(request.prompt) for request in first]
    assert min(lengths) >= 20 and max(lengths) == 40 and len(set(lengths)) > 10
    assert {request.output_len for request in first} == set(range(5, 11))
    assert all(20 <= token < 64 for request in first for token in request.prompt)
    assert all(request.at_s == 0 for request in first)


def test_open_loops_arrive_as_a_poisson_process():
    moments = [request.at_s for request in make_requests(BenchSpec(url=HERE, num_prompts=2000, request_rate=50))]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert moments[0] == 0 and all(gap >= 0 for gap in gaps)
    assert 0.018 < fmean(gaps) < 0.022
    assert 0.8 < (fmean(gap * gap for gap in gaps) - fmean(gaps) ** 2) ** 0.5 / fmean(gaps) < 1.2


def test_shared_prefixes_are_shared_within_their_groups_alone():
    spec = BenchSpec(url=HERE, dataset="generated-shared-prefix", gsp_groups=3, gsp_prompts_per_group=4,
                     gsp_system_len=30, gsp_question_len=5)  # fmt: skip
    made = make_requests(spec)
    prefixes = [tuple(request.prompt[:30]) for request in made]
    assert len(made) == 12 and sorted(map(prefixes.count, set(prefixes))) == [4, 4, 4]
    assert len({tuple(request.prompt) for request in made}) == 12 and {len(r.prompt) for r in made} == {35}
    assert prefixes != sorted(prefixes), "groups are mixed"


def test_prompts_of_a_file_are_used_again(tmp_path):
    (tmp_path / "p.txt").write_text("one\n---\ntwo\n")
    spec = BenchSpec(url=HERE, dataset="prompts", prompts=str(tmp_path / "p.txt"), num_prompts=3)
    assert [request.prompt for request in make_requests(spec)] == ["one", "two", "one"]


def test_without_a_file_the_texts_are_the_bundled_ones():
    from dsv4_engine.prompts import load_prompts

    made = make_requests(BenchSpec(url=HERE, dataset="prompts", num_prompts=13))
    assert [request.prompt for request in made] == [*load_prompts(), load_prompts()[0]]
    with pytest.raises(UsageError, match="takes no file"):
        BenchSpec(url=HERE, dataset="random", prompts="p.txt")


@pytest.mark.parametrize(
    ("named", "prompts", "own", "input_len", "chosen"),
    [
        (None, None, True, None, "prompts"),
        (None, None, True, 64, "random"),
        (None, None, False, None, "random"),
        (None, "p.txt", False, None, "prompts"),
        ("random", None, True, None, "random"),
        ("prompts", None, False, None, "prompts"),
    ],
)
def test_our_own_model_is_sent_texts_and_another_s_random_tokens(named, prompts, own, input_len, chosen):
    assert bench_command._dataset(named, prompts=prompts, own=own, input_len=input_len) == chosen


def test_outputs_of_own_prompts_are_mixed_only_when_asked_for(tmp_path):
    (tmp_path / "p.txt").write_text("one\n---\ntwo\n")

    def lengths(**wished):
        spec = BenchSpec(url=HERE, dataset="prompts", prompts=str(tmp_path / "p.txt"), output_len=8, **wished)
        return {request.output_len for request in make_requests(spec)}

    assert lengths() == {8}
    assert lengths(range_ratio=0.0) == set(range(1, 9))
    assert {request.output_len for request in make_requests(BenchSpec(url=HERE, output_len=8))} == set(range(1, 9))


def test_a_shared_prefix_is_some_pages_and_fits_a_small_context():
    spec = BenchSpec(url=HERE)
    page = SETTINGS["page_size"].default
    assert (spec.gsp_system_len - 1) // page >= 3, "a page's key has the next token"
    assert spec.gsp_system_len + spec.gsp_question_len + spec.gsp_output_len <= 2048


def test_figures_by_hand():
    served = [
        Served(began=0, latency=1.0, ttft=0.4, itl=[0.2, 0.4], prompt_tokens=10, output_tokens=3, cached_tokens=4),
        Served(began=0, latency=3.0, ttft=1.0, itl=[2.0], prompt_tokens=20, output_tokens=2),
        Served(began=0, latency=9.0, error="HTTP 500"),
    ]
    told = figures(served, 2.0)
    assert (told.completed, told.failed, told.errors) == (2, 1, {"HTTP 500": 1})
    assert (told.request_throughput, told.input_throughput, told.output_throughput) == (1.0, 15.0, 2.5)
    assert (told.total_throughput, told.concurrency, told.cached_tokens) == (17.5, 2.0, 4)
    assert told.ttft.mean == pytest.approx(700) and told.e2e.median == pytest.approx(2000)
    assert told.tpot.mean == pytest.approx((300 + 2000) / 2)
    assert told.itl.max == 2000 and told.itl.median == pytest.approx(400)
    assert spread([]).mean is None
    assert spread([i / 1000 for i in range(101)]).p99 == pytest.approx(99)


def test_closed_and_open_loops_against_a_server(tmp_path):
    with serving(lambda: FakeEngine(step_s=0.004), max_outstanding=100) as server:
        spec = BenchSpec(url=server.url, num_prompts=12, input_len=10, output_len=12, range_ratio=1, max_concurrency=2)
        report = bench(spec, output_file=tmp_path / "out.jsonl")
        assert report.verdict.exit_code == 0 and report.data["completed"] == 12 and report.data["accept_length"] == 1.5
        assert report.data["total_output_tokens"] == 144 and report.data["total_input_tokens"] == 120
        assert 1 < report.data["concurrency"] <= 2.001
        assert 4 < report.data["mean_e2e_latency_ms"] < 1000 and report.data["mean_itl_ms"] > 1
        assert report.data["mean_ttft_ms"] < report.data["mean_e2e_latency_ms"]
        bench(
            BenchSpec(url=server.url, num_prompts=5, output_len=3, request_rate=100), output_file=tmp_path / "out.jsonl"
        )
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [line["completed"] for line in lines] == [12, 5] and lines[1]["request_rate"] == 100
        sent = server.engine.added[0]["sampling"]
        assert sent.temperature == 0


def test_chunks_of_several_tokens_share_their_time():
    with serving(lambda: FakeEngine(step_s=0.03, per_step=3)) as server:
        report = bench(BenchSpec(url=server.url, num_prompts=1, input_len=5, output_len=9, range_ratio=1))
        assert 8 < report.data["median_itl_ms"] < 20, "a step of 30 ms makes 3 tokens"
        assert 6 < report.data["mean_tpot_ms"] < 15


def test_failures_are_counted_with_their_first_reason():
    with serving(lambda: FakeEngine(step_s=0.01), max_outstanding=2) as server:
        report = bench(BenchSpec(url=server.url, num_prompts=8, output_len=20, range_ratio=1))
    assert report.verdict.exit_code == 1 and report.data["failed"] == 6 and report.data["completed"] == 2
    assert "6 requests failed: 6 x HTTP 429" in report.checks[0].message


def test_a_server_that_refuses_the_first_request_is_told_by_its_words():
    with serving() as server, pytest.raises(UsageError, match="a context of 4096 holds it") as caught:
        bench(BenchSpec(url=server.url, num_prompts=1, input_len=5000, range_ratio=1))
    assert "give shorter prompts" in caught.value.hint
    with serving(api_key="k") as server:
        with pytest.raises(UsageError, match="without the right key"):
            bench(BenchSpec(url=server.url, num_prompts=1))
        assert bench(BenchSpec(url=server.url, num_prompts=1, api_key="k")).data["completed"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_was_measured(number, tmp_path):
    """The server answers its first requests, and then no more until the client has gone."""
    before = signal.getsignal(number)
    with serving(lambda: FakeEngine(step_s=0.01), max_outstanding=100) as server:

        def interrupt():
            until = time.monotonic() + 30
            while len(server.engine.added) < 5 and time.monotonic() < until:
                time.sleep(0.005)
            server.engine.gate.clear()
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=interrupt)
        thread.start()
        spec = BenchSpec(url=server.url, num_prompts=90, output_len=6, range_ratio=1, max_concurrency=2)
        report = bench(spec, output_file=tmp_path / "out.jsonl")
        thread.join()
        server.engine.gate.set()
    answered = report.data["completed"]
    assert report.verdict.exit_code == 130 and 1 <= answered < 90 and report.data["failed"] == 0
    assert report.checks[1].message == f"interrupted: {answered} of 90 requests had an answer"
    assert report.data["mean_e2e_latency_ms"] > 0 and json.loads((tmp_path / "out.jsonl").read_text())["interrupted"]
    assert signal.getsignal(number) is before


class PlainServer(BaseHTTPRequestHandler):
    """As older servers: no usage in chunks, and a refusal of the field that asks for it."""

    def do_GET(self):
        self.send_response(404)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = "continuous_usage_stats" in body["stream_options"]
        self.send_response(422 if refused else 200)
        self.end_headers()
        if refused:
            return
        for text in ("a", "b", "c"):
            self.wfile.write(b"data: " + json.dumps({"choices": [{"text": text}]}).encode() + b"\n\n")
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        self.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n")

    def log_message(self, *_):
        pass


def test_servers_that_count_no_tokens_in_chunks():
    with ThreadingHTTPServer(("127.0.0.1", 0), PlainServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        data = bench(BenchSpec(url=f"http://127.0.0.1:{server.server_address[1]}", num_prompts=3)).data
        server.shutdown()
    assert data["completed"] == 3 and data["total_input_tokens"] == 21 and data["total_output_tokens"] == 9
    assert data["accept_length"] is None and data["model"] is None


def streaming(*parts):
    """A server that answers every request with these pieces of a stream; a number is a pause in seconds."""

    class Streaming(PlainServer):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for part in parts:
                    if isinstance(part, bytes):
                        self.wfile.write(part)
                    else:
                        time.sleep(part)

    return Streaming


@contextmanager
def answering(handler):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<html>", "makes no sense"),
        (b"\xff", "makes no sense"),
        (b"[1]", "makes no sense"),
        (b'{"choices": 5}', "makes no sense"),
        (b'{"choices": [5]}', "makes no sense"),
        (b'{"usage": {"completion_tokens": "x"}}', "makes no sense"),
        (b'{"usage": {"completion_tokens": ' + b"9" * 5000 + b"}}", "makes no sense"),
        (b'{"x": ' + b"[" * 100_000, "makes no sense"),
        (b'{"choices": [{"text": "a"}], "usage": {"completion_tokens": 1000000000}}', "64 were asked for"),
        (b'{"choices": []}', "no tokens"),
    ],
)
def test_a_stream_of_nonsense_is_a_failure_with_a_reason(data, words):
    with answering(streaming(b"data: " + data + b"\n\n")) as url, pytest.raises(UsageError, match=words):
        bench(BenchSpec(url=url, num_prompts=1, output_len=64, range_ratio=1))


def test_a_server_that_only_drips_is_not_waited_for():
    dripping = streaming(*(item for _ in range(60) for item in (b": ping\n\n", 0.05)))
    with answering(dripping) as url, pytest.raises(UsageError, match=r"no answer within 0\.3 s"):
        bench(BenchSpec(url=url, num_prompts=1, timeout_s=0.3))


@pytest.mark.parametrize("counts", [True, False], ids=["counted", "not counted"])
def test_latencies_add_up_and_an_end_without_text_is_no_token(counts):
    usage = [{"usage": {"completion_tokens": count}} if counts else {} for count in (1, 2, 3, 3)]
    chunks = [
        b"data: " + json.dumps({"choices": [{"text": text}], **told}).encode() + b"\n\n"
        for text, told in zip(("a", "b", "c", ""), usage, strict=True)
    ]
    parts = [0.06, chunks[0], 0.03, chunks[1], 0.03, chunks[2], 0.1, chunks[3]]
    with answering(streaming(*parts)) as url:
        data = bench(BenchSpec(url=url, num_prompts=1, output_len=8, range_ratio=1)).data
    assert data["total_output_tokens"] == 3
    assert data["mean_e2e_latency_ms"] == pytest.approx(data["mean_ttft_ms"] + 2 * data["mean_itl_ms"])
    assert 55 < data["mean_ttft_ms"] < data["mean_e2e_latency_ms"] < 200


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ((), "no server at http://127.0.0.1:9"),
        (("--dataset-name", "x"), "dataset 'x' is unknown"),
        (("--num-prompts", "0"), "num_prompts is 0"),
        (("--request-rate", "0"), "request_rate is 0"),
        (("--request-rate", "nan"), "request_rate is nan"),
        (("--random-range-ratio", "2"), "range_ratio is 2"),
        (("--max-concurrency", "0"), "max_concurrency is 0"),
        (("--prompts", "absent.txt"), "absent.txt cannot be read"),
        (("--output-file", "no/such/file"), "--output-file: no/such/file cannot be written"),
        (("--vocab-size", "5"), "vocab_size is 5"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--request-rate", "1e-320"), "request_rate is 1e-320"),
        (("--api-key", "é"), "a character that HTTP cannot send"),
        (("--model-name", "\udcff"), "a character that no name has"),
        (("--warmup-requests", "0"), "warmup is 0"),
    ],
)
def test_no_server_and_senseless_wishes(wrong, words, capsys):
    status = console.guarded(lambda: app(["bench", "--url", HERE, *wrong], standalone_mode=False))
    told = capsys.readouterr()
    assert status == 2 and told.err.count("error:") == 1 and words in told.err and "internal" not in told.err
