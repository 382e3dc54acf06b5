"""Remarks are comments, belong to the right lines, and say what is wrong with them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from dsv4prof.sync.code.living.comments import Allowance, read_allowances, worth_reading


def one(text: str) -> Allowance:
    (remark,) = read_allowances(dedent(text))
    return remark


def test_a_trailing_remark_speaks_of_its_own_line() -> None:
    remark = one("a = 1\nn = x.item()  # dsv4prof: allow[DSV101] once at start-up\nb = 2\n")
    assert (remark.kind, remark.codes, remark.reason) == ("allow", ("DSV101",), "once at start-up")
    assert (remark.first, remark.last) == (2, 2)
    assert remark.covers("DSV101", 2)
    assert not remark.covers("DSV101", 3)
    assert not remark.covers("DSV102", 2)
    assert (remark.line, remark.column, remark.end_column) == (2, 15, 57)


def test_a_remark_alone_speaks_of_the_next_statement_past_comments_and_blank_lines() -> None:
    remark = one("""
        # dsv4prof: allow[DSV101] the warm-up needs it

        # and this explains more
        n = f(
            x.item(),
        )
        m = x.item()
    """)
    assert (remark.first, remark.last) == (5, 7)


def test_a_remark_inside_brackets_speaks_of_the_whole_statement() -> None:
    remark = one("""
        n = f(
            # dsv4prof: allow[DSV105] sizes are known to be few
            x.nonzero(),
            y,
        )
    """)
    assert (remark.first, remark.last) == (2, 6)


def test_the_header_of_a_compound_statement_is_not_its_body() -> None:
    remark = one("""
        if x.any():  # dsv4prof: allow[DSV107] debug only
            y.item()
    """)
    assert (remark.first, remark.last) == (2, 2)


def test_a_remark_for_the_file_speaks_of_every_line_and_of_its_codes_alone() -> None:
    remark = one("import a\n\nx = 1  # dsv4prof: allow-file[DSV101] compares results offline\n")
    assert remark.covers("DSV101", 1)
    assert remark.covers("DSV101", 999_999)
    assert not remark.covers("DSV102", 1)
    assert not one("# dsv4prof: allow-file[DSV101]\nx = 1\n").covers("DSV101", 2)
    assert "whole file" in one("# dsv4prof: allow-file[DSV101] protects=rows reason\nx = 1\n").fault


def test_a_remark_on_def_covers_no_function() -> None:
    remark = one("def f(x):  # dsv4prof: allow[DSV101] all of it\n    return x.item()\n")
    assert not remark.covers("DSV101", 2)


def test_several_codes_protects_and_other_remarks_in_one_comment() -> None:
    remark = one("x.item()  # noqa: E501  # dsv4prof: allow[DSV101, DSV107] protects=staging as in #29202\n")
    assert remark.codes == ("DSV101", "DSV107")
    assert (remark.protects, remark.reason) == ("staging", "as in #29202")
    assert not remark.fault


@pytest.mark.parametrize(
    ("comment", "fault"),
    [
        ("dsv4prof: allow[DSV105]", "gives no reason"),
        ("dsv4prof: allow[DSV105] ...", "gives no reason"),
        ("dsv4prof: allow[DSV105] protects=buf", "gives no reason"),
        ("dsv4prof: allow[DSV105] protects= why not", "names nothing"),
        ("dsv4prof: allow[] because", "names no rule"),
        ("dsv4prof: allow[DSV1] because", "'DSV1', which is no code"),
        ("dsv4prof: allow[E501] because", "'E501', which is no code"),
        ("dsv4prof: allow DSV105 because", "is not understood"),
        ("dsv4prof: allow DSV101 because", "is not understood: write allow[DSV101] and"),
        ("dsv4prof: allow[scalar-read] because", "names 'scalar-read', which is no code"),
        ("dsv4prof: ignore[DSV105] because", "is not understood"),
    ],
)
def test_a_remark_that_says_too_little_allows_nothing(comment: str, fault: str) -> None:
    remark = one(f"x.nonzero()  # {comment}\n")
    assert fault in remark.fault
    assert not remark.covers("DSV105", 1)


@pytest.mark.parametrize(
    ("comment", "codes"),
    [
        ("noqa", ()),
        ("NOQA", ()),
        ("noqa: DSV105", ("DSV105",)),
        ("noqa: E501, DSV105", ("DSV105",)),
        ("noqa: E501 DSV1", ("DSV1",)),
        ("noqa: DSV105 because it is rare", ("DSV105",)),
    ],
)
def test_noqa_with_and_without_codes(comment: str, codes: tuple[str, ...]) -> None:
    remark = one(f"x.nonzero()  # {comment}\n")
    assert (remark.kind, remark.codes) == ("noqa", codes)
    assert remark.covers("DSV105", 1)
    assert remark.can_be_unused is bool(codes)


@pytest.mark.parametrize("comment", ["noqa: E501", "noqa: BLE001 DSVsomething", "noqa:", "nothing about noqa here"])
def test_other_tools_noqa_is_none_of_ours(comment: str) -> None:
    assert read_allowances(f"x.nonzero()  # {comment}\n") == []


def test_noqa_alone_on_its_line_speaks_of_nothing() -> None:
    assert not one("# noqa\nx.nonzero()\n").covers("DSV105", 2)


def test_the_remark_of_vllm() -> None:
    remark = one("n = x.item()  # gpu-sync-ok: the count is needed here\n")
    assert (remark.kind, remark.reason) == ("gpu-sync-ok", "the count is needed here")
    assert remark.covers("DSV101", 1)
    assert not remark.can_be_unused


def test_what_looks_like_a_remark_in_a_string_is_none() -> None:
    text = 'DOC = """\nx.item()  # dsv4prof: allow[DSV101] no\n"""\nS = "# noqa"\n'
    assert worth_reading(text.encode())
    assert read_allowances(text) == []


@pytest.mark.parametrize(
    "text",
    ["x.item()  # dsv4prof: allow[DSV101] fine\ny = (\n", "x.item()  # dsv4prof: allow[DSV101] fine\n  if:\n y\n"],
)
def test_a_broken_end_keeps_what_stands_before_it(text: str) -> None:
    assert [remark.reason for remark in read_allowances(text)] == ["fine"]


def test_files_without_a_mark_are_not_read() -> None:
    assert not worth_reading(b"x = 1  # noqa: E501\n# a comment on syncs\n", [(1, 2)])
    assert worth_reading(b"x = 1  # noqa: E501, DSV105\n")
    assert worth_reading(b"x = 1  # gpu-sync-ok: so\n")
    assert not worth_reading(b"\n\nx = 1  # noqa\n"), "no finding could be meant"
    assert not worth_reading(b"\n\nx = 1  # noqa\n", [(1, 2), (4, 9)])
    assert worth_reading(b"\n\nx = 1  # NOQA\n", [(2, 3)])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_every_system(end: str) -> None:
    remark = one(f"a = 1{end}x.item()  # dsv4prof: allow[DSV101] once{end}")
    assert (remark.first, remark.last, remark.reason) == (2, 2, "once")
