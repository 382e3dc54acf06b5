"""The server before the real engine on the golden model: tokens are the engine's own, and its pages come back."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("torch")

from dsv4_engine.request import SamplingParams
from served import events, model_of
from served import serving as served_by
from serving import make_engine, run

PROMPT = "the quick brown fox"


@pytest.fixture(scope="module")
def server():
    with served_by(lambda: make_engine(max_requests=3, page_size=128), model=model_of(context_len=400)) as made:
        yield made


def direct(prompt, *, max_new_tokens, **options):
    engine = make_engine(max_requests=3, page_size=128)
    (result,) = run(engine, [prompt], max_new_tokens=max_new_tokens, **options)
    return result


def settled(server):
    until = time.monotonic() + 20
    while server.service.engine.outstanding and time.monotonic() < until:
        time.sleep(0.01)
    return server.client.get("/server_info").json()["internal_states"][0]


def test_greedy_text_is_the_engines_own(server):
    tokenizer = server.service.model.tokenizer
    result = direct(tokenizer.encode(PROMPT), max_new_tokens=30)
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 30, "ignore_eos": True}
    whole = server.post("/v1/completions", body).json()
    assert whole["choices"][0]["text"] == tokenizer.decode(result.tokens)
    assert whole["usage"]["completion_tokens"] == 30
    chunks = events(server.post("/v1/completions", {**body, "stream": True}).text)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == tokenizer.decode(result.tokens)


def test_equal_seeds_give_equal_texts_among_other_requests(server):
    body = {"prompt": PROMPT, "seed": 11, "max_tokens": 12, "n": 3}
    first = [choice["text"] for choice in server.post("/v1/completions", body).json()["choices"]]
    again = [choice["text"] for choice in server.post("/v1/completions", body).json()["choices"]]
    assert first == again and len(set(first)) > 1


def test_log_probabilities_are_the_engines(server):
    tokenizer = server.service.model.tokenizer
    engine = make_engine(max_requests=3, page_size=128)
    number = engine.add(
        tokenizer.encode(PROMPT), max_new_tokens=6, ignore_eos=True, sampling=SamplingParams(logprobs=2)
    )
    while engine.has_work:
        engine.step()
    expected = engine.result(number).logprobs
    told = server.complete(prompt=PROMPT, max_tokens=6, ignore_eos=True, logprobs=2).json()["choices"][0]["logprobs"]
    assert told["token_logprobs"] == pytest.approx([each.logprob for each in expected], abs=1e-5)
    assert max(map(max, (each.values() for each in told["top_logprobs"]))) <= 0


def test_a_repeated_prompt_is_found_in_the_prefix_cache(server):
    body = {"prompt": PROMPT * 10, "temperature": 0, "max_tokens": 4}
    first, second = (server.post("/v1/completions", body).json() for _ in range(2))
    assert second["choices"][0]["text"] == first["choices"][0]["text"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128
    assert "dsv4_cached_tokens_total 0" not in server.client.get("/metrics").text


def test_a_stop_string_and_a_hang_up_give_their_pages_back(server):
    text = server.complete(prompt=PROMPT, max_tokens=40, ignore_eos=True).json()["choices"][0]["text"]
    stop = text[10:12]
    stopped = server.complete(prompt=PROMPT, max_tokens=300, ignore_eos=True, stop=[stop]).json()["choices"][0]
    assert stopped["text"] == text[: text.index(stop)] and stopped["finish_reason"] == "stop"
    body = {"prompt": PROMPT, "max_tokens": 350, "ignore_eos": True, "stream": True}
    with server.client.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
    state = settled(server)
    assert state["num_running_reqs"] == state["num_waiting_reqs"] == 0
    assert state["free_pages"] + state["cached_pages"] == state["num_pages"]
    assert server.client.post("/flush_cache").status_code == 200
    assert settled(server)["free_pages"] == state["num_pages"]


def test_what_can_never_fit_is_refused_by_the_engine_too(server):
    answer = server.complete(prompt="x" * 500)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"


def test_chats_and_accept_length(server):
    answer = server.chat("hello", max_tokens=8, temperature=0).json()
    assert answer["usage"]["completion_tokens"] <= 8
    assert settled(server)["avg_spec_accept_length"] >= 1
