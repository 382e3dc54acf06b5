"""Which texts are looked at: pieces that do not overlap, of as many documents as there are, the same each time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.training.evaluate.texts import excerpts, openings
from made_up_texts import ASSISTANT, END_THINK, chat, document, documents


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 60), max_size=6),
    count=st.integers(1, 30),
    length=st.integers(2, 25),
    seed=st.integers(0, 99),
)
def test_excerpts_are_pieces_of_documents_and_do_not_overlap(lengths, count, length, seed):
    # Every token of every document is another number, so a piece tells where it is from.
    ends = np.cumsum([0, *lengths]).tolist()
    made = documents(*(list(range(low, high)) for low, high in pairwise(ends)))
    chosen = excerpts(made, count=count, length=length, seed=seed)
    seen = [token for each in chosen for token in each.tokens.tolist()]
    assert len(seen) == len(set(seen)) and len(chosen) <= count
    for each in chosen:
        first, last = int(each.tokens[0]), int(each.tokens[-1])
        low, high = ends[each.document], ends[each.document + 1]
        assert low <= first and last < high and each.tokens.tolist() == list(range(first, last + 1))
        assert (first - low) % length == 0 and len(each.tokens) <= length
        assert len(each.tokens) >= min(length / 2, high - low)
    usable = {index for index, size in enumerate(lengths) if size > 1}
    assert len({each.document for each in chosen}) == min(count, len(usable))
    again = excerpts(made, count=count, length=length, seed=seed)
    assert [each.tokens.tolist() for each in again] == [each.tokens.tolist() for each in chosen]


def test_openings_are_cut_where_they_say(subject):
    made = documents(document(300, 1), document(50, 2), document(9, 3), document(4, 4))
    chosen = openings(made, subject.alphabet, count=9, prefix=40, new_tokens=60, seed=0)
    by_document = {}
    for each in chosen:
        by_document.setdefault(each.document, []).append(each)
        whole = made[each.document].tolist()
        both = each.prefix.tolist() + each.truth.tolist()
        assert any(whole[start : start + len(both)] == both for start in range(0, len(whole), 100))
    assert sorted(by_document) == [0, 1, 2], "the shortest has nothing left to write"
    # Of 302 tokens; the last 102 are a shorter piece, cut after a third.
    assert sorted(len(each.prefix) for each in by_document[0]) == [34, 40, 40]
    assert (len(by_document[1][0].prefix), len(by_document[1][0].truth)) == (52 // 3, 52 - 52 // 3)


def test_a_conversation_is_cut_where_the_answer_begins(subject):
    made = documents(chat(400, 7), chat(30, 8))
    chosen = openings(made, subject.alphabet, count=9, prefix=10, new_tokens=50, seed=0)
    assert sorted(each.document for each in chosen) == [0, 1], "an answer is not begun in its middle"
    for each in chosen:
        assert each.prefix[-2:].tolist() == [ASSISTANT, END_THINK] and each.prefix[0] == 0
        assert len(each.truth) == min(50, 400 if each.document == 0 else 31)


def test_the_alphabet_knows_bytes_markers_and_ends(subject):
    alphabet = subject.alphabet
    assert alphabet.byte[[0, 1, 2, 257, 258, END_THINK]].tolist() == [-1, -1, 0, 255, -1, -1]
    assert np.flatnonzero(alphabet.end).tolist() == [1]
    assert alphabet.text(np.array([0, 2 + 104, END_THINK, 2 + 105, 1])) == b"hi"


@pytest.mark.parametrize("kind", [excerpts, openings])
def test_no_documents_give_no_texts(kind, subject):
    options = {"count": 3, "seed": 0}
    if kind is excerpts:
        assert excerpts(documents(), length=10, **options) == []
    else:
        assert openings(documents(), subject.alphabet, prefix=5, new_tokens=9, **options) == []
