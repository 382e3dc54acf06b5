"""A refinement goes on from any checkpoint over the corpus's bytes, and can be broken off between rounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.checkpoint.save import save_checkpoint
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.errors import EngineError
from dsv4_engine.training import __main__ as command
from dsv4_engine.training import refining
from dsv4_engine.training.corpus import BatchSampler, Corpus
from dsv4_engine.training.log import LOG
from dsv4_engine.training.options import RefineOptions
from dsv4_engine.training.refining import refine
from dsv4_engine.training.repetition import prompt_lengths
from dsv4_engine.training.state import STATE
from made_up_texts import document, documents

CPU = torch.device("cpu")
SMALL = RefineOptions(rounds=2, round_steps=2, rows=2, length=128)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    parts = {kind: documents(*(document(400, seed + 10 * each) for each in range(4))) for seed, kind in enumerate("ab")}
    return Corpus(train=parts, held_out=parts, weights={"a": 0.5, "b": 0.5})


def lines(folder) -> list[dict]:
    return [json.loads(line) | {"seconds": 0} for line in (folder / LOG).read_text().splitlines()]


def test_each_round_learns_from_what_the_model_writes_then(tmp_path, corpus):
    refine(tmp_path, "dsv4-tiny", corpus, SMALL, device=CPU)
    train = [line for line in lines(tmp_path) if line["event"] == "train"]
    assert [line["step"] for line in train] == [2, 4] and all("repeated" in line for line in train)
    assert command.main(["export", str(tmp_path), str(tmp_path / "out")]) == 0
    config, weights = load_checkpoint(tmp_path / "out")
    assert config == tiny_config(), "of the checkpoint, not of dsv4-nano"
    before = tiny_weights(config)
    assert not torch.equal(weights["head.weight"], before["head.weight"])
    assert torch.equal(weights["layers.0.ffn.gate.tid2eid"], before["layers.0.ffn.gate.tid2eid"])


@pytest.mark.parametrize("rows", [2, 5])
def test_what_is_learned_as_real_is_real(tmp_path, corpus, monkeypatch, rows):
    seen, one = [], replace(SMALL, rounds=1, round_steps=1, rows=rows)
    monkeypatch.setattr(refining.Trainer, "_train", lambda _, ids: seen.append(ids.numpy()) or {"loss": torch.ones(())})
    refine(tmp_path, "dsv4-tiny", corpus, one, device=CPU)
    real = BatchSampler(corpus.train, corpus.weights, length=129, seed=7).batch(0, rows // 2)
    assert (seen[0][: rows // 2] == real).all() and len(seen[0]) == rows
    prompts = BatchSampler(corpus.train, corpus.weights, length=129, seed=7).batch(1_000_000, rows - rows // 2)
    own = seen[0][rows // 2 :]
    for row, prompt, length in zip(own, prompts, prompt_lengths(len(own), 129), strict=True):
        assert (row[:length] == prompt[:length]).all() and (row != prompt).any()


def test_a_round_that_is_broken_off_is_made_again(tmp_path, corpus, monkeypatch):
    refine(tmp_path / "whole", "dsv4-tiny", corpus, SMALL, device=CPU)
    kept = refining.Trainer._train

    def interrupted(run, ids):
        if run.step == 3:
            raise KeyboardInterrupt
        return kept(run, ids)

    with monkeypatch.context() as patched:
        patched.setattr(refining.Trainer, "_train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            refine(tmp_path / "parts", "dsv4-tiny", corpus, SMALL, device=CPU)
    refine(tmp_path / "parts", "dsv4-tiny", corpus, SMALL, device=CPU)
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    states = [torch.load(tmp_path / name / STATE, weights_only=True)["model"] for name in ("whole", "parts")]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_state_of_another_run_or_checkpoint_is_kept(tmp_path, corpus):
    one = replace(SMALL, rounds=1, round_steps=1)
    refine(tmp_path / "run", "dsv4-tiny", corpus, one, device=CPU)
    before = (tmp_path / "run" / STATE).read_bytes()
    save_checkpoint(tmp_path / "fp4", tiny_config(), tiny_weights(tiny_config()), quantised=True)
    for checkpoint, chosen in ((str(tmp_path / "fp4"), one), ("dsv4-tiny", replace(one, weight=0.25))):
        with pytest.raises(EngineError, match="other options"):
            refine(tmp_path / "run", checkpoint, corpus, chosen, device=CPU)
    assert (tmp_path / "run" / STATE).read_bytes() == before
    refine(tmp_path / "other", str(tmp_path / "fp4"), corpus, one, device=CPU)
    assert (tmp_path / "other" / STATE).exists()


@pytest.mark.parametrize(
    ("changes", "length", "words"),
    [
        ({"bos_token_id": 1, "eos_token_ids": (0,)}, 128, "not those of the corpus"),
        ({"eos_token_ids": (1, 2)}, 128, "not those of the corpus"),
        ({"num_nextn_predict_layers": 0, "compress_ratios": (0, 4, 128, 4)}, 128, "no MTP layer"),
        ({"sliding_window": 96}, 128, "length is 128"),
        ({"max_position_embeddings": 256}, 256, "length is 256"),
    ],
)
def test_a_checkpoint_that_cannot_be_refined_is_refused(tmp_path, corpus, changes, length, words):
    config = replace(tiny_config(), **changes)
    save_checkpoint(tmp_path / "model", config, tiny_weights(config), quantised=False)
    with pytest.raises(EngineError, match=words):
        refine(tmp_path / "run", str(tmp_path / "model"), corpus, replace(SMALL, length=length), device=CPU)
    assert not (tmp_path / "run").exists()


def test_a_folder_called_like_a_bundled_model_is_asked_for_by_its_path(tmp_path, corpus, monkeypatch):
    asked = []
    monkeypatch.setattr("dsv4_engine.training.commands.load_corpus", lambda _: corpus)
    monkeypatch.setattr(
        "dsv4_engine.training.commands.refine", lambda folder, checkpoint, *_, device: asked.append(checkpoint)
    )
    assert command.main(["refine", str(tmp_path), "./dsv4-tiny", "--corpus", "x"]) == 0
    assert asked == ["./dsv4-tiny"]
