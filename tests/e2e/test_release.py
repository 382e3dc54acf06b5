"""A profiler that somebody still holds is told loudly: in the report, by the exit status, with the holder's name."""

from __future__ import annotations

from pathlib import Path

from child import SMALL, dsv4prof

# Loaded by every Python process of the run; a thread waits for torch's profiler and keeps each one that is prepared.
HOLDER = '''
import sys, threading, time

KEPT_ON_PURPOSE = []


def hold():
    while not hasattr(sys.modules.get("torch.profiler.profiler"), "profile"):
        time.sleep(0.005)
    kind = sys.modules["torch.profiler.profiler"].profile
    prepare = kind.prepare_trace

    def prepare_trace(self):
        KEPT_ON_PURPOSE.append(self)
        return prepare(self)

    kind.prepare_trace = prepare_trace


threading.Thread(target=hold, daemon=True).start()
'''


def test_a_held_profiler_fails_the_run_and_names_the_holder(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOLDER)
    environment = {"PYTHONPATH": str(tmp_path)}
    outcome = dsv4prof("run", "--profile", "--tp", "1", *SMALL, "--name", "held", cwd=workspace, env=environment)
    assert outcome.status == 1, outcome.stderr
    assert "PROFILER NOT RELEASED on rank 0" in outcome.stdout
    assert "KEPT_ON_PURPOSE" in outcome.stdout
    assert "DSV002" in outcome.stdout
    assert "✓ profiler released" not in outcome.stdout
