"""The same findings for any number of processes, any order, and any state of the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.sync.code import audit as audits
from dsv4prof.sync.code import work
from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.memo import Memo
from dsv4prof.sync.code.options import AuditOptions
from tests.unit.sync.code.snippets import write

BATCH = "import torch\nclass Batch:\n    lens: torch.Tensor\n    lens_cpu: torch.Tensor\n    total: int\n"
USE = """
    import torch
    from batch import Batch
    from part{other} import helper as other
    def helper(b: Batch, x):
        return other(b, x) if x is None else b.lens.cumsum(0)
    def forward(b: Batch):
        n = helper(b, None).max().item()
        return n, b.lens_cpu.tolist(), b.lens[b.lens > {number}]
    """


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {f"part{n}.py": USE.format(other=(n + 1) % 8, number=n) for n in range(8)}
    return write(tmp_path / "project", {"batch.py": BATCH, **files})


def test_one_process_or_two(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = audit(project, AuditOptions(jobs=1))
    monkeypatch.setattr(work, "_WORTH_A_PROCESS", 1)
    assert audit(project, AuditOptions(jobs=2)) == alone
    assert len(alone.found) == 16


def test_a_file_alone_has_the_findings_that_it_has_among_all(project: Path) -> None:
    everything = audit(project, AuditOptions(jobs=1)).found
    for path in ("part3.py", "part7.py"):
        some = audit(project, AuditOptions(jobs=1, paths=(project / path,))).found
        assert some == [one for one in everything if one.path == path]


def test_cold_warm_and_damaged_caches(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    options = AuditOptions(jobs=1, cache_dir=cache)
    cold = audit(project, options)
    assert cold == audit(project, AuditOptions(jobs=1))
    read: list[str] = []
    plain = audits.work.Part._facts
    monkeypatch.setattr(work.Part, "_facts", lambda self, path: (read.append(path), plain(self, path))[1])
    assert audit(project, options) == cold
    assert read == []
    (project / "part1.py").write_text((project / "part1.py").read_text() + "\n# more\n")
    changed = audit(project, options)
    assert (read, changed.found) == (["part1.py"], cold.found)
    (pack,) = cache.glob("*.pack")
    for damage in (b"", pack.read_bytes()[:-7], b"x" * 500):
        pack.write_bytes(damage)
        assert audit(project, options).found == cold.found


def test_a_cache_that_cannot_be_written_is_no_error(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert audit(project, AuditOptions(jobs=1, cache_dir=tmp_path / "file" / "below")).found


def test_options_that_change_findings_are_not_answered_from_the_cache(project: Path, tmp_path: Path) -> None:
    cached = AuditOptions(jobs=1, cache_dir=tmp_path / "cache")
    before = len(audit(project, cached).found)
    mirrored = audit(project, AuditOptions(jobs=1, cache_dir=tmp_path / "cache", mirrors=("lens",)))
    assert len(mirrored.found) < before


def test_answers_do_not_depend_on_who_asked_first() -> None:
    def asked(order: list[str]) -> dict[str, int]:
        memo = Memo()
        calls = {"a": "b", "b": "c", "c": "a"}

        def ask(name: str, level: int) -> int:
            return memo.ask(name, level, lambda deeper: 1 + ask(calls[name], deeper), 0)

        return {name: ask(name, 4) for name in order}

    assert asked(["a", "b", "c"]) == asked(["c", "b", "a"]) == {"a": 4, "b": 4, "c": 4}


def test_an_answer_that_needed_little_holds_for_every_level_above() -> None:
    memo, runs = Memo(), []
    for level in (5, 2, 1, 3):
        assert memo.ask("leaf", level, lambda deeper: runs.append(deeper) or 7, 0) == 7
    assert runs == [4]
