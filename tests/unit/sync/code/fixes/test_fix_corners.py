"""Files as people write them: remarks in the middle of calls, other encodings, builtins with other meanings."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from dsv4prof.api.audit_fixes import plan_fixes
from dsv4prof.api.audit_targets import targets
from dsv4prof.sync.code.fixes.apply import FixedFile, fix
from dsv4prof.sync.code.found import Found

LIST = "torch.tensor([0] * len(x), dtype=torch.int32, device=d)"


def found_at(source: str, snippet: str, path: str = "a.py", **facts: str) -> Found:
    start = source.index(snippet)
    line = source.count("\n", 0, start) + 1
    column = len(source[source.rfind("\n", 0, start) + 1 : start].encode())
    end_line = line + snippet.count("\n")
    return Found(
        path=path, line=line, end_line=end_line, column=column, end_column=0, statement_line=line,
        statement_end=end_line, code="DSV108", form="x", level="certain", function="f", text=snippet, reason="",
        facts=facts or {"list": "fill"},
    )  # fmt: skip


def mended(source: str, snippet: str, **facts: str) -> str:
    return fix("a.py", source.encode(), [found_at(source, snippet, **facts)]).content.decode()


def test_a_remark_within_the_call_stays_once() -> None:
    call = "torch.tensor(\n    [0] * 4,  # why\n    device=d,\n)"
    assert mended(f"y = {call}\n", call) == "y = torch.full(\n    (4,), 0,  # why\n    device=d,\n)\n"


def test_columns_of_a_file_that_is_no_utf_8() -> None:
    source = f"# -*- coding: latin-1 -*-\n'é'; y = {LIST}\n"
    result = fix("a.py", source.encode("latin-1"), [found_at(source, LIST)])
    assert result.content == source.replace(LIST, LIST.replace("tensor([0] * len(x)", "full((len(x),), 0")).encode(
        "latin-1"
    )


@pytest.mark.parametrize(
    "before", ["def f(len, x):\n    ", "from m import len\n", "def len(x): return -1\n", "len = max\n", "key = len\n"]
)
def test_a_len_that_may_be_another_is_left_alone(before: str) -> None:
    source = f"{before}y = {LIST}\n"
    assert mended(source, LIST) == source


def test_a_sum_that_may_be_another_is_left_alone() -> None:
    call = "torch.repeat_interleave(a, t)"
    assert "output_size" in mended(f"y = {call}\n", call, total="sum(x)")
    source = f"from numpy import sum\ny = {call}\n"
    assert mended(source, call, total="sum(x)") == source
    assert "output_size=n" in mended(source, call, total="n")


@pytest.mark.parametrize("call", ["[300] * 4, dtype=t", "[0.0] * 4, dtype=t", "[500.0] * 4, dtype=torch.float8_e4m3fn"])
def test_numbers_that_an_8_bit_float_takes_in_one_form_alone(call: str) -> None:
    source = f"y = torch.tensor({call}, device=d)\n"
    assert mended(source, source[4:-1]) == source


def test_small_whole_numbers_are_the_same_for_every_dtype() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    kinds = [getattr(torch, name) for name in dir(torch) if name.startswith("float8") or name in ("uint16", "uint32")]
    assert len(kinds) > 4

    def same(number: float, dtype: object) -> bool:
        try:
            listed = torch.tensor([number] * 2, dtype=dtype)
        except (RuntimeError, OverflowError):
            # A program that ran did not get here.
            return True
        try:
            filled = torch.full((2,), number, dtype=dtype)
        except RuntimeError:
            return False
        return torch.equal(listed.view(torch.uint8), filled.view(torch.uint8))

    for dtype in kinds:
        assert [n for n in range(-240, 241) if not same(n, dtype)] == [], dtype
    assert not all(map(partial(same, 300), kinds))


def test_a_patch_of_a_file_with_a_form_feed_applies(tmp_path: Path) -> None:
    source = f"x = 1\n\x0c\ny = {LIST}\n\x0cz = 1"
    (tmp_path / "a.py").write_bytes(source.encode())
    result = fix("a.py", source.encode(), [found_at(source, LIST)])
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=result.diff().encode(), check=True)
    assert (tmp_path / "a.py").read_bytes() == result.content


def test_one_file_that_cannot_be_mended_stops_no_other(tmp_path: Path) -> None:
    good, bad = f"y = {LIST}\n", f"y = {LIST}\ndef (\n"
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "bad.py").write_text(bad)
    items = [found_at(good, LIST, "good.py"), found_at(bad, LIST, "bad.py")]
    planned, notes = plan_fixes(targets([str(tmp_path)]), items)
    assert [file.path for file in planned if isinstance(file, FixedFile)] == ["good.py"]
    assert notes == ["cannot fix bad.py: its syntax cannot be read"]
