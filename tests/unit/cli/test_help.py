"""Every command's help fits a screen, and what it promises works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dsv4prof.cli import console
from dsv4prof.cli.app import app
from dsv4prof.model.session import Outcome, RankCoordinates, RankRecord, WindowRecord
from dsv4prof.recorder.sessions import assemble, create_session
from dsv4prof.recorder.sink import write_record
from dsv4prof.settings import SETTINGS
from traces import document, op, write


def _walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, (*words, name))


EVERY = list(_walk(typer.main.get_command(app)))
# Groups only hold others, and have no settings.
LEAVES = [words for words in EVERY if not any(other[:-1] == words for other in EVERY if other)]

WITHOUT_SESSIONS = ("rule", "truth", "bench")


def knows_sessions(words: tuple[str, ...]) -> bool:
    return words[0] not in WITHOUT_SESSIONS and words not in (
        ("fault", "hang"),
        ("hazards", "engine"),
        ("hazards", "explain"),
    )


def call(*words: str) -> int:
    return console.guarded(lambda: app(list(words), standalone_mode=False))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which one session of two ranks was recorded."""
    folder = create_session(tmp_path / "traces" / "local", name="n", world_size=2)
    for rank in range(2):
        events = [op("aten::add", 10 * i, 5) for i in range(4)]
        trace = write(folder / f"rank{rank}.trace.json", document(events, rank=rank, world=2))
        here = RankCoordinates(rank=rank, world_size=2)
        window = WindowRecord(steps=1, trace=trace.name)
        write_record(folder, RankRecord(coordinates=here, outcome=Outcome.COMPLETE, windows=[window]))
    assemble(folder)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help_fits_a_screen_of_80_columns(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call(*words, "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 61
    assert max(len(line) for line in lines) <= 80
    assert [line[:13] for line in lines[-3:]] == ["  Examples:", "    dsv4prof ", "    dsv4prof "]
    many = ("  INPUTS...", "  PATHS...", "  SERVE...", "  LOG...", "  CMD...")
    assert not any("..." in line for line in lines[1:] if not line.startswith(many)), "a summary was cut"
    assert not any(mark in "\n".join(lines) for mark in ("{", "<", "TEXT"))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_an_option_takes_one_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    call(*words, "--help")
    lines = capsys.readouterr().out.split("Options [defaults]:\n")[1].split("\n\n")[0].splitlines()
    assert all(line.lstrip().startswith("-") for line in lines)
    assert len({len(line) - len(line.split("  ", 2)[-1].lstrip()) for line in lines}) == 1, "aligned"


def test_help_lines_of_settings_are_short() -> None:
    assert {name for name, setting in SETTINGS.items() if len(setting.help) > 48} == set()


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_shows_its_settings_and_does_nothing(
    words: tuple[str, ...], workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSV4PROF_SESSIONS_DIR", "elsewhere")
    before = sorted(workspace.rglob("*"))
    assert call(*words, "--show-settings", "--format", "json") == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    if knows_sessions(words):
        assert settings["sessions_dir"] == {"value": "elsewhere", "source": "DSV4PROF_SESSIONS_DIR"}
    assert settings["format"] == {"value": "json", "source": "--format"}
    assert sorted(workspace.rglob("*")) == before
    assert call(*words, "--show-settings") == 0
    assert ("SESSIONS_DIR" in capsys.readouterr().out) == knows_sessions(words)


def test_what_is_not_set_is_shown_as_nothing(capsys: pytest.CaptureFixture[str], workspace: Path) -> None:
    assert call("run", "--show-settings") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("threads")]
    assert line.split() == ["threads", "-", "default"]


def test_what_a_command_needs_is_still_needed_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("merge", "--show-settings") == 0
    assert call("merge") == 2
    assert "INPUTS" in capsys.readouterr().err.upper()


# What they need is more than a workspace: a run, a while, a server, a repository, a device.
ELSEWHERE = (
    (), ("run",), ("doctor",), ("attach",), ("view",), ("query",), ("audit",), ("audit", "code"),
    ("truth",), ("truth", "measure"), ("truth", "compare"), ("truth", "check"), ("serve",), ("bench",), ("fault",),
    ("fault", "show"), ("fault", "hang"), ("audit", "run"), ("hazards",), ("hazards", "engine"),
    ("hazards", "explain"), ("hazards", "command"),
)  # fmt: skip


@pytest.mark.parametrize("words", [words for words in EVERY if words not in ELSEWHERE], ids=" ".join)
def test_the_examples_work_as_printed(
    words: tuple[str, ...], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(*words, "--help")
    for line in capsys.readouterr().out.splitlines()[-2:]:
        assert call(*line.split()[1:]) == 0, line


def test_threads_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("dsv4prof.api.run", lambda spec, **_: seen.append(spec))
    assert call("run", "--threads", "3") == 0
    assert seen[0].threads == 3


def test_settings_reach_the_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    seen: list[Any] = []
    monkeypatch.setattr("dsv4prof.api.serve", lambda spec, **_: seen.append(spec))
    for name, value in (("TP", "2"), ("PORT", "30000"), ("SERVE_HOST", "::1"), ("SERVE_MAX_BODY_MB", "3")):
        monkeypatch.setenv(f"DSV4PROF_{name}", value)
    assert (
        call("serve", "--port", "30001", "--model-name", "m", "--max-queue", "7", "--grace", "1", "--api-key", "k") == 0
    )
    (spec,) = seen
    assert (spec.engine.tp, spec.engine.dp, spec.port, spec.host) == (2, 1, 30001, "::1")
    assert (spec.model_name, spec.max_queue, spec.max_body_mb, spec.grace_s, spec.api_key) == ("m", 7, 3, 1.0, "k")
    assert spec.engine.settings["tp"] == [2, "DSV4PROF_TP"] and "api_key" not in spec.engine.settings
    monkeypatch.delenv("DSV4PROF_TP")
    assert call("serve") == 0 and seen[1].engine.tp == 1 and seen[1].engine.settings["tp"] == [1, "default"]
    assert call("serve", "--dp", "2") == 2 and "No such option: --dp" in capsys.readouterr().err
    assert call("serve", "--show-settings", "--api-key", "secret") == 0
    shown = capsys.readouterr().out
    assert "serve_max_queue" in shown and "secret" not in shown


def test_replicas_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("dsv4prof.api.run", lambda spec, **_: seen.append(spec))
    assert call("run", "--dp", "2", "--tp", "1") == 0
    assert (seen[0].dp, seen[0].tp) == (2, 1)
