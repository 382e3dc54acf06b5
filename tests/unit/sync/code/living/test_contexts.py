"""`with gpu_sync_allowed():` allows what is in the block, and no more."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.sync.code.living.suppressions import sort_out
from tests.unit.sync.code.snippets import audited


def test_a_block_that_allows_syncs(tmp_path: Path) -> None:
    text = """
    import torch
    def f(x: torch.Tensor, y: torch.Tensor):
        with gpu_sync_allowed():
            n = x.item()

            if n:
                y.tolist()
        return y.tolist()
    """
    made = audited(tmp_path, {"m.py": text})
    result = sort_out(made.found, made.paths, lambda path: (tmp_path / path).read_bytes())
    assert [one.line for one in result.kept if one.level != "possible"] == [9]
    assert {each.found.line for each in result.suppressed} == {5, 8}
    assert {each.by.reason for each in result.suppressed} == {"within gpu_sync_allowed()"}
    assert result.idle == []
