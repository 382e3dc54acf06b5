"""When an output_size is proven to be the exact sum, and what a fix may write where none is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sync.code.snippets import HEAD, audited

PROVEN = {
    "the sum of the list": """
        def f(r: torch.Tensor, lens: List[int]):
            return torch.repeat_interleave(r, torch.tensor(lens, device=r.device), output_size=sum(lens))
        """,
    "a local total": """
        def f(r: torch.Tensor, lens: List[int]):
            total = sum(lens)
            counts = torch.tensor(lens, device=r.device).to(torch.int64)
            return r.repeat_interleave(counts, output_size=total)
        """,
    "an attribute that nobody touches between": """
        def f(r: torch.Tensor, b):
            lens: List[int] = b.rows.tolist()
            counts = torch.tensor(lens, device=r.device)
            return r.repeat_interleave(counts, output_size=int(sum(lens)))
        """,
}
NOT_PROVEN = {
    "another list": """
        def f(r: torch.Tensor, lens: List[int], other: List[int]):
            return torch.repeat_interleave(r, torch.tensor(lens, device=r.device), output_size=sum(other))
        """,
    "the list grew": """
        def f(r: torch.Tensor, lens: List[int]):
            total = sum(lens)
            lens.append(3)
            return r.repeat_interleave(torch.tensor(lens, device=r.device), output_size=total)
        """,
    "an element was assigned": """
        def f(r: torch.Tensor, lens: List[int]):
            counts = torch.tensor(lens, device=r.device)
            lens[0] = 3
            return r.repeat_interleave(counts, output_size=sum(lens))
        """,
    "the total of the turn before": """
        def f(r: torch.Tensor, batches):
            total = 0
            for b in batches:
                lens: List[int] = b.tolist()
                counts = torch.tensor(lens, device=r.device)
                r = r.repeat_interleave(counts, output_size=total)
                total = sum(lens)
            return r
        """,
    "somebody else had the list": """
        def f(r: torch.Tensor, lens: List[int], change):
            total = sum(lens)
            change(lens)
            return r.repeat_interleave(torch.tensor(lens, device=r.device), output_size=total)
        """,
    "an element of a total": """
        def f(r: torch.Tensor, lens: List[int], n: int):
            return r.repeat_interleave(torch.tensor(lens, device=r.device), output_size=sum(lens) + n)
        """,
}


def hazards(folder: Path, body: str) -> list[str]:
    return [
        one.code
        for one in audited(folder, {"m.py": HEAD + body.replace("\n        ", "\n")}).found
        if one.code == "DSV201"
    ]


@pytest.mark.parametrize("case", PROVEN)
def test_proven(case: str, tmp_path: Path) -> None:
    assert hazards(tmp_path, PROVEN[case]) == []


@pytest.mark.parametrize("case", NOT_PROVEN)
def test_not_proven(case: str, tmp_path: Path) -> None:
    assert hazards(tmp_path, NOT_PROVEN[case]) == ["DSV201"]


@pytest.mark.parametrize(
    ("body", "total"),
    [
        ("def f(r: torch.Tensor, lens: List[int]):\n    c = torch.tensor(lens, device=r.device)\n", "sum(lens)"),
        (
            "def f(r: torch.Tensor, s: List[int]):\n    n = sum(s)\n    c = torch.tensor(s, device=r.device)\n",
            "n",
        ),
        ("def f(r: torch.Tensor, c: torch.Tensor, n: int):\n    lens = [n]\n", None),
    ],
)
def test_the_total_that_a_fix_may_write(body: str, total: str | None, tmp_path: Path) -> None:
    made = audited(tmp_path, {"m.py": HEAD + body + "    return r.repeat_interleave(c)\n"})
    (one,) = [one for one in made.found if one.form == "repeat-interleave-tensor"]
    assert one.facts.get("total") == total
