"""What a shell may do to the command's streams, and what the help may cost a reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from traces import document, op, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "rank0.trace.json", document([op("aten::add", 10 * i, 5) for i in range(4)], rank=0))


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `line` in a shell; `CLI` in it is the command line under test."""
    line = line.replace("CLI", f"{sys.executable} -m dsv4prof")
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", ["--version", "--help", "run --help", "", "sessions", "analyze rank0.trace.json"])
def test_a_reader_that_has_gone_is_no_failure(command: str, trace: Path) -> None:
    child = shell(f"(sleep 0.01; CLI {command}; echo status $? >&2) | true", trace.parent)
    assert child.stderr.strip() == "status 0"


@pytest.mark.parametrize(("redirect", "why"), [("> /dev/full", "No space left on device"), (">&-", "is closed")])
@pytest.mark.parametrize("command", ["--version", "run --help", "analyze rank0.trace.json"])
def test_a_result_that_cannot_be_written_is_one_sentence(command: str, redirect: str, why: str, trace: Path) -> None:
    child = shell(f"CLI {command} {redirect}", trace.parent)
    assert child.returncode == 2
    error, hint = child.stderr.splitlines()
    assert error.startswith("error: cannot write the result: ")
    assert why in error
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("redirect", ["2>&-", "2> /dev/full"])
def test_without_stderr_the_status_and_the_result_stay_right(redirect: str, trace: Path) -> None:
    fine = shell(f"CLI analyze rank0.trace.json --format json {redirect}", trace.parent)
    assert fine.returncode == 0
    assert '"kind":"analyze"' in fine.stdout.replace(" ", "")
    refused = shell(f"CLI analyze nowhere {redirect}", trace.parent)
    assert (refused.returncode, refused.stdout) == (2, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_result_goes_to_a_terminal_that_cannot_hold_all_of_it(encoding: str, trace: Path) -> None:
    child = shell(f"PYTHONIOENCODING={encoding} CLI merge rank0.trace.json -o out.json", trace.parent)
    assert (child.returncode, child.stderr) == (0, "")
    assert "? out.json: 4 slices" in child.stdout


@pytest.mark.parametrize(
    ("command", "word"),
    [("merge", "'INPUTS'"), ("sessions show", "'SESSION'"), ("run --steps", "--steps"), ("run --tp x", "--tp"),
     ("sessions prune", "--keep"), ("nonsense", "nonsense"), ("merge x --bogus", "--bogus")],
)  # fmt: skip
def test_a_mistyped_command_is_told_where_the_help_is(command: str, word: str, tmp_path: Path) -> None:
    child = shell(f"CLI {command}", tmp_path)
    error, hint = child.stderr.splitlines()
    assert (child.returncode, child.stdout) == (2, "")
    assert error.startswith("error: ")
    assert word in error
    assert hint.startswith("hint: ")
    assert "dsv4prof" in hint
    assert hint.endswith("--help")


@pytest.mark.parametrize("call", ["typer.Exit(130)", "typer.Abort()", "KeyboardInterrupt"])
@pytest.mark.parametrize("command", ["analyze", "merge"])
def test_an_interrupt_is_said_in_one_sentence(command: str, call: str, trace: Path) -> None:
    code = f"""
import typer
from dsv4prof import api
from dsv4prof.cli.app import main
def interrupt(*args, **kw):
    raise {call}
api.{command} = interrupt
main()
"""
    line = [sys.executable, "-c", code, command, trace.name]
    child = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=trace.parent)
    assert (child.returncode, child.stdout, child.stderr) == (130, "", "error: interrupted\n")
