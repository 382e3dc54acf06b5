"""A whole evaluation, as an object, a file, a model card and a command."""

from __future__ import annotations

import json
import math
import signal
from dataclasses import replace

import pytest

from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.checkpoint.save import save_checkpoint
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.errors import EngineError
from dsv4_engine.training import corpus
from dsv4_engine.training.corpus import Corpus
from dsv4_engine.training.evaluate import __main__ as command
from dsv4_engine.training.evaluate import settings as sizes
from dsv4_engine.training.evaluate.card import card
from dsv4_engine.training.evaluate.evaluation import evaluate
from dsv4_engine.training.evaluate.settings import Settings
from dsv4_engine.training.evaluate.subject import Subject
from made_up_texts import document, documents

SMALL = Settings(excerpts=5, length=150, stride=20, prompts=3, prefix=30, new_tokens=25, agreement_excerpts=1, batch=4)


@pytest.fixture(scope="module")
def quantised(tmp_path_factory) -> Subject:
    folder = tmp_path_factory.mktemp("fp4")
    save_checkpoint(folder, tiny_config(), tiny_weights(tiny_config()), quantised=True)
    return Subject.load(str(folder))


@pytest.fixture(scope="module")
def result(subject, held_out, quantised):
    return evaluate(quantised, held_out, SMALL, against=subject)


def test_kinds_are_measured_apart_and_together(result):
    code, chat, everything = result.kinds
    assert [kind.kind for kind in result.kinds] == ["code", "chat", "all"]
    # Noise costs more than a byte's 8 bits; it is a random model.
    assert all(kind.bits.model.value > 8 for kind in result.kinds)
    assert everything.bits.bytes == code.bits.bytes + chat.bits.bytes
    parts = [(kind.bits.model.value, kind.bits.bytes) for kind in (code, chat)]
    assert everything.bits.model.value == pytest.approx(sum(v * n for v, n in parts) / everything.bits.bytes)
    for pick in (lambda k: k.verified, lambda k: k.text, lambda k: k.generations.drafts):
        steps = [sum(pick(kind).lengths) for kind in result.kinds]
        assert steps[2] == steps[0] + steps[1] == pick(everything).length.samples
        length = pick(everything).length.value
        assert length == pytest.approx(1 + sum(share.value for share in pick(everything).accepted))
    assert code.bits.model.clusters == 4 and everything.bits.model.clusters == 6, "documents, not pieces"
    assert code.generations.prompts == 3 and chat.generations.prompts == 2


def test_agreement_is_of_dtypes_and_of_checkpoints(result, quantised):
    dtypes, checkpoints = result.agreements
    assert (dtypes.reference, dtypes.other) == (f"{quantised.name} in float32", f"{quantised.name} in bfloat16")
    assert (checkpoints.reference, checkpoints.other) == ("dsv4-tiny in float32", f"{quantised.name} in float32")
    assert 0 < dtypes.divergence < checkpoints.divergence and dtypes.argmax.value > checkpoints.argmax.value > 0.5
    assert dtypes.reference_bits == pytest.approx(checkpoints.other_bits)


def test_the_same_texts_give_the_same_numbers(subject, held_out, quantised, result):
    again = evaluate(quantised, held_out, SMALL, against=subject)
    assert replace(again, seconds=0) == replace(result, seconds=0)
    other = evaluate(quantised, held_out, replace(SMALL, seed=1), against=subject)
    assert other.kinds != result.kinds


def test_json_holds_all_of_it(result):
    values = json.loads(result.to_json())
    assert values["settings"]["stride"] == 20 and values["parameters"] == result.parameters
    bits = values["kinds"][2]["bits"]["model"]
    assert bits["value"] == pytest.approx(result.kinds[2].bits.model.value, rel=1e-5)
    assert bits["low"] < bits["value"] < bits["high"]


def test_the_card_shows_each_kind_in_each_table_and_no_path(result, quantised):
    text = card(result)
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 6 and text.count("###") == 6
    for table in tables:
        assert len({line.count(" | ") for line in table}) == 1, table[0]
    assert all([line.split(" ")[1] for line in table[2:]] == ["code", "chat", "all"] for table in tables[:5])
    assert f"{result.kinds[0].bits.model.value:.3f} [" in tables[0][2]
    assert quantised.model not in text + result.to_json() and quantised.name in tables[5][2]
    assert max(map(len, text.splitlines())) < 330


def test_a_model_without_mtp_has_no_drafts_to_tell_of(tmp_path, held_out):
    config = replace(tiny_config(), num_nextn_predict_layers=0, compress_ratios=(0, 4, 128, 4))
    save_checkpoint(tmp_path, config, tiny_weights(config), quantised=False)
    plain = evaluate(Subject.load(str(tmp_path)), {"code": held_out["code"]}, SMALL)
    for kind in plain.kinds:
        assert kind.verified is kind.text is kind.generations.drafts is None
        assert kind.generations.tokens_per_step == 1
    assert "Drafts in" not in card(plain) and len(plain.agreements) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"length": 5000}, "holds 4096 tokens, not 5000"),
        ({"new_tokens": 4090, "prefix": 30}, "holds 4096 tokens, not 4120"),
    ],
)
def test_texts_that_the_model_cannot_hold_are_refused(subject, held_out, changes, words):
    with pytest.raises(EngineError, match=words):
        evaluate(subject, held_out, replace(SMALL, **changes))


@pytest.mark.parametrize("changes", [{"excerpts": 0}, {"stride": 3}, {"length": 1}, {"num_drafts": 8}, {"prompts": 0}])
def test_settings_that_cannot_be_are_refused(changes):
    with pytest.raises(EngineError, match=next(iter(changes))):
        Settings(**changes)


def test_empty_kinds_are_left_out_and_an_empty_corpus_is_refused(subject):
    found = evaluate(subject, {"a": documents(), "b": documents(document(60, 1))}, replace(SMALL, agreement_excerpts=0))
    assert [kind.kind for kind in found.kinds] == ["b", "all"] and found.agreements == ()
    with pytest.raises(EngineError, match="no held-out text"):
        evaluate(subject, {"a": documents()}, SMALL)


def test_the_command_writes_a_card_and_a_file(monkeypatch, capsys, tmp_path, held_out):
    monkeypatch.setattr(corpus, "load_corpus", lambda _: Corpus({}, held_out, {}))
    monkeypatch.setattr(sizes, "QUICK", SMALL)
    out = tmp_path / "out.json"
    assert command.main(["dsv4-tiny", "anywhere", "--quick", "--prompts", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Measured by the serving engine on cpu in float32")
    assert "code: 4 held-out documents" in printed.err
    values = json.loads(out.read_text())
    assert math.isfinite(values["kinds"][0]["bits"]["model"]["value"])
    assert (values["settings"]["prompts"], values["settings"]["excerpts"]) == (2, SMALL.excerpts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-model", "CORPUS"], "no-such-model does not exist"),
        (["dsv4-tiny", "no-such-corpus"], "no-such-corpus"),
        (["dsv4-tiny", "CORPUS", "--device", "abacus"], "abacus"),
        (["dsv4-tiny", "CORPUS", "--prompts", "0"], "prompts is 0"),
        (["dsv4-tiny", "CORPUS", "--out", "/no/such/folder/file.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_evaluated_is_a_sentence(monkeypatch, capsys, held_out, arguments, words):
    if {"--out", "--prompts"} & set(arguments):
        monkeypatch.setattr(corpus, "load_corpus", lambda _: Corpus({}, {"code": held_out["code"]}, {}))
        monkeypatch.setattr(sizes, "QUICK", replace(SMALL, excerpts=1, prompts=1, agreement_excerpts=0))
    assert command.main([*arguments, "--quick"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and words in printed.err and "Traceback" not in printed.err


def test_a_file_that_cannot_be_written_is_found_before_the_work_is_done(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(Subject, "load", lambda *_, **__: pytest.fail("began"))
    for out in (tmp_path / "none" / "file.json", tmp_path):
        assert command.main(["dsv4-tiny", "anywhere", "--out", str(out)]) == 2
        assert "cannot be written" in capsys.readouterr().err


def test_a_disk_that_is_full_in_the_end_does_not_cost_the_card(monkeypatch, capsys, tmp_path, held_out):
    def fails(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(corpus, "load_corpus", lambda _: Corpus({}, {"code": held_out["code"]}, {}))
    monkeypatch.setattr(sizes, "QUICK", replace(SMALL, excerpts=1, prompts=1, agreement_excerpts=0))
    monkeypatch.setattr("pathlib.Path.write_text", fails)
    assert command.main(["dsv4-tiny", "anywhere", "--quick", "--out", str(tmp_path / "out.json")]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("Measured by") and "disk full" in printed.err


def test_ctrl_c_is_130_and_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(Subject, "load", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert command.main(["dsv4-tiny", "anywhere"]) == 130
    assert capsys.readouterr().err == "interrupted: nothing was written\n"


def test_a_model_over_other_tokens_is_refused(tmp_path):
    config = replace(tiny_config(), eos_token_ids=(2,))
    save_checkpoint(tmp_path, config, tiny_weights(config), quantised=False)
    with pytest.raises(EngineError, match="not those of the corpus"):
        Subject.load(str(tmp_path))


def test_models_that_cannot_be_compared_are_refused(tmp_path, subject, held_out):
    config = replace(tiny_config(), vocab_size=384)
    save_checkpoint(tmp_path, config, tiny_weights(config), quantised=False)
    with pytest.raises(EngineError, match="differ in vocabulary"):
        evaluate(subject, held_out, SMALL, against=Subject.load(str(tmp_path)))
