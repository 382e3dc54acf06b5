"""What a corpus holds: every document whole, split by file, the same each time, and chats as a server renders them."""

from __future__ import annotations

import json
import os
import re
import signal

import numpy as np
import pytest

from dsv4_engine.chat.messages import Message
from dsv4_engine.errors import EngineError
from dsv4_engine.server.conversation import conversation
from dsv4_engine.server.fields import ChatFields
from dsv4_engine.tokenizer import load_tokenizer
from dsv4_engine.training.corpus import Corpus, Manifest, Sources, load_corpus, prepare
from dsv4_engine.training.corpus.__main__ import main
from dsv4_engine.training.corpus.chats import conversations, rendered
from dsv4_engine.training.corpus.documents import BOS, EOS, VOCAB_SIZE, byte_tokenizer
from dsv4_engine.training.corpus.functions import functions_of
from dsv4_engine.training.corpus.prepare import WEIGHTS
from dsv4_engine.training.corpus.stable import is_held_out
from dsv4_engine.training.nano import nano_config


@pytest.fixture(scope="module")
def folder(sources, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "new"
    prepare(sources, path)
    return path


@pytest.fixture(scope="module")
def corpus(folder) -> Corpus:
    return load_corpus(folder)


def texts(documents):
    return [byte_tokenizer().decode(documents[index].tolist()) for index in range(len(documents))]


def numbers(documents):
    return {number for text in texts(documents) for number in re.findall(r"(?:module|page) (\d+)", text)}


def test_all_kinds_in_both_splits(corpus):
    assert set(corpus.train) == set(corpus.held_out) == set(corpus.weights) == set(WEIGHTS)
    assert all(len(corpus.train[kind]) > len(corpus.held_out[kind]) > 0 for kind in WEIGHTS)
    assert sum(corpus.weights.values()) == pytest.approx(1.0)


def test_every_document_is_from_begin_to_end(corpus):
    for documents in [*corpus.train.values(), *corpus.held_out.values()]:
        assert documents.tokens.dtype == np.uint16 and documents.starts.dtype == np.int64
        assert (documents.tokens < VOCAB_SIZE).all()
        assert len(np.flatnonzero(documents.tokens == BOS)) == len(documents)
        for index in range(len(documents)):
            assert documents[index][0] == BOS and documents[index][-1] == EOS and len(documents[index]) > 2
        assert sum(len(documents[index]) for index in range(len(documents))) == len(documents.tokens)


def test_no_file_is_in_both_splits(corpus):
    for group in (("code", "functions", "chat"), ("tests",), ("prose",)):
        train = set().union(*(numbers(corpus.train[kind]) for kind in group))
        held_out = set().union(*(numbers(corpus.held_out[kind]) for kind in group))
        assert train and held_out and not train & held_out


def test_functions_and_chats_of_a_file_go_where_the_file_goes(corpus):
    for split in (corpus.train, corpus.held_out):
        assert numbers(split["functions"]) == numbers(split["code"])
        assert numbers(split["chat"]) == numbers(split["code"])


def test_the_split_is_a_small_share_of_any_set_of_paths():
    share = np.mean([is_held_out(f"folder{number % 9}/file{number}.py") for number in range(20_000)])
    assert 0.035 < share < 0.045


def test_what_teaches_nothing_is_left_out(corpus, folder):
    everything = "".join(texts(corpus.train["code"]) + texts(corpus.held_out["code"]))
    for number in (7000, 7001, 7002, 8001, 8002):  # foreign, data, of a build, not decodable, not parsable
        assert f"module {number}" not in everything
    assert "TABLE" not in everything
    assert everything.count("module 9999, which") == 1
    left_out = json.loads((folder / "manifest.json").read_text())["left_out"]
    assert left_out == {
        "copy of another": 1,
        "does not decode": 1,
        "does not parse": 1,
        "table of literals": 1,
        "too short": 1,
    }


def test_a_file_is_read_in_the_encoding_that_it_declares(corpus):
    (text,) = (text for text in texts(corpus.train["code"]) if "module 8000" in text)
    assert text.startswith("# -*- coding: latin-1 -*-\nname = 'é'\n")


def test_the_same_sources_give_the_same_files(sources, folder, tmp_path):
    prepare(sources, tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == (folder / "manifest.json").read_bytes()
    again, before = load_corpus(tmp_path), load_corpus(folder)
    for kind in WEIGHTS:
        assert again.train[kind].tokens.tobytes() == before.train[kind].tokens.tobytes()
        assert again.held_out[kind].starts.tolist() == before.held_out[kind].starts.tolist()


def test_chats_are_what_a_server_renders(sources):
    text = (sources.stdlib / "pack3" / "mod3.py").read_text()
    served = load_tokenizer(sources.stdlib, nano_config())
    found = conversations(functions_of(text))
    assert {len(messages) for messages in found} == {2, 4}
    for messages in found:
        tokens = byte_tokenizer().encode_parts(rendered(messages))
        prompt = served.encode_parts(asked(messages[:-1]))
        assert tokens[: len(prompt)] == prompt
        assert tokens[len(prompt) :] == [*served.encode(messages[-1].content)[1:], EOS]
        # The next request of the same conversation continues exactly what was learned.
        following = served.encode_parts(asked([*messages, Message(role="user", content="More.")]))
        assert following[: len(tokens)] == tokens


def asked(messages):
    fields = ChatFields(messages=[{"role": message.role, "content": message.content} for message in messages])
    return conversation(fields, thinking=False, tools=())


def test_a_chat_asks_for_what_it_answers(corpus):
    for text in texts(corpus.held_out["chat"]):
        assert ("total_" in text or "count_" in text) and "</think>" in text
        assert text.split("</think>")[-1].startswith(("@thing", "def count_"))


def test_without_documentation_there_is_no_prose(sources, tmp_path):
    prepare(Sources(stdlib=sources.stdlib), tmp_path)
    corpus = load_corpus(tmp_path)
    assert "prose" not in corpus.train and sum(corpus.weights.values()) == pytest.approx(1.0)


def test_held_out_text_is_the_files_text(corpus, sources):
    pages = texts(corpus.held_out["prose"])
    assert pages and all(
        (sources.docs / "library" / f"page{text.split()[1]}.rst.txt").read_text() == text for text in pages
    )


def test_a_damaged_corpus_is_an_error(folder, tmp_path):
    with pytest.raises(EngineError, match=r"holds no corpus: it has no manifest\.json"):
        load_corpus(tmp_path)
    fields = json.loads((folder / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(EngineError, match="cannot be read"):
        load_corpus(tmp_path)
    (tmp_path / "corpus.npz").write_bytes((folder / "corpus.npz").read_bytes())
    assert len(load_corpus(tmp_path).train["code"])
    fields["parts"][0]["sha256"] = "0" * 64
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(EngineError, match="different tokens"):
        load_corpus(tmp_path)
    (tmp_path / "corpus.npz").write_bytes(b"PK no")
    with pytest.raises(EngineError, match="cannot be read"):
        load_corpus(tmp_path)


@pytest.mark.parametrize("content", ["empty", "array", "cut", "flipped", "starts"])
def test_any_damage_is_one_sentence(folder, tmp_path, content):
    (tmp_path / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    path, whole = tmp_path / "corpus.npz", bytearray((folder / "corpus.npz").read_bytes())
    if content == "empty":
        path.write_bytes(b"")
    elif content == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif content == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "flipped":
        for place in range(2000, 2050):
            whole[place] ^= 0x55
        path.write_bytes(whole)
    else:
        with np.load(folder / "corpus.npz") as arrays:
            np.savez(path, **{name: array[:-1] if name.endswith("starts") else array for name, array in arrays.items()})
    with pytest.raises(EngineError) as caught:
        load_corpus(tmp_path)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "manifest", ["", "[]", '{"format": 2}', '{"format": 1, "sources": [], "parts": [], "weights": {"code": 1}}']
)
def test_manifests_that_are_none_are_refused(folder, tmp_path, manifest):
    (tmp_path / "corpus.npz").write_bytes((folder / "corpus.npz").read_bytes())
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(EngineError, match=r"manifest\.json"):
        load_corpus(tmp_path)


def test_a_corpus_stays_what_it_was_where_a_new_one_cannot_be_written(sources, tmp_path, monkeypatch):
    prepare(sources, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fails(manifest, path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Manifest, "write", fails)
    with pytest.raises(EngineError, match="No space left on device"):
        prepare(Sources(stdlib=sources.stdlib), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_listed_is_not_passed_over(sources, tmp_path, monkeypatch):
    kept = os.scandir

    def refuses(path):
        if str(path).endswith("pack3"):
            raise PermissionError(13, "Permission denied", str(path))
        return kept(path)

    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(EngineError, match="pack3 cannot be read: Permission denied"):
        prepare(sources, tmp_path)


def test_versions_and_licence_are_told(folder, sources):
    assert (sources.stdlib_version, sources.docs_version) == ("3.99", "3.98")
    text = (folder / "manifest.json").read_text()
    assert {source["licence"] for source in json.loads(text)["sources"]} == {"PSF-2.0"}
    assert str(sources.stdlib.parent) not in text


def test_command(sources, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([str(out), "--stdlib", str(sources.stdlib), "--docs", str(sources.docs)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"train +functions +\d+ +\d+\.\d+ +20%", shown) and "PSF-2.0" in shown
    assert main([str(out), "--stdlib", str(tmp_path)]) == 2
    assert "no standard library" in capsys.readouterr().err
    assert main([str(out), "--stdlib", str(sources.stdlib), "--docs", str(tmp_path / "none")]) == 2
    assert "holds no pages" in capsys.readouterr().err


def test_ctrl_c_is_130_and_a_sentence(sources, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(np, "savez_compressed", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert main([str(tmp_path), "--stdlib", str(sources.stdlib), "--docs", str(sources.docs)]) == 130
    assert capsys.readouterr().err.startswith("interrupted") and not list(tmp_path.iterdir())
