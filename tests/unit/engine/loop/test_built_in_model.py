"""`dsv4-tiny` does what it is for: text from the bundled prompts, with drafts that are accepted at a useful rate."""

from __future__ import annotations

from dsv4_engine.checkpoint.configs import load_config
from dsv4_engine.prompts import load_prompts
from dsv4_engine.tokenizer import load_tokenizer
from serving import serve, tokens_of

TINY = "dsv4-tiny"


def test_drafts_are_accepted_and_change_nothing():
    tokenizer = load_tokenizer(TINY, load_config(TINY))
    prompts = [tokenizer.encode(prompt) for prompt in load_prompts()]
    room = max(map(len, prompts)) + 32
    plain = serve(prompts, model=TINY, num_drafts=0, context_len=room, max_new_tokens=32)
    speculative = serve(prompts, model=TINY, num_drafts=3, context_len=room, max_new_tokens=32)
    assert tokens_of(speculative) == tokens_of(plain)
    gained = [accepted for result in speculative for accepted in result.accept_lens]
    assert 1.3 < sum(gained) / len(gained) < 4
    assert {1, 2, 3, 4} == set(gained)
