"""What the installed torch really records on a CPU for calls that read back on a GPU, and for their look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.model.finding import Finding
from dsv4prof.sync.trace import host_reads
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.merge import merge

torch = pytest.importorskip("torch")

# call -> (code, reads); None where a GPU would not wait.
CALLS: dict[str, tuple[str, int] | None] = {
    "x[0].item()": ("DSV101", 1),
    "int(x.max())": ("DSV101", 1),
    "x[: lens[1]]": ("DSV101", 1),
    "bool((x > 1).any())": ("DSV107", 1),
    "torch.equal(x, x + 1)": ("DSV107", 1),
    "torch.allclose(f, f + 1)": ("DSV107", 1),
    "rows.repeat_interleave(lens)": ("DSV105", 2),
    "torch.repeat_interleave(lens)": ("DSV105", 2),
    "torch.repeat_interleave(rows, lens, output_size=None)": ("DSV105", 2),
    "torch.repeat_interleave(rows, lens, output_size=6)": None,
    "rows.repeat_interleave(2)": None,
    "x[mask]": ("DSV105", 1),
    "f[f > 0]": ("DSV105", 1),
    "mask.nonzero()": ("DSV105", 1),
    "torch.where(mask)": ("DSV105", 1),
    "torch.masked_select(x, mask)": ("DSV105", 1),
    "torch.unique(x)": ("DSV105", 1),
    "torch.bincount(x)": ("DSV105", 2),
    "x.__setitem__(mask, x.sum())": ("DSV105", 1),
    "x.__setitem__(mask, 5)": None,
    "x.__setitem__(0, 5)": ("DSV108", 1),
    "f.__setitem__((rows, rows), 0.0)": ("DSV108", 1),
    "x.__setitem__(slice(1, 3), 5)": None,
    "torch.tensor([1, 2])": ("DSV108", 1),
    "x[[0, 1]]": ("DSV108", 1),
    "torch.full((3,), 1)": None,
    "torch.linalg.inv(f)": ("DSV101", 1),
    "torch.linalg.inv_ex(f)": None,
    "torch.multinomial(torch.softmax(f, -1), 1)": None,
    "f.masked_fill(f > 0, f[0, 0])": ("DSV101", 1),
    "f.masked_fill(f > 0, 0.0)": None,
    "x[rows]": None,
    "x.index_select(0, rows)": None,
    "torch.where(mask, x, 0)": None,
    "f.topk(2)": None,
    "x.to(torch.float32)": None,
    "torch.cumsum(x, 0)": None,
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Finding]]:
    """By call, from one recording of all of them."""
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("trace") / "rank0.json"
    with profile(activities=[ProfilerActivity.CPU]) as recording:
        for number, text in enumerate(CALLS):
            x = torch.arange(6)
            names = {
                "torch": torch,
                "x": x,
                "mask": x > 2,
                "lens": torch.tensor([1, 2, 3]),
                "rows": torch.arange(3),
                "f": torch.eye(4) + 0.1,
            }
            with record_function(f"call{number}"):
                eval(text, names)
    recording.export_chrome_trace(str(path))
    found: dict[str, list[Finding]] = {text: [] for text in CALLS}
    for finding in host_reads(merge([load_rank(Path(path))])):
        region = str(finding.evidence["region"])
        if region.startswith("call"):
            found[list(CALLS)[int(region.removeprefix("call"))]].append(finding)
    return found


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_seen_as_what_it_is(findings: dict[str, list[Finding]], text: str) -> None:
    expected = CALLS[text]
    seen = [(finding.code, finding.evidence["reads"]) for finding in findings[text]]
    assert seen == ([] if expected is None else [expected])
    assert all(finding.cost_ns is None for finding in findings[text])
