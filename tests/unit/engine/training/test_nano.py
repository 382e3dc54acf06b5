"""The trained model in the box: it loads, its drafts are accepted, its text is no loop, and its twin agrees with it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from dsv4_engine.checkpoint.configs import load_config, model_folder
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.prompts import load_prompts
from dsv4_engine.tokenizer import load_tokenizer
from dsv4_engine.training.nano import nano_config
from engine_training_model import with_weights

NANO, TWIN = "dsv4-nano", "dsv4-nano-fp4"
TOKENS = 64
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def source() -> bytes:
    """Code that it cannot have seen: ours."""
    return (Path(__file__).parents[4] / "engine" / "dsv4_engine" / "loop.py").read_bytes()[:1023]


@pytest.fixture(scope="module")
def written() -> dict[int, list]:
    """By number of drafts, what becomes of the bundled prompts."""
    return {drafts: continued(drafts) for drafts in (0, 3)}


def continued(drafts: int) -> list:
    engine = Engine(EngineOptions(model=NANO, num_drafts=drafts, max_requests=12, chunk_tokens=1024, radix=False))
    tokenizer = load_tokenizer(NANO, engine.config)
    ids = [engine.add(tokenizer.encode(prompt), max_new_tokens=TOKENS) for prompt in load_prompts()]
    while engine.has_work:
        engine.step()
    return [engine.result(request) for request in ids]


def logits_of(name: str, text: bytes, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """(T, V) float32 of BOS and the text, by the trainable model: a second implementation of the same mathematics."""
    config, weights = load_checkpoint(name)
    ids = torch.tensor([[0, *(byte + 2 for byte in text)]])
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        return with_weights(config, weights)(ids).logits[0]


def bits(logits: torch.Tensor, text: bytes) -> float:
    """A byte, of each byte given those before it."""
    following = torch.tensor([byte + 2 for byte in text])
    return float(torch.nn.functional.cross_entropy(logits[: len(text)], following) / torch.log(torch.tensor(2.0)))


@pytest.mark.parametrize("name", [NANO, TWIN])
def test_it_is_small_whole_and_says_what_it_is(name):
    config, weights = load_checkpoint(name)
    assert config == load_config(name) == nano_config()
    assert 3e6 < sum(weight.numel() for weight in weights.values() if weight.is_floating_point()) < 6e6
    card = (model_folder(name) / "README.md").read_text()
    for word in ("PSF", "held-out", "accept", "gzip", "cannot do"):
        assert word in card, word


def test_both_together_are_small():
    assert sum(path.stat().st_size for name in (NANO, TWIN) for path in model_folder(name).iterdir()) < 24 * MEGABYTE


def test_drafts_are_accepted_and_change_no_text(written):
    plain, drafted = written[0], written[3]
    assert [each.tokens for each in plain] == [each.tokens for each in drafted]
    lengths = [length for each in drafted for length in each.accept_lens]
    assert sum(lengths) / len(lengths) >= 2.2
    for draft in (1, 2, 3):
        assert sum(length > draft for length in lengths) / len(lengths) > 0.2, f"draft {draft} is hardly ever right"


def test_its_text_is_readable_and_no_loop(written):
    tokenizer = load_tokenizer(NANO, load_config(NANO))
    texts = [tokenizer.decode(each.tokens) for each in written[3]]
    assert all("\ufffd" not in text for text in texts)
    grams = [text[place : place + 4] for text in texts for place in range(len(text) - 3)]
    ours = [load_prompts()[index % 12][-TOKENS:] for index in range(len(texts))]
    real = [text[place : place + 4] for text in ours for place in range(len(text) - 3)]
    assert len(set(grams)) / len(grams) >= 0.5 * len(set(real)) / len(real)


def test_it_has_learnt_python(source):
    ours = bits(logits_of(NANO, source), source)
    assert ours < 0.6 * 8 * len(gzip.compress(source, 9)) / len(source)


def test_bfloat16_products_stay_near_float32_ones(source):
    """Bounds of the card, with room."""
    exact, rounded = logits_of(NANO, source), logits_of(NANO, source, dtype=torch.bfloat16)
    assert not torch.equal(exact, rounded)
    assert (exact.argmax(-1) == rounded.argmax(-1)).float().mean() >= 0.97
    assert abs(bits(rounded, source) - bits(exact, source)) < 0.01


def test_the_twin_holds_the_same_values():
    """fp8 and mxfp4 are exact in bfloat16, so whatever computes with the quantised weights can be compared exactly."""
    values, quantised = (load_checkpoint(name)[1] for name in (NANO, TWIN))
    assert values.keys() == quantised.keys()
    assert all(torch.equal(values[name], quantised[name]) for name in values)
    sizes = [(model_folder(name) / "model.safetensors").stat().st_size for name in (NANO, TWIN)]
    assert sizes[1] < 0.5 * sizes[0]
