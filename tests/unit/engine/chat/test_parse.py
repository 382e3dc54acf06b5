"""Answers taken apart: the same parts however the text arrives, and what was rendered comes back."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.chat.markers import plain_text
from dsv4_engine.chat.messages import Message, ToolCall
from dsv4_engine.chat.parse import AnswerParser
from dsv4_engine.chat.render import render

FEW = settings(max_examples=60, deadline=None)
TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<｜"), max_size=20)
NAME = st.text(alphabet="abcXYZ_09", min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(st.builds(ToolCall, name=NAME, arguments=st.dictionaries(NAME, JSON, max_size=3)), max_size=3)


def parsed(pieces, *, thinking=False, tools=True):
    parser = AnswerParser(thinking=thinking, tools=tools)
    reasoning, content, calls = "", "", ()
    for index, piece in enumerate(pieces):
        new = parser.push(piece, last=index == len(pieces) - 1)
        reasoning, content, calls = reasoning + new.reasoning, content + new.content, (*calls, *new.calls)
    return reasoning, content, calls


def cut(text, places):
    marks = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(marks)] or [""]


@FEW
@given(TEXT, TEXT, CALLS, st.booleans(), st.lists(st.integers(0, 400), max_size=12))
def test_what_was_rendered_is_parsed_back_in_any_pieces(reasoning, content, calls, thinking, places):
    content = content.rstrip("\n") if calls else content
    answer = Message(role="assistant", content=content, reasoning=reasoning if thinking else "", calls=tuple(calls))
    text = plain_text(render([Message(role="user", content="q"), answer], thinking=thinking))
    said = text.split("<｜Assistant｜>")[1].split("<｜end▁of▁sentence｜>")[0]
    said = said.removeprefix("<think>" if thinking else "</think>")
    told = parsed(cut(said, places), thinking=thinking)
    assert told == (answer.reasoning, content, tuple(calls))
    assert told == parsed(list(said) or [""], thinking=thinking)


@FEW
@given(st.text(alphabet="a\n<>/｜DSML_tolcaskhin", max_size=60), st.booleans(), st.lists(st.integers(0, 60)))
def test_pieces_never_change_what_is_told(text, thinking, places):
    assert parsed(cut(text, places), thinking=thinking) == parsed([text], thinking=thinking)


def test_what_may_become_a_marker_waits_and_nothing_else_does():
    parser = AnswerParser(thinking=True, tools=True)
    assert parser.push("so</th").reasoning == "so"
    assert parser.push("e end").reasoning == "</the end"
    assert parser.push("</think>ok\n\n<｜DSML｜tool").content == "ok"
    told = parser.push("box>", last=True)
    assert told.content == "\n\n<｜DSML｜toolbox>" and not told.calls


def test_a_broken_or_unfinished_block_stays_text():
    for tail in ("", '<｜DSML｜invoke name="f">', "junk</｜DSML｜tool_calls>"):
        said = f"x\n\n<｜DSML｜tool_calls>{tail}"
        assert parsed([said]) == ("", said, ())


def test_without_tools_a_block_is_text():
    said = '<｜DSML｜tool_calls><｜DSML｜invoke name="f"></｜DSML｜invoke></｜DSML｜tool_calls>'
    assert parsed([said], tools=False) == ("", said, ())
    assert parsed([said + "after"]) == ("", "after", (ToolCall(name="f", arguments={}),))


def test_values_keep_their_kind():
    said = (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="a" string="true">12</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="b" string="false">[1, "é"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜tool_calls>"
    )
    (call,) = parsed([said])[2]
    assert json.dumps(call.arguments, ensure_ascii=False) == '{"a": "12", "b": [1, "é"]}'


@pytest.mark.parametrize("value", ["NaN", "1e999", "[-1e999]", r'"\ud800"', r'{"\udfff": 1}', "[" * 5000 + "]" * 5000])
def test_a_value_that_no_client_could_read_leaves_a_block_text(value):
    block = (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
        f'<｜DSML｜parameter name="x" string="false">{value}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    )
    assert parsed([block]) == ("", block, ())
