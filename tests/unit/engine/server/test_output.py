"""From tokens to text: whole characters, no stop string in any part, log probabilities that follow the text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.chat.markers import Marker
from dsv4_engine.request import FinishReason, TokenLogprobs
from dsv4_engine.server.output import OutputStream
from dsv4_engine.server.stops import StopMatcher
from dsv4_engine.tokenizer import ByteTokenizer

FEW = settings(max_examples=100, deadline=None)
BYTES = ByteTokenizer(bos_token_id=0, num_specials=2, vocab_size=320)


def ids(text):
    return BYTES.encode(text)[1:]


def naive(text, stops):
    """Read a character at a time; where a stop string is complete, the text ends before the longest one."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


def pieces(text, places):
    marks = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(marks)]


@FEW
@given(
    st.text(alphabet="ab", max_size=30),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=3),
    st.lists(st.integers(0, 30), max_size=10),
)
def test_stop_strings_end_a_text_where_a_naive_reader_stops(text, stops, places):
    matcher, out = StopMatcher(stops), ""
    for piece in pieces(text, places):
        out += matcher.push(piece)
        assert naive(text, stops)[0].startswith(out), "something was told that had to wait"
    if matcher.matched is None:
        out += matcher.flush()
    assert (out, matcher.matched) == naive(text, stops)


@FEW
@given(
    st.text(alphabet="aé€𝄞b", max_size=12),
    st.lists(st.text(alphabet="aé€𝄞", min_size=1, max_size=3), max_size=2),
    st.lists(st.integers(0, 40), max_size=10),
)
def test_no_part_holds_half_a_character_or_a_stop_string(text, stops, places):
    stream, tokens = OutputStream(BYTES, stops), ids(text)
    marks = sorted({min(place, len(tokens)) for place in places} | {0, len(tokens)})
    parts = [tokens[a:b] for a, b in itertools.pairwise(marks)] or [[]]
    told = []
    for index, part in enumerate(parts):
        told.append(stream.push(part, finish=FinishReason.LENGTH if index == len(parts) - 1 else None))
    assert "".join(delta.text for delta in told) == naive(text, stops)[0]
    assert all("\ufffd" not in delta.text for delta in told)
    ends = [delta.finish_reason for delta in told if delta.finish_reason]
    assert ends == ["stop" if naive(text, stops)[1] else "length"]


@FEW
@given(st.binary(max_size=12))
def test_bytes_that_are_no_text_end_as_replacement_characters(data):
    stream = OutputStream(BYTES)
    tokens = [byte + 2 for byte in data]
    text = "".join(stream.push([token]).text for token in tokens)
    text += stream.push([], finish=FinishReason.LENGTH).text
    assert text == data.decode("utf-8", errors="replace")


@FEW
@given(st.text(alphabet="aé€", min_size=1, max_size=8), st.booleans())
def test_log_probabilities_come_with_their_text(text, stopped):
    """Each token once, in order, never before its text; those behind a stop string are nobody's."""
    stops = ("€a",) if stopped else ()
    stream, tokens = OutputStream(BYTES, stops), ids(text)
    told, seen = "", []
    for index, token in enumerate(tokens):
        last = index == len(tokens) - 1
        delta = stream.push(
            [token], logprobs=[TokenLogprobs(logprob=-float(index))], finish=FinishReason.LENGTH if last else None
        )
        told += delta.text
        seen += delta.tokens
    assert [-each.logprobs.logprob for each in seen] == list(range(len(seen)))
    assert BYTES.decode(each.token for each in seen) == told == naive(text, stops)[0]
    for each in seen:
        assert ids(told[: each.offset]) == tokens[: len(ids(told[: each.offset]))]


def test_what_a_step_made_beyond_the_stop_string_does_not_count():
    stream = OutputStream(BYTES, ("b",))
    delta = stream.push(ids("abcd"))
    assert (delta.text, delta.finish_reason, delta.matched_stop, stream.num_tokens) == ("a", "stop", "b", 2)
    assert stream.push(ids("ef"), finish=FinishReason.LENGTH).text == "" and stream.num_tokens == 2


def test_a_stop_tokens_own_text_is_not_told():
    stream = OutputStream(BYTES, stop_ids=frozenset(ids("!")))
    delta = stream.push(ids("ab!"), finish=FinishReason.STOP)
    assert (delta.text, delta.finish_reason, delta.matched_stop) == ("ab", "stop", ids("!")[0])
    assert stream.num_tokens == 3


def test_markers_are_spelt_out_where_the_vocabulary_has_no_room():
    small = ByteTokenizer(bos_token_id=0, num_specials=2, vocab_size=258)
    tokens = small.encode_parts(("a", Marker("<think>"), Marker("<｜end▁of▁sentence｜>")))
    assert tokens == [*small.encode("a<think>"), 1] and small.decode(tokens) == "a<think>"


@pytest.mark.parametrize("text", ["a<think>b</think>", "｜DSML｜"])
def test_an_answers_structure_is_text_and_other_specials_are_not(text):
    tokens = [0, *BYTES.encode(text)[1:], 1, 258]
    assert BYTES.decode(tokens) == text
    assert BYTES.decode([260, 97 + 2, 261, 262]) == "<think>a</think>｜DSML｜"
