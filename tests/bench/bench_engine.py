"""The embedded engine against transformers' generate: the same weights, prompts and tokens in one run.

    python tests/bench/bench_engine.py [--prompt 96] [--new 64] [--batches 1,16] [--threads 1]

Needs transformers 5.24 or later, which the project itself does not. Prints tokens a CPU second of transformers, of the
engine without drafts and of the engine with three MTP drafts, the ratios, and whether all made the same tokens. Both
are warmed up by one whole run; each figure is the median of three. Prompts of a batch have one length: transformers
pads this model's prompts wrongly (compressed windows see the padding).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median

import torch

from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dsv4_tiny"
Tokens = list[list[int]]


def prompts_of(count: int, length: int) -> Tokens:
    return torch.randint(2, 320, (count, length), generator=torch.Generator().manual_seed(7)).tolist()


class Peer:
    """transformers, float32, greedy, with its cache."""

    def __init__(self) -> None:
        from transformers import AutoModelForCausalLM

        self._model = AutoModelForCausalLM.from_pretrained(GOLDEN, dtype=torch.float32).eval()

    def __call__(self, prompts: Tokens, new: int) -> Tokens:
        ids = torch.tensor(prompts)
        made = self._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False
        )
        return made[:, ids.shape[1] :].tolist()


class Ours:
    """The engine, on prompts that it has not cached."""

    def __init__(self, *, drafts: int, batch: int, length: int) -> None:
        self._engine = Engine(
            EngineOptions(
                model=str(GOLDEN),
                num_drafts=drafts,
                max_requests=batch,
                context_len=length,
                chunk_tokens=2048,
                radix=False,
            )
        )

    def __call__(self, prompts: Tokens, new: int) -> Tokens:
        ids = [self._engine.add(prompt, max_new_tokens=new, ignore_eos=True) for prompt in prompts]
        while self._engine.has_work:
            self._engine.step()
        return [list(self._engine.result(each).tokens) for each in ids]


def measure(make, prompts: Tokens, new: int) -> tuple[float, Tokens]:
    """CPU seconds of one whole generation."""
    made = make(prompts, new)
    spent = []
    for _ in range(3):
        start = time.process_time()
        again = make(prompts, new)
        spent.append(time.process_time() - start)
        assert again == made, "not the same twice"
    return median(spent), made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    peer = Peer()
    print("batch  transformers     plain   ratio  3 drafts   ratio  tokens equal")
    for batch in map(int, chosen.batches.split(",")):
        prompts, length = prompts_of(batch, chosen.prompt), chosen.prompt + chosen.new
        theirs_s, theirs = measure(peer, prompts, chosen.new)
        plain_s, plain = measure(Ours(drafts=0, batch=batch, length=length), prompts, chosen.new)
        mtp_s, mtp = measure(Ours(drafts=3, batch=batch, length=length), prompts, chosen.new)
        tokens = batch * chosen.new
        print(
            f"{batch:5}  {tokens / theirs_s:12.1f}  {tokens / plain_s:8.1f}  {theirs_s / plain_s:6.2f}  "
            f"{tokens / mtp_s:8.1f}  {theirs_s / mtp_s:6.2f}  {theirs == plain == mtp}"
        )
    print("tokens a CPU second; ratio: transformers' CPU seconds over ours")


if __name__ == "__main__":
    main()
