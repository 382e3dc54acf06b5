"""2,000 requests of random lengths, with hang-ups and nonsense in between: all answers right, and nothing left."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
from collections import Counter

import httpx
import psutil
import pytest

pytest.importorskip("torch")

from served import model_of
from served import serving as served_by
from serving import make_engine, random_prompts, run, tokens_of

LONGEST = 20
PROMPTS = random_prompts([1 + 7 * index % 190 for index in range(60)], seed=5)
OPTIONS = {"max_requests": 6, "page_size": 128, "chunk_tokens": 96, "num_pages": 14, "overlap": True, "mixed": True}


def expected_tokens(prompts):
    """Each prompt alone, without overlap and prefix cache; shorter outputs are beginnings of these."""
    outputs = []
    engine = make_engine(**{**OPTIONS, "radix": False, "overlap": False, "mixed": False})
    for prompt in prompts:
        outputs += tokens_of(run(engine, [prompt], max_new_tokens=LONGEST))
    return outputs


class Client:
    """Sends one request after the other, each of a random kind; `counts` says how they ended."""

    def __init__(self, http, texts, numbers):
        self.http, self.texts, self.numbers = http, texts, numbers
        self.counts = Counter()

    async def one(self):
        kind = self.numbers.choices(
            ("whole", "stream", "hang_up", "impatient", "nonsense"), weights=(40, 35, 12, 8, 5)
        )[0]
        index, length = self.numbers.randrange(len(self.texts)), self.numbers.randint(1, LONGEST)
        body = {"prompt": PROMPTS[index], "max_tokens": length, "temperature": 0, "ignore_eos": True, "logprobs": 0}
        self.counts[kind] += 1
        await getattr(self, kind)(body, self.texts[index][:length])

    async def whole(self, body, tokens):
        answer = await self.http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["logprobs"]["tokens"] == tokens

    async def stream(self, body, tokens, *, chunks=None):
        got = []
        async with self.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
            async for line in answer.aiter_lines():
                if not line or line == "data: [DONE]":
                    continue
                got += json.loads(line[6:])["choices"][0]["logprobs"]["tokens"]
                if chunks is not None and (chunks := chunks - 1) <= 0:
                    break
        assert got == (tokens if chunks is None else tokens[: len(got)])

    async def hang_up(self, body, tokens):
        await self.stream(body, tokens, chunks=self.numbers.randint(1, 4))

    async def impatient(self, body, tokens):
        try:
            answer = await self.http.post("/v1/completions", json=body, timeout=self.numbers.uniform(0.005, 0.05))
        except httpx.TimeoutException:
            self.counts["gone"] += 1
        else:
            assert answer.json()["choices"][0]["logprobs"]["tokens"] == tokens

    async def nonsense(self, body, tokens):
        answer = await self.http.post("/v1/completions", json={**body, "temperature": -1})
        assert answer.status_code == 400


async def soak(url, texts, *, requests, seed):
    numbers = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http:
        client = Client(http, texts, numbers)
        left = iter(range(requests))

        async def worker():
            for _ in left:
                await client.one()

        await asyncio.gather(*(worker() for _ in range(12)))
    return client.counts


async def settle(server):
    for _ in range(1000):
        if server.service.engine.outstanding == 0 and not server.engine.has_work:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("requests are left")


def check_clean(server):
    asyncio.run(settle(server))
    state = server.client.get("/server_info").json()["internal_states"][0]
    assert state["num_running_reqs"] == state["num_waiting_reqs"] == 0
    assert state["free_pages"] + state["cached_pages"] == state["num_pages"]
    assert server.engine._requests == {} and server.service.engine._running == {}
    assert server.engine.num_free_slots == OPTIONS["max_requests"]
    tasks = [task for task in asyncio.all_tasks(server.service.engine._loop) if not task.done()]
    # The server's own, and one for each connection that is kept alive.
    assert len(tasks) <= 8, tasks


def soaked(requests, *, prompts, seed):
    tokenizer = model_of().tokenizer
    from dsv4_engine.server.logprobs import token_text

    texts = [[token_text(tokenizer, token) for token in tokens] for tokens in expected_tokens(PROMPTS[:prompts])]
    process = psutil.Process()
    with served_by(lambda: make_engine(**OPTIONS), model=model_of(context_len=400)) as server:
        warm = asyncio.run(soak(server.url, texts, requests=requests // 5, seed=seed))
        check_clean(server)
        gc.collect()
        before, threads = process.memory_info().rss, threading.active_count()
        counts = asyncio.run(soak(server.url, texts, requests=requests - requests // 5, seed=seed + 1))
        check_clean(server)
        gc.collect()
        grown = process.memory_info().rss - before
        assert threading.active_count() <= threads + 2
        assert server.client.post("/flush_cache").status_code == 200
        check_clean(server)
    return warm + counts, grown


def test_some_requests():
    counts, _ = soaked(30, prompts=8, seed=3)
    assert sum(counts.values()) - counts["gone"] == 30 and counts["hang_up"] and counts["whole"]


@pytest.mark.slow
def test_two_thousand_requests():
    """The same fifty times more often: enough to see memory that grows."""
    counts, grown = soaked(2000, prompts=60, seed=7)
    assert sum(counts.values()) - counts["gone"] == 2000 and counts["gone"] > 10 and counts["hang_up"] > 100
    assert grown < 64 << 20, f"{grown >> 20} MiB"
