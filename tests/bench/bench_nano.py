"""What drafts gain on the trained model: the bundled prompts with 0 to 7 drafts, in one run.

    python tests/bench/bench_nano.py [--model dsv4-nano] [--new 128] [--threads 1] [--rounds 3] [--device cpu]

Prints, by number of drafts, the tokens that a target step yields, the target's steps against decoding plainly, and
tokens a CPU second against plainly; each time is the median of the rounds. Status 1 where drafts changed a text.
"""

from __future__ import annotations

import argparse
import time
from statistics import fmean, median

import torch

from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.prompts import load_prompts
from dsv4_engine.request import RequestResult
from dsv4_engine.tokenizer import load_tokenizer

DRAFTS = (0, 1, 2, 3, 5, 7)


def served(engine: Engine, prompts: list[list[int]], new: int) -> tuple[list[RequestResult], float]:
    """Results, and CPU seconds of all threads."""
    begun = time.process_time()
    ids = [engine.add(prompt, max_new_tokens=new, ignore_eos=True) for prompt in prompts]
    while engine.has_work:
        engine.step()
    return [engine.result(request) for request in ids], time.process_time() - begun


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="dsv4-nano")
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    wished = parser.parse_args()
    torch.set_num_threads(wished.threads)
    texts: dict[int, list[tuple[int, ...]]] = {}
    plain = 0.0
    for drafts in DRAFTS:
        options = EngineOptions(
            model=wished.model,
            device=wished.device,
            num_drafts=drafts,
            max_requests=4,
            chunk_tokens=1024,
            exact_num_tokens=True,
            radix=False,
        )
        engine = Engine(options)
        tokenizer = load_tokenizer(wished.model, engine.config)
        prompts = [tokenizer.encode(prompt) for prompt in load_prompts()]
        served(engine, prompts[:4], 16)
        rounds = [served(engine, prompts, wished.new) for _ in range(wished.rounds)]
        results = rounds[0][0]
        texts[drafts] = [result.tokens for result in results]
        rate = len(prompts) * wished.new / median(seconds for _, seconds in rounds)
        plain = plain or rate
        lengths = [length for result in results for length in result.accept_lens]
        gained = fmean(lengths) if drafts else 1.0
        print(
            f"{drafts} drafts: {gained:.2f} tokens a step, {1 / gained:.2f} of the steps; "
            f"{rate:.0f} tokens a CPU second, {rate / plain:.2f} times plain",
            flush=True,
        )
    same = all(each == texts[0] for each in texts.values())
    print("the same texts with and without drafts" if same else "DRAFTS CHANGED A TEXT")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
