"""The pass over a region names the line of the call, where a trace names only the function."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.model.session import CallSite  # noqa: E402
from dsv4prof.sync.runtime.region import RegionCalls  # noqa: E402

BUILDER = """\
import torch


def attach(lens, exact):
    rows = torch.arange(lens.numel())
    total = {"output_size": 9} if exact else {}
    return torch.repeat_interleave(
        rows, lens, **total
    )
"""
CALL_LINE = 7


def builder_in(folder: Path, text: str) -> ModuleType:
    path = folder / "metadata.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("metadata_copy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sites_of(module: ModuleType, *, exact: bool, times: int = 1) -> list[CallSite]:
    calls = RegionCalls()
    lens = torch.tensor([2, 3, 4])
    for _ in range(times):
        with calls.region("attach_prefill_meta"):
            module.attach(lens, exact)
    torch.repeat_interleave(torch.arange(3), lens)
    return [site for site in calls.call_sites() if site.op == "aten::repeat_interleave"]


@pytest.mark.parametrize(("exact", "keywords"), [(False, {}), (True, {"output_size": "9"})])
def test_the_call_its_line_and_its_keywords(tmp_path: Path, exact: bool, keywords: dict[str, str]) -> None:
    module = builder_in(tmp_path, BUILDER)
    (site,) = sites_of(module, exact=exact, times=2)
    assert site == CallSite(
        region="attach_prefill_meta", op="aten::repeat_interleave", overload="Tensor",
        file=str(tmp_path / "metadata.py"), line=CALL_LINE, function="attach", calls=2, keywords=keywords,
    )  # fmt: skip


def test_five_lines_above_move_the_line_by_five(tmp_path: Path) -> None:
    moved = BUILDER.replace("def attach", "# one\n# two\n# three\n# four\n# five\ndef attach")
    (site,) = sites_of(builder_in(tmp_path, moved), exact=False)
    assert site.line == CALL_LINE + 5


def test_a_scalar_read_is_seen_with_its_line() -> None:
    calls = RegionCalls()
    with calls.region("r"):
        value = torch.ones(3).sum().item()
    assert value == 3
    (read,) = [site for site in calls.call_sites() if site.op == "aten::_local_scalar_dense"]
    assert read.function == "test_a_scalar_read_is_seen_with_its_line"
    assert Path(read.file).name == "test_region.py"


def test_calls_made_inside_torchs_own_python_are_told_at_our_line() -> None:
    calls = RegionCalls()
    with calls.region("r"):
        torch.nn.functional.layer_norm(torch.ones(2, 4), (4,))
    assert {site.function for site in calls.call_sites()} == {
        "test_calls_made_inside_torchs_own_python_are_told_at_our_line"
    }


def test_tensor_keywords_are_not_read() -> None:
    calls = RegionCalls()
    with calls.region("r"):
        torch.zeros(2, dtype=torch.int64)
        torch.add(torch.ones(2), torch.ones(2), out=torch.empty(2))
    by_op = {site.op: site.keywords for site in calls.call_sites()}
    assert by_op["aten::zeros"]["dtype"] == "torch.int64"
    assert "aten::_local_scalar_dense" not in by_op


def test_the_innermost_region_counts_and_nothing_outside_is_seen() -> None:
    calls = RegionCalls()
    torch.ones(1)
    with calls.region("outer"):
        torch.ones(2)
        with calls.region("inner"):
            torch.ones(3)
    torch.ones(4)
    assert [(site.region, site.calls) for site in calls.call_sites()] == [("inner", 1), ("outer", 1)]
