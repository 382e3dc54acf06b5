"""Whatever a client sends gets a 4xx with a sentence in OpenAI's form, and the server goes on."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from served import serving

OPENAI_FORM = {"message", "type", "param", "code"}
FEW = settings(max_examples=120, deadline=None)

COMPLETIONS = [
    ({"prompt": "a", "max_token": 5}, "max_token", "did you mean 'max_tokens'?"),
    ({"prompt": "a", "entirely_unknown": 5}, "entirely_unknown", "unknown field"),
    ({}, "prompt", "missing"),
    ({"prompt": None}, "prompt", "missing"),
    ({"prompt": 5}, "prompt", "a string or a list"),
    ({"prompt": ""}, None, None),
    ({"prompt": []}, "prompt", "empty"),
    ({"prompt": [[]]}, "prompt", "none of them empty"),
    ({"prompt": ["a", 1]}, "prompt", "a list of either"),
    ({"prompt": [True]}, "prompt", "a list of either"),
    ({"prompt": [1.5]}, "prompt", "a list of either"),
    ({"prompt": [-1]}, "prompt", "outside the vocabulary"),
    ({"prompt": [320]}, "prompt", "outside the vocabulary"),
    ({"prompt": ["a"] * 1025}, "prompt", "the most"),
    ({"prompt": ["a"] * 1024, "n": 128, "seed": 1}, "n", "more than 4096 outputs"),
    ({"prompt": "a" * 5000}, "prompt", "a context of 4096"),
    ({"prompt": "a", "temperature": -1}, "temperature", "a number >= 0"),
    ({"prompt": "a", "temperature": "hot"}, "temperature", "a number, got a string"),
    ({"prompt": "a", "temperature": True}, "temperature", "a number"),
    ({"prompt": "a", "top_p": 0}, "top_p", "> 0"),
    ({"prompt": "a", "top_p": 1.5}, "top_p", "<= 1"),
    ({"prompt": "a", "top_k": -2}, "top_k", ">= -1"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens", ">= 1"),
    ({"prompt": "a", "max_tokens": -5}, "max_tokens", ">= 1"),
    ({"prompt": "a", "max_tokens": 1.5}, "max_tokens", "a whole number"),
    ({"prompt": "a", "max_tokens": 10**30}, "max_tokens", "a whole number"),
    ({"prompt": "a", "n": 0}, "n", ">= 1"),
    ({"prompt": "a", "n": 129}, "n", "<= 128"),
    ({"prompt": "a", "seed": 2**63}, "seed", "a whole number"),
    ({"prompt": "a", "frequency_penalty": 3}, "frequency_penalty", "<= 2"),
    ({"prompt": "a", "repetition_penalty": 0}, "repetition_penalty", "> 0"),
    ({"prompt": "a", "stop": [""]}, "stop", "1 to 1024 characters"),
    ({"prompt": "a", "stop": ["x"] * 5 + [str(i) for i in range(20)]}, "stop", "the most"),
    ({"prompt": "a", "stop": {"a": 1}}, "stop", "a string or a list"),
    ({"prompt": "a", "stop_token_ids": [400]}, "stop_token_ids", "outside the vocabulary"),
    ({"prompt": "a", "logprobs": 21}, "logprobs", "<= 20"),
    ({"prompt": "a", "logprobs": True}, "logprobs", "a whole number"),
    ({"prompt": "a", "stream": "yes"}, "stream", "true or false"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
    ({"prompt": "a", "stream": True, "stream_options": {"include": True}}, "stream_options", "unknown field"),
    ({"prompt": "a", "suffix": "b"}, "suffix", "not supported"),
    ({"prompt": "a", "best_of": 3}, "best_of", "not supported"),
    ({"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias", "not supported"),
    ({"prompt": "a", "min_tokens": 4}, "min_tokens", "not supported"),
    ({"prompt": "a", "response_format": {"type": "json_object"}}, "response_format", "not supported"),
    ({"prompt": "a", "echo": True, "logprobs": 1}, "echo", "not supported"),
    ({"prompt": "a", "model": "gpt-4"}, "model", "is not served here"),
    ({"prompt": "a", "model": 5}, "model", "a string"),
]
HELLO = {"role": "user", "content": "hello"}
CALLED = {"role": "assistant", "content": None}
CHATS = [
    ({"messages": []}, "messages", "empty"),
    ({"messages": "hi"}, "messages", "a list"),
    ({"messages": ["hi"]}, "messages", "an object"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages", "messages[0].role"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "messages", "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages", "messages[0].content is missing"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages", "a string or a list of text parts"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "text parts only"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages", "has to be a string"),
    ({"messages": [{"role": "user", "content": "x", "contents": 1}]}, "messages", "unknown field"),
    ({"messages": [HELLO, {"role": "assistant", "content": "x"}]}, "messages", "nothing to answer"),
    ({"messages": [HELLO, CALLED, HELLO]}, "messages", "messages[1].content is missing"),
    ({"messages": [HELLO, {**CALLED, "tool_calls": [{}]}, HELLO]}, "messages", "function.name"),
    (
        {"messages": [HELLO, {**CALLED, "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, HELLO]},
        "messages",
        "a JSON object, as text",
    ),
    (
        {"messages": [HELLO, {**CALLED, "tool_calls": [{"function": {"name": 'f"', "arguments": "{}"}}]}, HELLO]},
        "messages",
        "cannot be the name",
    ),
    ({"messages": [{**HELLO, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]}, "messages", "only an"),
    ({"messages": [HELLO], "tools": [{}]}, "tools", "tools[0]"),
    ({"messages": [HELLO], "tools": [{"type": "function", "function": {}}]}, "tools", "function.name"),
    ({"messages": [HELLO], "tool_choice": "required"}, "tool_choice", "only auto and none"),
    ({"messages": [HELLO], "tool_choice": "auto"}, "tool_choice", "with tools"),
    ({"messages": [HELLO], "reasoning_effort": "extreme"}, "reasoning_effort", "not one of"),
    ({"messages": [HELLO], "chat_template_kwargs": {"thinkng": True}}, "chat_template_kwargs", "unknown key"),
    ({"messages": [HELLO], "chat_template_kwargs": {"thinking": 1}}, "chat_template_kwargs", "true or false"),
    ({"messages": [HELLO], "top_logprobs": 3}, "top_logprobs", "needs logprobs"),
    ({"messages": [HELLO], "max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "two values"),
    ({"messages": [HELLO], "prompt": "x"}, "prompt", "unknown field"),
]


def check_refused(answer, param, words):
    assert 400 <= answer.status_code < 500
    error = answer.json()["error"]
    assert set(error) == OPENAI_FORM and error["message"]
    assert error["param"] == param and words in error["message"], error


@pytest.mark.parametrize(("body", "param", "words"), COMPLETIONS)
def test_completions_name_the_field_at_fault(served, body, param, words):
    answer = served.post("/v1/completions", body)
    if words is None:
        assert answer.status_code == 200
    else:
        check_refused(answer, param, words)


@pytest.mark.parametrize(("body", "param", "words"), CHATS)
def test_chats_name_the_message_or_field_at_fault(served, body, param, words):
    check_refused(served.post("/v1/chat/completions", body), param, words)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"  ", "empty"),
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b'"text"', "no JSON object"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b'{"prompt": "\\ud800"}', "no JSON"),
        (b'{"prompt": "a", "temperature": NaN}', "no JSON"),
        (b'{"prompt": "a", "temperature": 1e999}', "no JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"prompt": "a", "logit_bias": ' + b'{"a":' * 900 + b"1" + b"}" * 901, "logit_bias"),
    ],
)
def test_what_is_no_json_object_is_told_so(served, data, words):
    check_refused(served.client.post("/v1/completions", content=data), served_param(words), words)


def served_param(words):
    return "logit_bias" if words == "logit_bias" else None


def test_harmless_fields_of_openai_and_others_are_accepted(served):
    body = {
        "prompt": "ab", "model": "tiny", "temperature": 0, "best_of": 1, "user": "me", "logit_bias": {}, "suffix": None,
        "metadata": {"a": "b"}, "store": False, "skip_special_tokens": True, "top_k": -1, "stop": None, "min_tokens": 0,
    }  # fmt: skip
    assert served.post("/v1/completions", body).json()["choices"][0]["text"].startswith("abab")


def test_wrong_addresses_and_methods_are_json_too(served):
    assert served.client.get("/nothing").json()["error"]["message"] == "there is nothing at /nothing"
    wrong = served.client.get("/v1/completions")
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST" and "error" in wrong.json()


def raw(url, head, body=b"", *, more=None):
    """The status line and body of a request that no client library would send."""
    host, port = url.removeprefix("http://").split(":")
    sent = 0
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        try:
            while more is not None:
                connection.sendall(more)
                sent += len(more)
                assert sent < 64 << 20, "the server reads on and on"
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
    return answer, sent


def test_a_gigabyte_is_refused_without_reading_it(served):
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {1 << 30}"
    began = time.monotonic()
    answer, _ = raw(served.url, head)
    assert answer.startswith(b"HTTP/1.1 413") and b"larger than 16 MiB" in answer and time.monotonic() - began < 5
    assert served.complete().status_code == 200


def test_an_endless_chunked_body_is_cut_off(served):
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked"
    megabyte = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    answer, sent = raw(served.url, head, more=megabyte)
    assert sent < 48 << 20 and (answer.startswith(b"HTTP/1.1 413") or not answer)
    assert served.complete().status_code == 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 400) | st.floats(-2, 500) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
KEYS = st.sampled_from(
    ["prompt", "messages", "model", "n", "max_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "stream",
     "seed", "logprobs", "top_logprobs", "echo", "tools", "tool_choice", "stream_options", "ignore_eos",
     "stop_token_ids", "logit_bias", "chat_template_kwargs", "reasoning_effort", "priority", "suffix"]
)  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_any_json_gets_an_answer_and_the_server_goes_on(served, path):
    @FEW
    @given(st.dictionaries(KEYS | st.text(max_size=4), VALUES, max_size=6), st.booleans())
    def fuzz(body, sensible):
        if sensible:
            body = {
                **body,
                "prompt" if path == "/v1/completions" else "messages": "ab" if "chat" not in path else [HELLO],
            }
        answer = served.post(path, body)
        assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
        if answer.status_code != 200:
            assert set(answer.json()["error"]) == OPENAI_FORM
        elif not answer.headers["content-type"].startswith("text/event-stream"):
            assert answer.json()["choices"]

    fuzz()
    assert served.client.get("/health").status_code == 200


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_get_an_answer(data):
    answer = _shared().client.post("/v1/completions", content=data)
    assert 400 <= answer.status_code < 500 and answer.json()["error"]["message"]


_open: list = []


def _shared():
    """hypothesis calls the test many times with one fixture."""
    if not _open:
        context = serving()
        _open.extend((context, context.__enter__()))
    return _open[1]


def teardown_module():
    if _open:
        _open[0].__exit__(None, None, None)


def test_an_engines_refusal_is_the_clients_fault():
    from fake_engine import FakeEngine

    with serving(lambda: FakeEngine(context=5)) as server:
        for stream in (False, True):
            answer = server.complete(prompt="too long for it", stream=stream)
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == "the prompt can never fit (shorten it)"
        assert server.complete().status_code == 200


def test_errors_are_counted(served):
    before = served.client.get("/metrics").text
    served.complete(temperature=-1)
    after = served.client.get("/metrics").text
    assert count(after) == count(before) + 1


def count(text):
    line = next((line for line in text.splitlines() if 'refused_requests_total{status="400"}' in line), "x 0")
    return int(line.split()[-1])


def test_json_with_duplicate_or_odd_content_type_is_read(served):
    data = json.dumps({"prompt": "ab", "temperature": 0, "max_tokens": 2})
    answer = served.client.post("/v1/completions", content=data, headers={"Content-Type": "text/plain"})
    assert isinstance(answer, httpx.Response) and answer.json()["choices"][0]["text"] == "ab"


@pytest.mark.parametrize("pad", ["", " " * 70_000], ids=["on the loop", "on a thread"])
def test_no_depth_between_what_is_read_and_what_is_written_is_an_error_of_the_server(served, pad):
    """Python's limit is on the stack's depth, so each step of a request's way has its own."""
    for depth in range(930, 1000, 3):
        deep = "[" * depth + "]" * depth
        tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {{"x": {deep}}}}}}}'
        body = f'{{"messages": [{{"role": "user", "content": "a"}}], "max_tokens": 1, "tools": [{tool}]}}{pad}'
        answer = served.client.post("/v1/chat/completions", content=body)
        assert answer.status_code == 200 or "nested too deeply" in answer.json()["error"]["message"], depth
