"""Prompts from a file or bundled, as often as asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.target.prompts import encode_prompts, read_prompts


def test_prompts_repeat_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("one\nmore\n---\n\n--- \ntwo\n")
    assert read_prompts(str(path), 3) == ["one\nmore", "two", "one\nmore"]
    assert len(set(read_prompts(None, 4))) == 4


@pytest.mark.parametrize("content", [b"", b"---\n\n---\n", b"\xff\xfe", None])
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "p.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_prompts(str(path), 1)
    assert "p.txt" in caught.value.message
    assert caught.value.hint


def test_without_a_tokenizer_a_prompt_is_its_bytes(tmp_path: Path) -> None:
    assert encode_prompts(["aé"], str(tmp_path), bos_token_id=7) == [[7, 97, 195, 169]]
