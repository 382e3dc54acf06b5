"""A tokenizer.json of DeepSeek's kind (byte-level BPE with added tokens): markers, streams, and what only looks so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.byte_level import spelt_bytes
from dsv4_engine.chat.markers import ASSISTANT, BOS, DSML, END_THINK, EOS, THINK, USER, Marker
from dsv4_engine.tokenizer import FileTokenizer

tokenizers = pytest.importorskip("tokenizers")
FEW = settings(max_examples=60, deadline=None)


def byte_level():
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    vocabulary["ab"] = len(vocabulary)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([BOS, EOS, "<｜pad｜>"])
    made.add_tokens([USER, ASSISTANT, THINK, END_THINK, DSML])
    return made


RAW = byte_level()
FILE = FileTokenizer(RAW, bos_token_id=RAW.token_to_id(BOS))
SIMPLE = FileTokenizer(
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "one": 1, "two": 2, "?": 3}, unk_token="?")),
    bos_token_id=0,
)


def ids(*names):
    return [RAW.token_to_id(name) for name in names]


@FEW
@given(st.text(max_size=20))
def test_text_comes_back_token_by_token(text):
    tokens = FILE.encode(text)
    stream = FILE.stream()
    parts = [stream.push(token) for token in tokens]
    assert "".join(parts) + stream.flush() == text == FILE.decode(tokens)
    assert b"".join(map(FILE.token_bytes, tokens)) == text.encode()


def test_every_byte_is_spelt_as_the_package_spells_it():
    vocabulary = RAW.get_vocab()
    spelt = {spelt_bytes(character) for character in tokenizers.pre_tokenizers.ByteLevel.alphabet()}
    assert spelt == {bytes((byte,)) for byte in range(256)} and "ab" in vocabulary


def test_markers_are_tokens_and_users_texts_are_not():
    tokens = FILE.encode_parts(("ab", Marker(USER), f"{USER}ab{THINK}", Marker(THINK)))
    specials = set(ids(USER, ASSISTANT, THINK, END_THINK, DSML, BOS, EOS))
    assert [token for token in tokens if token in specials] == ids(BOS, USER, THINK)
    assert tokens[:3] == ids(BOS, "ab", USER)
    assert FILE.decode(tokens).count(USER) == 2, "what a user wrote is still readable"


def test_special_tokens_are_no_text_but_those_of_an_answer_are():
    tokens = [*ids(BOS, THINK, "ab", END_THINK), *ids("<｜pad｜>", DSML, EOS)]
    assert FILE.decode(tokens) == f"{THINK}ab{END_THINK}{DSML}"


def test_tokenizers_of_other_kinds_decode_in_context():
    tokens = SIMPLE.encode("one")
    stream = SIMPLE.stream()
    assert "".join(map(stream.push, [1, 2, 1])) + stream.flush() == SIMPLE.decode([1, 2, 1])
    assert tokens == [0, 1] and SIMPLE.decode([1, 2]) == "one two"
