"""The official client: it parses what we answer, and raises its own exceptions for what we refuse."""

from __future__ import annotations

import json

import pytest

from fake_engine import FakeEngine
from served import CALL, TOOLS, say, serving

openai = pytest.importorskip("openai")


@pytest.fixture
def connect():
    opened = []

    def connected(server, key="none"):
        client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
        opened.append(client)
        return client

    yield connected
    for client in opened:
        client.close()


def test_completions_whole_and_streamed(connect):
    with serving() as server:
        client = connect(server)
        assert client.models.list().data[0].id == "tiny"
        whole = client.completions.create(model="tiny", prompt="ab", max_tokens=5, logprobs=2, temperature=0)
        assert whole.choices[0].text == "ababa" and whole.usage.prompt_tokens_details.cached_tokens == 2
        assert len(whole.choices[0].logprobs.token_logprobs) == 5
        parts = list(
            client.completions.create(
                model="tiny", prompt="ab", max_tokens=5, stream=True, stream_options={"include_usage": True}
            )
        )
        assert "".join(part.choices[0].text for part in parts if part.choices) == "ababa"
        assert parts[-1].usage.completion_tokens == 5


def test_chat_with_reasoning(connect):
    with serving(lambda: FakeEngine(say("hm</think>Yes."))) as server:
        client = connect(server)
        messages = [{"role": "system", "content": "short"}, {"role": "user", "content": "ok?"}]
        extra = {"chat_template_kwargs": {"thinking": True}}
        whole = client.chat.completions.create(
            model="tiny", messages=messages, extra_body=extra, logprobs=True, top_logprobs=1
        )
        assert whole.choices[0].message.content == "Yes." and whole.choices[0].finish_reason == "stop"
        assert whole.choices[0].message.reasoning_content == "hm"
        assert whole.choices[0].logprobs.content[0].top_logprobs[0].logprob == -1.0
        stream = client.chat.completions.create(model="tiny", messages=messages, extra_body=extra, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in stream) == "Yes."


def test_tools_there_and_back(connect):
    with serving(lambda: FakeEngine(say(CALL))) as server:
        client = connect(server)
        messages = [{"role": "user", "content": "rain?"}]
        answer = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, max_tokens=400)
        message = answer.choices[0].message
        assert answer.choices[0].finish_reason == "tool_calls"
        assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Köln", "days": 2}
        messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "dry"}]
        client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, max_tokens=400)
        prompt = bytes(token - 2 for token in server.engine.added[-1]["prompt"] if 2 <= token < 258).decode()
        assert '<invoke name="weather">' in prompt and "<tool_result>dry</tool_result>" in prompt
        stream = client.chat.completions.create(
            model="tiny", messages=messages[:1], tools=TOOLS, max_tokens=400, stream=True
        )
        calls = [call for part in stream for call in part.choices[0].delta.tool_calls or []]
        assert [call.function.name for call in calls] == ["weather"]


def test_errors_become_the_clients_exceptions(connect):
    with serving(api_key="secret") as server:
        with pytest.raises(openai.AuthenticationError, match="API key"):
            connect(server).models.list()
        client = connect(server, "secret")
        with pytest.raises(openai.BadRequestError, match="temperature") as caught:
            client.completions.create(model="tiny", prompt="a", temperature=-1)
        assert caught.value.param == "temperature" and caught.value.request_id.startswith("req_")
        with pytest.raises(openai.NotFoundError, match="not served here"):
            client.completions.create(model="other", prompt="a")
    with serving(lambda: FakeEngine(fail_at=1)) as server:
        with pytest.raises(openai.APIError, match="the device is gone"):
            list(connect(server).completions.create(model="tiny", prompt="a", max_tokens=50, stream=True))
        with pytest.raises(openai.InternalServerError):
            connect(server).completions.create(model="tiny", prompt="a")
    with serving(lambda: FakeEngine(step_s=0.05), max_outstanding=1) as server:
        create = connect(server).completions.create
        stream = create(model="tiny", prompt="a", max_tokens=1000, stream=True)
        with pytest.raises(openai.RateLimitError, match="try again"):
            create(model="tiny", prompt="a")
        stream.close()


def test_the_asynchronous_client(connect):
    import asyncio

    async def ask(url):
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none") as client:
            create = client.completions.create
            return await asyncio.gather(*(create(model="tiny", prompt=f"{n}.", max_tokens=4) for n in range(8)))

    with serving() as server:
        answers = asyncio.run(ask(server.url))
        assert [answer.choices[0].text for answer in answers] == [f"{n}.{n}." for n in range(8)]
