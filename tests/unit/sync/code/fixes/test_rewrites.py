"""Automatic fixes are right for every value that they touch, and leave alone what might differ."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("libcst")

from dsv4prof.errors import InputError
from dsv4prof.sync.code.fixes.apply import fix
from dsv4prof.sync.code.found import Found


def found_at(source: str, snippet: str, **facts: str) -> Found:
    """A finding at the first place of `snippet`, as the detector places it: columns in UTF-8 bytes."""
    start = source.index(snippet)
    line = source.count("\n", 0, start) + 1
    column = len(source[source.rfind("\n", 0, start) + 1 : start].encode())
    end_line = line + snippet.count("\n")
    return Found(
        path="a.py", line=line, end_line=end_line, column=column, end_column=0, statement_line=line,
        statement_end=end_line, code="DSV108", form="x", level="certain", function="f", text=snippet, reason="",
        facts=facts,
    )  # fmt: skip


def mended(source: str, snippet: str, **facts: str) -> str:
    return fix("a.py", source.encode(), [found_at(source, snippet, **facts)]).content.decode()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.tensor([0] * 4, device=d)", "torch.full((4,), 0, device=d)"),
        ("torch.tensor(4 * [1.5], device=d)", "torch.full((4,), 1.5, device=d)"),
        ("torch.tensor([True, True], device=d)", "torch.full((2,), True, device=d)"),
        ("torch.tensor(7, device=d)", "torch.full((), 7, device=d)"),
        ("torch.tensor([-1] * len(x), dtype=t, device=d)", "torch.full((len(x),), -1, dtype=t, device=d)"),
        ("torch.as_tensor([2] * x.shape[0], dtype=t, device=d)", "torch.full((x.shape[0],), 2, dtype=t, device=d)"),
    ],
)  # fmt: skip
def test_equal_numbers_are_filled_on_the_device(call: str, expected: str) -> None:
    assert mended(f"y = {call}  # why\n", call, list="fill") == f"y = {expected}  # why\n"


@pytest.mark.parametrize(
    "call",
    [
        "torch.tensor([0] * len(x), device=d)",  # empty: float32 in one form, int64 in the other
        "torch.tensor([0] * n, dtype=t, device=d)",  # a negative n
        "torch.tensor([0, 1], device=d)",
        "torch.tensor([0, 0.0], device=d)",  # the list is float32, its first element an int
        "torch.tensor([1, True], device=d)",
        "torch.tensor([k] * 4, device=d)",
        "torch.tensor([0] * 0, device=d)",
        "torch.tensor([1e30] * 4, dtype=t, device=d)",  # torch.full refuses it for float16
        "torch.tensor([0] * 4, pin_memory=True, device=d)",
        "torch.tensor([*x], device=d)",
        "torch.tensor([0] * 4)",
        "tensor([0] * 4, device=d)",
        "torch.tensor(data=[0] * 4, device=d)",
    ],
)
def test_what_might_differ_is_left_alone(call: str) -> None:
    assert mended(f"y = {call}\n", call, list="fill") == f"y = {call}\n"


def test_an_element_is_filled() -> None:
    assert mended("if a:\n    x[0] = 5; y = 1\n", "x[0]", receiver="tensor") == "if a:\n    x[0].fill_(5); y = 1\n"
    assert mended("m[0, -1] = -2.5\n", "m[0, -1]", receiver="tensor") == "m[0, -1].fill_(-2.5)\n"


@pytest.mark.parametrize("source", ["x[0] = y\n", "x[0] = z[0] = 5\n", "x[0] += 5\n"])
def test_other_assignments_stay(source: str) -> None:
    assert mended(source, "x[0]", receiver="tensor") == source


def test_the_exact_total_is_given_in_the_layout_of_the_call() -> None:
    flat = "y = torch.repeat_interleave(x, t)  # note\n"
    assert (
        mended(flat, "torch.repeat_interleave(x, t)", total="sum(lens)")
        == "y = torch.repeat_interleave(x, t, output_size=sum(lens))  # note\n"
    )
    tall = "y = torch.repeat_interleave(\n    x,\n    t,  # counts\n)\n"
    wanted = "y = torch.repeat_interleave(\n    x,\n    t,  # counts\n    output_size=n,\n)\n"
    result = mended(tall, tall[4:-1], total="n")
    assert ast.dump(ast.parse(result)) == ast.dump(ast.parse(wanted))
    assert "# counts" in result
    none = "y = x.repeat_interleave(t, output_size=None)\n"
    assert mended(none, none[4:-1], total="n") == "y = x.repeat_interleave(t, output_size=n)\n"


def test_without_proof_nothing_is_touched() -> None:
    source = "y = torch.repeat_interleave(x, t)\n"
    assert mended(source, source[4:-1]) == source


def test_bytes_outside_the_edit_stay() -> None:
    source = "\ufeff# café\r\nx = 'é'; y = torch.tensor([0] * 4, device=d)\r\n"
    result = fix("a.py", source.encode(), [found_at(source, "torch.tensor([0] * 4, device=d)", list="fill")])
    assert result.content == source.replace("torch.tensor([0] * 4,", "torch.full((4,), 0,").encode()
    assert "+x = 'é'; y = torch.full((4,), 0, device=d)" in result.diff("src/")
    assert "--- a/src/a.py" in result.diff("src/")


def test_nested_findings_are_all_mended() -> None:
    source = "y = torch.repeat_interleave(torch.tensor([1] * 4, device=d), t)\n"
    items = [
        found_at(source, "torch.repeat_interleave(torch.tensor([1] * 4, device=d), t)", total="n"),
        found_at(source, "torch.tensor([1] * 4, device=d)", list="fill"),
    ]
    result = fix("a.py", source.encode(), items)
    assert result.content == b"y = torch.repeat_interleave(torch.full((4,), 1, device=d), t, output_size=n)\n"
    assert len(result.edits) == 2


def test_a_file_with_broken_syntax_is_refused_in_a_sentence() -> None:
    source = "y = torch.tensor([0] * 4, device=d)\ndef (\n"
    with pytest.raises(InputError, match=r"cannot fix a\.py"):
        mended(source, "torch.tensor([0] * 4, device=d)", list="fill")


def test_both_forms_give_the_same_tensors() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    numbers = (0, 1, 5, 127, 200, 300, -1, True, False, 0.0, 1.5, -2.5, 65_504.0)
    kinds = (
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.int8,
        torch.bool,
        torch.float32,
        torch.float16,
        torch.bfloat16,
    )
    for number in numbers:
        assert torch.tensor([number] * 2).dtype == torch.full((2,), number).dtype
        assert torch.tensor(number).dtype == torch.full((), number).dtype
        for dtype in kinds:
            listed = _result(partial(torch.tensor, [number] * 3, dtype=dtype))
            assert listed == _result(partial(torch.full, (3,), number, dtype=dtype)), (number, dtype)
            assigned, filled = torch.zeros(3, dtype=dtype), torch.zeros(3, dtype=dtype)
            refused = _result(partial(assigned.__setitem__, 1, number)) == "refused"
            assert (_result(partial(filled[1].fill_, number)) == "refused") is refused
            assert torch.equal(assigned, filled), (number, dtype)


def _result(call: Callable[[], Any]) -> object:
    """What the call gives as numbers, or that it refuses."""
    try:
        value = call()
    except RuntimeError:
        return "refused"
    return value.tolist() if value is not None else None
