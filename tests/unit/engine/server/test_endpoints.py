"""What the addresses answer: fields, usage, chunks in order, n, log probabilities, and who is let in."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from fake_engine import FakeEngine
from served import CALL, TOKENIZER, TOOLS, events, say, serving


def test_a_completion_has_its_text_reason_and_usage(served):
    answer = served.complete(max_tokens=5).json()
    assert answer["object"] == "text_completion" and answer["model"] == "tiny"
    assert answer["choices"][0]["text"] == "ababa" and answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == {
        "prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 2}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["abab"]),
        (["ab", "cd"], ["abab", "cdcd"]),
        (TOKENIZER.encode("ab"), ["abab"]),
        ([TOKENIZER.encode("ab"), TOKENIZER.encode("x")], ["abab", "xxxx"]),
    ],
)
def test_prompts_come_in_four_forms(served, prompt, texts):
    choices = served.complete(prompt=prompt, max_tokens=4).json()["choices"]
    assert [choice["text"] for choice in choices] == texts
    assert [choice["index"] for choice in choices] == list(range(len(texts)))


def test_echo_puts_the_prompt_in_front_once(served):
    assert served.complete(max_tokens=2, echo=True).json()["choices"][0]["text"] == "abab"
    chunks = events(served.complete(max_tokens=7, echo=True, stream=True).text)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "ababababa"
    by_ids = served.complete(prompt=TOKENIZER.encode("xy"), max_tokens=2, echo=True).json()
    assert by_ids["choices"][0]["text"] == "xyxy"


def test_chunks_come_in_order_with_one_end_and_the_usage_last(served):
    chunks = events(served.complete(max_tokens=8, stream=True, stream_options={"include_usage": True}).text)
    *parts, last = chunks
    assert "".join(chunk["choices"][0]["text"] for chunk in parts) == "abababab"
    assert [chunk["choices"][0]["finish_reason"] for chunk in parts] == [None, None, "length"]
    assert all(chunk["usage"] is None for chunk in parts)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 8
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_without_usage_asked_no_chunk_has_any(served):
    assert all("usage" not in chunk for chunk in events(served.complete(stream=True).text))


def test_usage_with_every_chunk_where_asked(served):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(served.complete(max_tokens=6, stream=True, stream_options=options).text)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [3, 6, 6]


def test_n_outputs_have_seeds_of_their_own_and_one_prompt_counts():
    with serving() as server:
        answer = server.complete(n=3, seed=7, max_tokens=2, temperature=1).json()
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        assert answer["usage"]["prompt_tokens"] == 3 and answer["usage"]["completion_tokens"] == 6
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
        assert [added["sampling"].seed for added in server.engine.added] == [7, 8, 9]
        chunks = events(server.complete(n=2, max_tokens=4, stream=True).text)
        for index in (0, 1):
            mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
            assert "".join(choice["text"] for choice in mine) == "abab" and mine[-1]["finish_reason"] == "length"


def test_sampling_reaches_the_engine_with_openais_defaults():
    with serving() as server:
        server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
        server.post(
            "/v1/completions",
            {"prompt": "a", "max_tokens": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1,
             "frequency_penalty": 0.5, "presence_penalty": -1, "repetition_penalty": 1.5, "seed": 3, "priority": 2},
        )  # fmt: skip
        server.post("/v1/completions", {"prompt": "a"})
        plain, full, default = server.engine.added
        assert (plain["sampling"].temperature, plain["sampling"].top_p, plain["sampling"].top_k) == (1.0, 1.0, 0)
        chosen = full["sampling"]
        assert (chosen.temperature, chosen.top_p, chosen.top_k, chosen.min_p, chosen.seed) == (0.5, 0.9, 4, 0.1, 3)
        assert (chosen.frequency_penalty, chosen.presence_penalty, chosen.repetition_penalty) == (0.5, -1, 1.5)
        assert full["priority"] == 2 and default["prompt"] == (0, 99)


def test_stop_strings_end_output_across_tokens_and_withdraw_the_request():
    with serving(lambda: FakeEngine(step_s=0.02)) as server:
        for stream in (False, True):
            answer = server.complete(prompt="abc", max_tokens=100, stop=["ca"], stream=stream)
            choices = [chunk["choices"][0] for chunk in events(answer.text)] if stream else answer.json()["choices"]
            assert "".join(choice["text"] for choice in choices) == "ab"
            assert choices[-1]["finish_reason"] == "stop" and choices[-1]["matched_stop"] == "ca"
        wait_idle(server)
        assert len(server.engine.aborted) == 2 and not server.engine.requests


def test_stop_tokens_and_end_tokens():
    with serving(lambda: FakeEngine(say("hé!x"))) as server:
        answer = server.complete(stop_token_ids=[ord("!") + 2], max_tokens=50).json()
        assert answer["choices"][0]["text"] == "hé" and answer["choices"][0]["matched_stop"] == ord("!") + 2
        assert answer["usage"]["completion_tokens"] == 4
        whole = server.complete(max_tokens=50).json()["choices"][0]
        assert (whole["text"], whole["finish_reason"], whole["matched_stop"]) == ("hé!x", "stop", 1)
        assert server.complete(max_tokens=5, ignore_eos=True).json()["choices"][0]["finish_reason"] == "length"


def test_no_event_holds_half_a_character():
    with serving(lambda: FakeEngine(say("a€𝄞é" * 3), per_step=1)) as server:
        chunks = events(server.complete(max_tokens=100, stream=True).text)
        texts = [chunk["choices"][0]["text"] for chunk in chunks]
        assert "".join(texts) == "a€𝄞é" * 3 and not any("\ufffd" in text for text in texts)


def test_log_probabilities_of_completions():
    with serving(lambda: FakeEngine(say("aé"), per_step=1)) as server:
        told = server.complete(max_tokens=9, logprobs=1).json()["choices"][0]["logprobs"]
        assert told["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", ""]
        assert told["token_logprobs"] == [-0.5] * 4 and told["text_offset"] == [0, 1, 1, 2]
        assert told["top_logprobs"][0] == {"a": -0.5, "": -1.0}
        chunks = events(server.complete(max_tokens=9, logprobs=0, stream=True).text)
        parts = [chunk["choices"][0]["logprobs"]["tokens"] for chunk in chunks]
        assert [token for part in parts for token in part] == told["tokens"]
        assert server.complete(max_tokens=2).json()["choices"][0]["logprobs"] is None


def test_log_probabilities_of_chats():
    with serving(lambda: FakeEngine(say("aé"), per_step=1)) as server:
        told = server.chat(logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
        assert [entry["bytes"] for entry in told] == [[97], [0xC3], [0xA9], []]
        assert [len(entry["top_logprobs"]) for entry in told] == [2] * 4 and told[0]["logprob"] == -0.5


def test_a_chat_sees_the_conversation_in_the_models_format(served):
    before = len(served.engine.added)
    answer = served.chat("hi", max_completion_tokens=3).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    prompt = served.engine.added[before]["prompt"]
    assert prompt == (0, 258, *TOKENIZER.encode("hi")[1:], 259, 261)


@pytest.mark.parametrize(
    "how", [{"chat_template_kwargs": {"thinking": True}}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"}]
)
def test_reasoning_comes_apart_whole_and_streamed(how):
    with serving(lambda: FakeEngine(say("so so</think>Yes."))) as server:
        message = server.chat(max_tokens=50, **how).json()["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("so so", "Yes.")
        deltas = [chunk["choices"][0]["delta"] for chunk in events(server.chat(max_tokens=50, stream=True, **how).text)]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "so so"
        assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
        assert server.engine.added[0]["prompt"][-1] == 260


def test_no_thinking_unless_asked_for():
    with serving(lambda: FakeEngine(say("Yes."))) as server:
        for how in (
            {},
            {"reasoning_effort": "none"},
            {"reasoning_effort": "high", "chat_template_kwargs": {"thinking": False}},
        ):
            message = server.chat(**how).json()["choices"][0]["message"]
            assert message == {"role": "assistant", "content": "Yes."}
            assert server.engine.added[-1]["prompt"][-1] == 261


def test_tool_calls_whole_and_streamed():
    with serving(lambda: FakeEngine(say(CALL))) as server:
        choice = server.chat(tools=TOOLS, max_tokens=500).json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Let me see."
        (call,) = choice["message"]["tool_calls"]
        assert call["type"] == "function" and call["id"].startswith("call_")
        assert call["function"]["name"] == "weather"
        assert json.loads(call["function"]["arguments"]) == {"city": "Köln", "days": 2}
        chunks = events(server.chat(tools=TOOLS, max_tokens=500, stream=True).text)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert "".join(delta.get("content", "") for delta in deltas) == "Let me see."
        (streamed,) = [call for delta in deltas for call in delta.get("tool_calls", [])]
        assert streamed["index"] == 0 and streamed["function"] == call["function"]
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_are_text_where_no_tool_was_offered():
    with serving(lambda: FakeEngine(say(CALL))) as server:
        for how in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            choice = server.chat(max_tokens=500, **how).json()["choices"][0]
            assert choice["message"]["content"] == CALL and choice["finish_reason"] == "stop"


def test_requests_have_ids(served):
    assert served.complete().headers["x-request-id"].startswith("req_")
    mine = served.client.post("/v1/completions", json={"prompt": "a"}, headers={"X-Request-Id": "mine-1"})
    assert mine.headers["x-request-id"] == "mine-1"
    assert served.client.get("/nothing").headers["x-request-id"].startswith("req_")


def test_a_key_opens_everything_but_health():
    with serving(api_key="secret") as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            answer = server.client.post("/v1/completions", json={"prompt": "a"}, headers=headers)
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
        assert server.client.get("/health").status_code == 200 and server.client.get("/metrics").status_code == 401
        right = {"Authorization": "Bearer secret"}
        assert server.client.post("/v1/completions", json={"prompt": "a"}, headers=right).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://example.com"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "example.com"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "LOCALHOST.:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_web_pages_cannot_use_a_server_on_the_loopback(served, headers, status):
    assert served.client.post("/v1/completions", json={"prompt": "a"}, headers=headers).status_code == status


def test_what_the_server_tells_of_itself(served):
    assert served.client.get("/health").json() == {"status": "ok"}
    assert served.client.get("/health_generate").status_code == 200
    assert served.client.get("/v1/models").json()["data"][0]["id"] == "tiny"
    assert served.client.get("/v1/models/tiny").json()["max_model_len"] == 4096
    assert served.client.get("/v1/models/other").status_code == 404
    for path in ("/server_info", "/get_server_info"):
        info = served.client.get(path).json()
        assert info["tp_size"] == 1 and info["internal_states"][0]["avg_spec_accept_length"] == 1.5
    assert served.client.get("/model_info").json()["is_generation"] is True
    assert served.client.post("/start_profile").status_code == 501


def test_metrics_are_prometheus_text():
    with serving() as server:
        server.complete(max_tokens=7)
        text = server.client.get("/metrics").text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert values["dsv4_generation_tokens_total"] == "7" and values["dsv4_prompt_tokens_total"] == "3"
        assert values['dsv4_requests_total{reason="length"}'] == "1" and values["dsv4_free_pages"] == "100"
        assert values["dsv4_time_to_first_token_seconds_count"] == "1"
        assert values["dsv4_inter_token_latency_seconds_count"] == "4"
        buckets = [
            int(value) for name, value in values.items() if name.startswith("dsv4_e2e_request_latency_seconds_b")
        ]
        assert buckets == sorted(buckets) and buckets[-1] == 1


def test_the_cache_is_flushed_only_when_nothing_runs():
    with serving(lambda: FakeEngine(step_s=0.05)) as server:
        assert server.client.post("/flush_cache").status_code == 200 and server.engine.flushes == 1
        body = {"prompt": "a", "stream": True, "max_tokens": 1000}
        with server.client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert httpx.post(server.url + "/flush_cache", trust_env=False).status_code == 409
        wait_idle(server)
        assert server.client.post("/flush_cache").json()["success"] and server.engine.flushes == 2


def wait_idle(server, timeout=5):
    until = time.monotonic() + timeout
    while (server.engine.requests or server.service.engine.outstanding) and time.monotonic() < until:
        time.sleep(0.01)
