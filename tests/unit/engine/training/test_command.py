"""The command line, from a corpus to a checkpoint that the engine serves."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
import torch

from dsv4_engine.checkpoint.configs import load_config, tiny_config
from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.training import __main__ as command
from dsv4_engine.training import commands, trainer
from dsv4_engine.training.corpus import Corpus
from dsv4_engine.training.interrupts import StopWhenInterrupted
from dsv4_engine.training.log import LOG
from dsv4_engine.training.state import STATE
from made_up_texts import document, documents

SMALL = ["--rows", "2", "--length", "128", "--warmup", "1", "--log-every", "1"]


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """A small config and a made-up corpus; both are found where the command looks for them."""
    parts = {kind: documents(*(document(400, seed + 10 * each) for each in range(4))) for seed, kind in enumerate("ab")}
    corpus = Corpus(train=parts, held_out=parts, weights={"a": 0.5, "b": 0.5})
    monkeypatch.setattr(commands, "nano_config", lambda: replace(tiny_config(), sliding_window=32))
    monkeypatch.setattr(commands, "load_corpus", lambda folder: corpus)
    return corpus


def serves(folder, prompt: list[int]) -> list[int]:
    engine = Engine(EngineOptions(model=str(folder), max_requests=1))
    request = engine.add(prompt, max_new_tokens=12, ignore_eos=True)
    while engine.has_work:
        engine.step()
    return list(engine.result(request).tokens)


def test_train_resume_export_and_serve(tmp_path, capsys):
    folder, steps = tmp_path / "run", ["--steps", "3"]
    arguments = ["train", str(folder), "--corpus", "x", *SMALL, *steps]
    assert command.main([*arguments, "--minutes", "0"]) == 0
    assert command.main(arguments) == 0
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "train"] == [1, 2, 3]
    for kind, flags in (("bf16", []), ("fp4", ["--quantised"])):
        assert command.main(["export", str(folder), str(tmp_path / kind), *flags]) == 0
        assert len(serves(tmp_path / kind, [0, 50, 60])) == 12
    capsys.readouterr()
    assert command.main([*arguments[:-1], "4"]) == 2
    assert "other options" in capsys.readouterr().err


def test_a_state_that_does_not_tell_its_shape_is_exported_as_dsv4_nano(tmp_path):
    assert command.main(["train", str(tmp_path / "run"), "--corpus", "x", *SMALL, "--steps", "1"]) == 0
    state = torch.load(tmp_path / "run" / STATE, weights_only=True)
    del state["about"]
    torch.save(state, tmp_path / "run" / STATE)
    assert command.main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert load_config(tmp_path / "out") == commands.nano_config()


def test_ctrl_c_ends_training_after_its_step_and_the_same_command_goes_on(tmp_path, capsys, monkeypatch):
    arguments = ["train", str(tmp_path), "--corpus", "x", *SMALL, "--steps", "5"]
    kept = trainer.append_line

    def interrupted(folder, line):
        kept(folder, line)
        if line["step"] == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "append_line", interrupted)
        before = signal.getsignal(signal.SIGINT)
        assert command.main(arguments) == 130
        assert signal.getsignal(signal.SIGINT) is before
    assert "the same command goes on" in capsys.readouterr().err
    assert torch.load(tmp_path / STATE, weights_only=True)["step"] == 3
    assert command.main(arguments) == 0
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "train"] == [1, 2, 3, 4, 5]


def test_a_second_ctrl_c_does_not_wait():
    with StopWhenInterrupted() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_where_ctrl_c_is_ignored_it_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopWhenInterrupted() as interrupts:
            signal.raise_signal(signal.SIGINT)
        assert not interrupts.asked and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_elsewhere_is_130_too(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(commands, "load_state", lambda *_: signal.raise_signal(signal.SIGINT))
    assert command.main(["export", str(tmp_path), str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_plain_transformer_is_for_comparison_only(tmp_path, capsys):
    arguments = ["train", str(tmp_path), "--corpus", "x", "--model", "plain", *SMALL, "--steps", "1"]
    assert command.main(arguments) == 0
    assert command.main(["export", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "plain is for comparison" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["export", "nowhere", "out"], "holds no state.pt"),
        (["train", "run", "--corpus", "x", "--length", "100"], "length is 100"),
        (["train", "run", "--corpus", "x", "--length", "8192"], "length is 8192"),
        (["train", "run", "--corpus", "x", "--log-every", "0"], "log_every is 0"),
        (["train", "run", "--corpus", "x", "--device", "abacus"], "abacus"),
        (["refine", "run", "nowhere", "--corpus", "x"], "does not exist"),
        (["refine", "run", "dsv4-tiny", "--corpus", "x", "--device", "cuda:99"], "device"),
        (["plot", "out.png", "a=1", "a=2"], "cannot be read"),
    ],
)
def test_bad_input_gets_one_sentence_and_2(arguments, complaint, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") <= 2
    assert not list(tmp_path.iterdir())


def test_an_interruption_says_whether_there_is_something_to_go_on_from(tmp_path, capsys, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run_refine", interrupted)
    folder = tmp_path / "run"
    assert command.main(["refine", str(folder), "dsv4-tiny", "--corpus", "x"]) == 130
    assert "nothing was saved yet" in capsys.readouterr().err
    folder.mkdir()
    (folder / "state.pt").write_bytes(b"")
    assert command.main(["refine", str(folder), "dsv4-tiny", "--corpus", "x"]) == 130
    assert "goes on from the state" in capsys.readouterr().err
