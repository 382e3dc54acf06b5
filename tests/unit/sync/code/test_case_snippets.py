"""Inputs of public reports, as the audit of source sees them at its usual level."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.values import LEVELS

SNIPPET = """\
import torch

def build_meta(req_idx, seq_lens, extend_lens, num_tokens):
    ids = torch.arange(req_idx.shape[0], device=req_idx.device)
    first = torch.repeat_interleave(ids, extend_lens)
    told = torch.repeat_interleave(ids, extend_lens, output_size=num_tokens)
    fixed = torch.repeat_interleave(ids, 4)
    method = ids.repeat_interleave(extend_lens)
    host = torch.repeat_interleave(torch.arange(3), torch.tensor([1, 2, 3]))
    where = torch.repeat_interleave(torch.arange(3), extend_lens)
    return first, told, fixed, method, host, where
"""


def _likely(folder: Path, text: str) -> list[tuple[int, str]]:
    (folder / "meta.py").write_text(text)
    found = audit(folder, AuditOptions(jobs=1)).found
    return [(each.line, each.code) for each in found if LEVELS.index(each.level) >= LEVELS.index("likely")]


def test_repeats_beside_a_device_tensor_are_on_the_device(tmp_path: Path) -> None:
    """One of them says `device=`; what is repeated beside a tensor without it may as well be on the host."""
    assert _likely(tmp_path, SNIPPET) == [(5, "DSV105"), (8, "DSV105")]


def test_the_snippet_of_the_hidden_sync(shared: Path, tmp_path: Path) -> None:
    text = (shared / "cases" / "36-repeat-interleave-hidden-sync" / "snippet.py").read_text()
    assert _likely(tmp_path, text) == [(6, "DSV105"), (9, "DSV105")]


def test_a_global_made_without_a_device_is_on_the_host(tmp_path: Path) -> None:
    text = """\
import torch

host = torch.zeros(4)
pinned = torch.empty(4, pin_memory=True)
there = torch.zeros(4, device="cuda")

def fill():
    host.copy_(torch.ones(4))
    pinned.copy_(torch.ones(4))
    there.copy_(torch.ones(4))
"""
    assert _likely(tmp_path, text) == [(10, "DSV108")]
