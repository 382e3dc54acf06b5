"""A reference that somebody keeps inside a rank: the run goes on, and the session says who holds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("objgraph")

from dsv4prof.model.session import Outcome
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.launch import run
from dsv4prof.target.spec import RunSpec

KEEPER = """
import sys
if "dsv4prof.target.worker" in " ".join(sys.orig_argv):
    import dsv4prof.recorder.backends.kineto as kineto
    KEPT = []
    prepare = kineto.KinetoBackend.prepare
    def keeping(self):
        prepare(self)
        KEPT.append(self._profiler)
    kineto.KinetoBackend.prepare = keeping
"""


def test_a_holder_inside_a_rank_reaches_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(KEEPER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(":"))
    plan, root = RecordPlan(active=2), str(tmp_path / "s")
    spec = RunSpec(model="dsv4-tiny", requests=2, max_requests=2, max_new_tokens=6, profile=True, plan=plan, root=root)
    folder, session = run(spec)
    (rank,) = session.ranks
    assert session.outcome is Outcome.COMPLETE, "the trace is whole all the same"
    assert (folder / str(rank.trace)).is_file()
    assert rank.release is not None
    assert not rank.release.freed
    assert rank.release.holders == [
        "torch.profiler.profile: module sitecustomize -> dict['KEPT'] -> list[0] -> profile"
    ]
