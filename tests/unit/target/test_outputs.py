"""Texts of a run: what stands before the end token, in the order of the requests, whoever served them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsv4prof.api.texts import text_facts, text_sections
from dsv4prof.target.outputs import (
    OUTPUTS_NAME,
    RequestOutput,
    as_texts,
    join_parts,
    read_outputs,
    write_part,
)

END = 1


class Letters:
    """Token 97 is `a`."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def output(request: int, text: str = "", *, prompt: str = "p", ended: bool = False) -> RequestOutput:
    return RequestOutput(request=request, prompt=prompt, text=text, ended=ended, tokens=[*map(ord, text)])


def test_text_stops_at_the_first_end_token_and_tokens_do_not() -> None:
    served = {1: (98, END, 99, END), 0: (97, 97)}
    first, second = as_texts(served, [[104, 105], [120]], Letters(), (END, 2))
    assert first == RequestOutput(request=0, prompt="hi", text="aa", ended=False, tokens=[97, 97])
    assert second == RequestOutput(request=1, prompt="x", text="b", ended=True, tokens=[98, END, 99, END])


def test_replicas_are_put_together_by_request(tmp_path: Path) -> None:
    write_part(tmp_path, 0, [output(0, "é\n"), output(2)])
    write_part(tmp_path, 1, [output(1)])
    join_parts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [OUTPUTS_NAME]
    assert len((tmp_path / OUTPUTS_NAME).read_bytes().splitlines()) == 3
    assert read_outputs(tmp_path) == [output(0, "é\n"), output(1), output(2)]


def test_a_session_without_texts_has_no_file_and_no_section(tmp_path: Path) -> None:
    join_parts(tmp_path)
    assert list(tmp_path.iterdir()) == [] and read_outputs(tmp_path) == []
    assert text_sections([]) == [] and text_facts([]) == {}


def lines_of(*outputs: RequestOutput) -> list[str]:
    (section,) = text_sections(outputs)
    return (section.lead or "").split("\n")


def test_the_end_of_a_prompt_stands_before_its_completion() -> None:
    code = output(3, "return a\n\nx", prompt='import os\n\ndef f(a):\n    """F."""\n    ', ended=True)
    assert lines_of(code) == ["   3 | def f(a):", '     |     """F."""', "     |     »return a", "     |", "     | x∎"]
    assert lines_of(output(0, "b", prompt="word\n\n")) == ["   0 | word", "     |", "     | »b"]
    (line,) = lines_of(output(12, "!", prompt="y" * 999))
    assert line.startswith("  12 | …yyy") and line.endswith("y»!") and len(line) < 200


def test_what_a_terminal_would_obey_is_spelt_out() -> None:
    assert lines_of(output(0, "\x1b[2J\r\x00\té世\x85", prompt="\x07")) == ["   0 | \\x07»\\x1b[2J\\r\\x00\té世\\x85"]


def test_machines_get_everything() -> None:
    told = text_facts([output(0, "ab", prompt="x" * 500)])["outputs"]
    assert told == [{"request": 0, "prompt": "x" * 500, "text": "ab", "ended": False, "tokens": [97, 98]}]
