"""Prompts and tokenizers: bundled, from files, and what is wrong with files that hold none."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dsv4_engine.checkpoint.configs import load_config
from dsv4_engine.errors import EngineError
from dsv4_engine.prompts import load_prompts
from dsv4_engine.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def config():
    return load_config("dsv4-tiny")


def test_bundled_prompts_cross_the_window_and_several_compressed_windows(config):
    tokenizer = load_tokenizer("dsv4-tiny", config)
    lengths = [len(tokenizer.encode(prompt)) for prompt in load_prompts()]
    assert min(lengths) < config.sliding_window < sorted(lengths)[1]
    assert sum(length > 2 * 128 for length in lengths) >= 3 and max(lengths) < 1024


def test_prompts_of_a_file_are_separated_by_lines(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\n---\n\n ---\n  a --- b\n---", encoding="utf-8")
    assert load_prompts(path) == ["one\ntwo", "a --- b"]


@pytest.mark.parametrize("content", [None, b"", b"\n---\n\n", b"\xff\xfe\x00"])
def test_files_without_a_prompt(tmp_path, content):
    path = tmp_path / "prompts.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=r"prompts\.txt") as caught:
        load_prompts(path)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "plain", "\x00\x01 control", "Grüße, 世界 🦜", "tab\tand\nline"])
def test_bytes_there_and_back(config, text):
    tokenizer = load_tokenizer("dsv4-tiny", config)
    ids = tokenizer.encode(text)
    assert ids[0] == config.bos_token_id and tokenizer.decode(ids) == text
    assert not set(ids[1:]) & {config.bos_token_id, *config.eos_token_ids}
    assert max(ids) < config.vocab_size


def test_ids_that_are_no_bytes_are_left_out(config):
    tokenizer = load_tokenizer("dsv4-tiny", config)
    assert tokenizer.decode([0, *tokenizer.encode("ab")[1:], 1, 319]) == "ab"
    assert tokenizer.decode([0xFF + 2]) == "�"


def test_a_vocabulary_too_small_for_bytes(config):
    with pytest.raises(EngineError, match="no byte vocabulary"):
        load_tokenizer("model", dataclasses.replace(config, vocab_size=257))


@pytest.mark.parametrize("adds_begin", [True, False])
def test_a_checkpoint_s_own_tokenizer_comes_first(tmp_path, config, adds_begin):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "hello": 5, "world": 6}, unk_token="<s>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.decoder = tokenizers.decoders.Fuse()
    words.add_special_tokens(["<s>"])
    if adds_begin:
        words.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    words.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path, config)
    assert tokenizer.encode("hello world") == [0, 5, 6]
    assert tokenizer.decode([0, 5, 6]) == "helloworld"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": null}', "[" * 100_000])
def test_a_damaged_tokenizer_file(tmp_path, config, text):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(EngineError, match=r"tokenizer\.json is no tokenizer"):
        load_tokenizer(tmp_path, config)


def test_a_tokenizer_that_is_a_folder_is_not_replaced_by_bytes(tmp_path, config):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(EngineError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(tmp_path, config)


def test_a_tokenizer_that_fails_on_a_text(tmp_path, config):
    pytest.importorskip("tokenizers")
    model = {"type": "WordLevel", "vocab": {"hello": 5}, "unk_token": "absent"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    tokenizer = load_tokenizer(tmp_path, config)
    with pytest.raises(EngineError, match=r"tokenizer\.json cannot encode"):
        tokenizer.encode("unknown")
