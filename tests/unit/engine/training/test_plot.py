"""A picture of runs' losses."""

from __future__ import annotations

import json

import pytest

from dsv4_engine.training import __main__ as command
from dsv4_engine.training import plot
from dsv4_engine.training.log import read_log


def log(path, *, drafts: bool) -> None:
    lines = [
        {"step": step, "tokens": 1000 * step, "event": "train", "loss": 3 / step}
        | ({"main": 2 / step, "draft_1": 4 / step} if drafts else {})
        | ({"draft_2": 5 / step} if drafts and step > 2 else {})
        for step in range(1, 5)
    ]
    lines += [{"step": step, "tokens": 0, "event": "held_out/code", "nats": 1 / step} for step in (2, 4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_curves_and_the_last_held_out_figures_are_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    drawn, bars = {}, {}
    monkeypatch.setattr(Axes, "plot", _noting(Axes.plot, lambda a, k: drawn.update({k["label"]: list(a[1])})))
    monkeypatch.setattr(Axes, "bar", _noting(Axes.bar, lambda a, k: bars.update({k["label"]: list(a[1])})))
    log(tmp_path / "nano.jsonl", drafts=True)
    log(tmp_path / "plain.jsonl", drafts=False)
    runs = [f"{name}={tmp_path / name}.jsonl" for name in ("nano", "plain")]
    assert command.main(["plot", str(tmp_path / "out.png"), *runs]) == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert set(drawn) == {"nano: next token", "nano: draft 1", "nano: draft 2", "plain: next token"}
    assert drawn["nano: next token"] == pytest.approx([2.885, 1.443, 0.962, 0.721], abs=1e-3)
    assert len(drawn["nano: draft 2"]) == 2
    assert bars == {"nano": pytest.approx([0.361], abs=1e-3), "plain": pytest.approx([0.361], abs=1e-3)}


def _noting(method, note):
    def called(self, *arguments, **named):
        note(arguments, named)
        return method(self, *arguments, **named)

    return called


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read"),
        ("no json", "cannot be read"),
        ("no json\n", "cannot be read"),
        ("[1]\n", "cannot be read"),
        ("", "tells of no training"),
        ('{"event": "held_out/code", "nats": 1}\n', "tells of no training"),
    ],
)
def test_logs_that_are_none_are_refused(tmp_path, capsys, content, complaint):
    path = tmp_path / "log.jsonl"
    if content is not None:
        path.write_text(content)
    assert command.main(["plot", str(tmp_path / "out.png"), f"run={path}"]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "out.png").exists()


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path):
    pytest.importorskip("matplotlib")
    log(tmp_path / "log.jsonl", drafts=False)
    runs = {"run": read_log(tmp_path / "log.jsonl")}
    with pytest.raises(plot.EngineError, match="cannot be written"):
        plot.draw(runs, tmp_path / "out.words")


def test_a_log_that_is_being_written_is_read_to_its_last_whole_line(tmp_path):
    log(tmp_path / "log.jsonl", drafts=False)
    whole = read_log(tmp_path / "log.jsonl")
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 5, "eve')
    assert read_log(tmp_path / "log.jsonl") == whole


def test_two_runs_of_one_name_are_refused(tmp_path, capsys):
    log(tmp_path / "log.jsonl", drafts=False)
    assert command.main(["plot", str(tmp_path / "out.png"), *[str(tmp_path / "log.jsonl")] * 2]) == 2
    assert f"two runs are called {tmp_path.name}" in capsys.readouterr().err
