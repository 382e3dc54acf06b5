"""A run trains, tells what it does, and can be broken off and resumed at any step."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
import torch

from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.errors import EngineError
from dsv4_engine.training import trainer as trainers
from dsv4_engine.training.log import LOG
from dsv4_engine.training.options import Pace, TrainingOptions
from dsv4_engine.training.quantising import QuantisedWeights
from dsv4_engine.training.state import STATE
from dsv4_engine.training.trainees import Dsv4Trainee
from dsv4_engine.training.trainer import Trainer
from engine_training_model import with_weights

CPU = torch.device("cpu")
QUIET = Pace(log=100, evaluate=100, save=100)


class Phrases:
    """Rows of a few fixed phrases: something that can be learned within steps."""

    def __init__(self, length: int) -> None:
        self._length = length

    def batch(self, step: int, rows: int) -> np.ndarray:
        phrases = np.array([list(b"the cat sat."), list(b"a dog ran on")], dtype=np.uint16) + 2
        chosen = np.random.default_rng(step).integers(0, 2, (rows, self._length // 12 + 1))
        return phrases[chosen].reshape(rows, -1)[:, : self._length + 1]


def options(**changes) -> TrainingOptions:
    return TrainingOptions(**({"steps": 6, "rows": 2, "length": 128, "warmup": 1, "quantise_from": 0.5} | changes))


def trainer(folder, chosen: TrainingOptions, config, **more) -> Trainer:
    model = with_weights(config, tiny_weights(config))
    batches = Phrases(chosen.length)
    return Trainer(
        Dsv4Trainee(model, chosen),
        chosen,
        batches,
        {"phrases": [batches.batch(999, 2)]},
        folder,
        device=CPU,
        quantised=QuantisedWeights(model),
        **more,
    )


def events(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def test_a_short_run_learns_the_phrases(tmp_path, config):
    run = trainer(tmp_path, options(steps=24, length=256, decay=0.2), config)
    assert run.run(Pace(log=4, evaluate=12, save=100))
    train = [event["main"] for event in events(tmp_path) if event["event"] == "train"]
    held_out = [event for event in events(tmp_path) if event["event"] == "held_out/phrases"]
    assert len(train) == 6 and train[-1] < 0.7 * train[0]
    assert [event["step"] for event in held_out] == [12, 24]
    assert held_out[1]["nats"] < held_out[0]["nats"]
    assert 1 <= held_out[1]["accept_length"] <= 4


def test_a_resumed_run_is_the_run_that_was_never_broken_off(tmp_path, config):
    whole = trainer(tmp_path / "whole", options(), config)
    whole.run(QUIET)
    first = trainer(tmp_path / "parts", options(), config)
    assert not first.resume()
    assert not first.run(Pace(log=100, evaluate=100, save=2, minutes=0))
    assert 1 <= first.step < 6
    second = trainer(tmp_path / "parts", options(), config)
    assert second.resume() and second.step == first.step
    assert second.run(QUIET)
    states = [torch.load(tmp_path / name / STATE, weights_only=True) for name in ("whole", "parts")]
    assert states[0]["step"] == states[1]["step"] == 6
    assert all(torch.equal(value, states[1]["model"][name]) for name, value in states[0]["model"].items())


def killed(*_: object, **__: object) -> None:
    raise RuntimeError("killed")


@pytest.mark.parametrize("dies", ["save", "evaluate", "_log", "_train"])
@pytest.mark.parametrize("at", [1, 4, 6])
def test_a_run_that_is_killed_anywhere_comes_out_the_same(tmp_path, config, monkeypatch, dies, at):
    pace = Pace(log=1, evaluate=2, save=2)
    trainer(tmp_path / "whole", options(), config).run(pace)
    first = trainer(tmp_path / "parts", options(), config)
    kept = getattr(first, dies)

    def perhaps(*arguments):
        return killed() if first.step >= at else kept(*arguments)

    monkeypatch.setattr(first, dies, perhaps)
    with suppress(RuntimeError):
        first.run(pace)
    with (tmp_path / "parts" / LOG).open("a") as log:
        log.write('{"step": 99, "event": "tra')
    second = trainer(tmp_path / "parts", options(), config)
    second.resume()
    second.run(pace)
    whole, parts = ([_timeless(line) for line in events(tmp_path / name)] for name in ("whole", "parts"))
    assert parts == whole, "the log tells of each step once"
    states = [torch.load(tmp_path / name / STATE, weights_only=True)["model"] for name in ("whole", "parts")]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def _timeless(line: dict) -> dict:
    return {name: value for name, value in line.items() if name != "seconds"}


def test_without_a_state_an_earlier_log_is_kept_aside(tmp_path, config):
    (tmp_path / LOG).write_text('{"step": 5, "event": "train"}\n')
    run = trainer(tmp_path, options(steps=1), config)
    assert not run.resume() and run.run(QUIET)
    assert [line["step"] for line in events(tmp_path)] == [1, 1]
    assert (tmp_path / "log.old.jsonl").read_text() == '{"step": 5, "event": "train"}\n'


@pytest.mark.parametrize(
    ("changes", "about", "told"),
    [({"steps": 2}, {}, "steps: 1, not 2"), ({}, {"corpus": "b"}, "corpus"), ({"seed": 3}, {}, "seed: 0, not 3")],
)
def test_another_run_s_state_is_refused_and_kept(tmp_path, config, changes, about, told):
    trainer(tmp_path, options(steps=1), config, about={"corpus": "a"}).run(QUIET)
    before = (tmp_path / STATE).read_bytes()
    with pytest.raises(EngineError, match=f"other options .{told}"):
        trainer(tmp_path, options(**{"steps": 1, **changes}), config, about={"corpus": "a", **about}).resume()
    assert (tmp_path / STATE).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"junk\n", b"PK\x03\x04 cut"])
def test_a_damaged_state_is_one_sentence(tmp_path, config, content):
    (tmp_path / STATE).write_bytes(content)
    with pytest.raises(EngineError, match="cut or damaged"):
        trainer(tmp_path, options(), config).resume()
    torch.save({"model": {}}, tmp_path / STATE)
    with pytest.raises(EngineError, match="no state of a training run"):
        trainer(tmp_path, options(), config).resume()


def test_a_state_from_a_gpu_is_taken_up_on_a_cpu(tmp_path, config):
    trainer(tmp_path, options(), config).run(Pace(minutes=0))
    state = torch.load(tmp_path / STATE, weights_only=True)
    for group in state["optimizer"]["param_groups"]:
        group.update(fused=True, capturable=True, lr=torch.tensor(0.1))
    torch.save(state, tmp_path / STATE)
    run = trainer(tmp_path, options(), config)
    assert run.resume() and run.run(QUIET)
    assert all(isinstance(group["lr"], float) for group in run._optimizer.param_groups)


def test_a_run_that_diverged_stops_and_leaves_the_state_before(tmp_path, config):
    run = trainer(tmp_path, options(), config)
    run.run(Pace(log=1, save=1), until=2)
    before = (tmp_path / STATE).read_bytes()
    with torch.no_grad():
        run._model.norm.weight.fill_(float("nan"))
    with pytest.raises(EngineError, match="no longer a finite number at step 3"):
        run.run(Pace(log=50, save=1))
    assert (tmp_path / STATE).read_bytes() == before
    assert all(np.isfinite(line["loss"]) for line in events(tmp_path) if line["event"] == "train")


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path, config, place):
    (tmp_path / "file").write_text("")
    run = trainer(tmp_path / place, options(), config)
    with pytest.raises(EngineError, match="cannot be written"):
        run.run(QUIET)
    assert run.step == 0


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path, config, monkeypatch):
    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(trainers, "append_line", fails)
    with pytest.raises(EngineError, match="disk full"):
        trainer(tmp_path, options(), config).run(QUIET)


def test_a_save_that_fails_leaves_the_state_before(tmp_path, config, monkeypatch):
    run = trainer(tmp_path, options(steps=1), config)
    run.run(QUIET)
    before = (tmp_path / STATE).read_bytes()

    def fails(state, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(EngineError, match="disk full"):
        run.save()
    assert (tmp_path / STATE).read_bytes() == before
    assert not list(tmp_path.glob("*.part"))
