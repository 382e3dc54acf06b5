"""A server on the loopback for the length of a test, with a fake engine or a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from dsv4_engine.chat.markers import DSML, END_THINK, Marker
from dsv4_engine.server.app import build_app
from dsv4_engine.server.engine_thread import EngineThread
from dsv4_engine.server.generation import ServedModel
from dsv4_engine.server.listen import bind, serve, url_of
from dsv4_engine.server.options import ServerOptions
from dsv4_engine.server.service import Service
from dsv4_engine.tokenizer import ByteTokenizer
from fake_engine import FakeEngine

TOKENIZER = ByteTokenizer(bos_token_id=0, num_specials=2, vocab_size=320)


CALL = (
    'Let me see.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="weather">\n'
    '<｜DSML｜parameter name="city" string="true">Köln</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def say(text):
    """A script for the fake engine: it writes `text` and ends, whatever the prompt."""
    for marker in (END_THINK, DSML):
        text = text.replace(marker, f"\0{marker}\0")
    parts = [Marker(part) if part in (END_THINK, DSML) else part for part in text.split("\0") if part]
    return lambda prompt: [*TOKENIZER.encode_parts(parts)[1:], 1]


def events(text):
    """The JSON of a stream's events, which has to end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


class Served:
    """url, and what is behind it."""

    def __init__(self, service: Service, url: str, engine) -> None:
        self.service, self.url, self.engine = service, url, engine
        self.client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def post(self, path: str, body, **kwargs) -> httpx.Response:
        return self.client.post(path, json=body, **kwargs)

    def complete(self, **body) -> httpx.Response:
        return self.post("/v1/completions", {"prompt": "ab", "temperature": 0, **body})

    def chat(self, text="hi", **body) -> httpx.Response:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **body})


def model_of(context_len=4096, tokenizer=TOKENIZER) -> ServedModel:
    return ServedModel(
        names=("tiny",), tokenizer=tokenizer, context_len=context_len, vocab_size=320, eos_token_ids=(1,)
    )


@contextmanager
def serving(make_engine=FakeEngine, *, max_outstanding=64, profile=None, model=None, **options) -> Iterator[Served]:
    made = []

    def make():
        made.append(make_engine())
        return made[0]

    chosen = ServerOptions(**{"grace_s": 0.5, **options})
    engine = EngineThread(make, max_outstanding=max_outstanding)
    engine.start()
    service = Service(model=model or model_of(), engine=engine, options=chosen, profile=profile, info={"tp_size": 1})
    listener, up, ends = bind(chosen), threading.Event(), []
    thread = threading.Thread(
        target=serve,
        args=(build_app(service), engine, listener),
        kwargs={"grace_s": chosen.grace_s, "ready": up.set, "stop": ends.append},
        daemon=True,
    )
    thread.start()
    assert up.wait(10)
    served = Served(service, url_of(listener), made[0])
    try:
        yield served
    finally:
        served.client.close()
        ends[0]()
        thread.join(20)
        assert not thread.is_alive(), "the server did not end"
