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


@pytest.mark.parametrize("model", ["dsv4-tiny", "dsv4-nano"])
def test_bundled_prompts_cross_the_window_and_several_compressed_windows(model):
    config = load_config(model)
    tokenizer = load_tokenizer(model, config)
    # What a run serves unless it is told more, and then all.
    for prompts in (load_prompts()[:8], load_prompts()):
        lengths = [len(tokenizer.encode(prompt)) for prompt in prompts]
        assert min(lengths) < config.sliding_window < sorted(lengths)[2]
        assert sum(length > 2 * 128 for length in lengths) >= 3 and 5 * 128 < max(lengths) < 1024
        assert max(lengths) > config.index_topk * 4, "some ratio-4 entries are not selected"


def test_bundled_prompts_are_to_be_continued_where_they_end():
    """A byte model sees the last blank: code stops behind an indentation, on a new line or in the middle of one."""
    prompts = load_prompts()
    assert len(set(prompts)) == len(prompts) == 12 and all(prompt.isascii() for prompt in prompts)
    assert sum(prompt.endswith('"""\n    ') for prompt in prompts) >= 2
    assert not any(prompt.endswith(("\n\n", "\\")) or prompt[0].isspace() for prompt in prompts)


def test_blanks_at_the_end_stay_where_a_backslash_asks_for_them(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text(
        "def f():\n    \\\n---\nline\n\n\\  \n---\n plain  \n\n---\n\\\n---\na\\\\\n---\nb\\c\n", encoding="utf-8"
    )
    assert load_prompts(path) == ["def f():\n    ", "line\n\n", "plain", "a\\", "b\\c"]


def test_only_a_newline_ends_a_line_of_a_prompt(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_bytes("one\x0c\u2028two\r\n---\r\nthree".encode())
    assert load_prompts(path) == ["one\x0c\u2028two", "three"]


def test_a_tokenizer_beside_a_user_is_not_a_bundled_model_s(tmp_path, monkeypatch, config):
    """A name means the package's folder, wherever the user is."""
    monkeypatch.chdir(tmp_path)
    for name in ("dsv4-nano", "dsv4-tiny"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
        assert load_tokenizer(name, load_config(name)).encode("a") == [0, ord("a") + 2]
    with pytest.raises(EngineError, match=r"tokenizer\.json is no tokenizer"):
        load_tokenizer("./dsv4-nano", config)


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
