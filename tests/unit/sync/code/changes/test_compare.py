"""A removed sync is fixed only when its replacement is proven and nothing near it could have needed the wait."""

from __future__ import annotations

import ast

import msgspec

from dsv4prof.sync.code.changes.compare import Change, Protected, compare
from dsv4prof.sync.code.changes.git import ChangedFile, ChangeSet
from dsv4prof.sync.code.found import Audit, Found, Step

PATH = "backend.py"


def found(source: str, snippet: str, code: str = "DSV105", level: str = "likely", path: str = PATH) -> Found:
    """A finding at the place of `snippet` in `source`, in the function that holds it."""
    start = source.index(snippet)
    line = source.count("\n", 0, start) + 1
    end = line + snippet.count("\n")
    return Found(
        path=path, line=line, end_line=end, column=0, end_column=0, statement_line=line, statement_end=end, code=code,
        form="x", level=level, function=_function(source, line), text=_one_line(snippet), reason="",
    )  # fmt: skip


def _one_line(snippet: str) -> str:
    return ast.unparse(ast.parse(snippet.strip()))


def _function(source: str, line: int) -> str:
    names = []
    node: ast.AST = ast.parse(source)
    while True:
        inner = [
            child for child in ast.walk(node)
            if child is not node and isinstance(child, ast.FunctionDef | ast.ClassDef)
            and child.lineno <= line <= (child.end_lineno or 0)
        ]  # fmt: skip
        if not inner:
            return ".".join(names)
        node = inner[0]
        names.append(node.name)  # type: ignore[attr-defined]


def changed(before: str, after: str, old: list[Found], new: list[Found], **options: object) -> list[Change]:
    everything = [(1, after.count("\n") + 1)]
    file = ChangedFile(PATH, PATH, before.encode(), after.encode(), everything, everything)
    audits = [Audit(root="", files=1, lines=1, functions=1, found=items) for items in (old, new)]
    return compare(ChangeSet("main", "base", [file]), *audits, **options)  # type: ignore[arg-type]


EXPAND = "torch.repeat_interleave(ids, lens)"
EXACT = "torch.repeat_interleave(ids, lens, output_size=sum(lens_list))"
SYNCED = f"def attach(ids, lens, lens_list):\n    return {EXPAND}\n"


def test_an_exact_total_is_a_fix_and_says_where_it_looked() -> None:
    (change,) = changed(SYNCED, SYNCED.replace(EXPAND, EXACT), [found(SYNCED, EXPAND)], [])
    assert change.status == "fixed"
    assert "output_size=sum(lens_list) is the exact total" in change.proof
    assert "attach" in change.proof


def test_a_total_that_is_not_proven_is_not_a_fix() -> None:
    given = EXPAND.replace("lens)", "lens, output_size=num_tokens)")
    after = SYNCED.replace(EXPAND, given)
    (change, hazard) = changed(SYNCED, after, [found(SYNCED, EXPAND)], [found(after, given, "DSV201", "possible")])
    assert hazard.status == "new"
    assert change.status == "removed"
    assert change.proof == "output_size=num_tokens is not proven to be the exact total"


# The form of the change that was taken back: the total is exact, and the wait had protected a plan whose pinned memory
# a raw copy still reads when the next plan is made.
BACKEND = """
class Backend:
    def init_verify(self, batch):
        plan = self.make_plan(batch)
        self.captured.copy_(plan)
        self.attach(batch.ids, batch.lens, batch.lens_list)

    def make_plan(self, batch):
        rows = torch.empty(64, pin_memory=True)
        native.fill(rows.data_ptr(), batch.pages)
        return rows

    def attach(self, ids, lens, lens_list):
        self.rows = torch.repeat_interleave(ids, lens)
"""


def test_the_change_that_was_taken_back_is_not_shown_safe() -> None:
    (change,) = changed(BACKEND, BACKEND.replace(EXPAND, EXACT), [found(BACKEND, EXPAND)], [])
    assert change.status == "removed"
    assert "output_size=sum(lens_list) is the exact total, but" in change.proof
    assert {(item.function, item.what) for item in change.staging} == {
        ("Backend.make_plan", "pinned staging memory"),
        ("Backend.make_plan", "a raw pointer or copy that torch does not know of"),
    }


def test_a_caller_in_another_file_is_looked_at_along_the_hot_path() -> None:
    runner = b"def run(batch):\n    with torch.cuda.stream(side):\n        attach(batch)\n"
    hot = (Step("run", "runner.py", 1), Step("attach", PATH, 1))
    old = msgspec.structs.replace(found(SYNCED, EXPAND), hot=hot)
    after = SYNCED.replace(EXPAND, EXACT)
    (change,) = changed(SYNCED, after, [old], [], read={"runner.py": runner}.get)
    assert change.status == "removed"
    assert change.staging[0].path == "runner.py"
    assert change.staging[0].what == "work on another stream"


def test_equal_numbers_filled_on_the_device_are_a_fix() -> None:
    before = "def f(d):\n    return torch.tensor([0] * 4, device=d)\n"
    after = before.replace("tensor([0] * 4,", "full((4,), 0,")
    (change,) = changed(before, after, [found(before, "torch.tensor([0] * 4, device=d)", "DSV108")], [])
    assert change.status == "fixed"
    other = before.replace("tensor([0] * 4,", "full((5,), 0,")
    (change,) = changed(before, other, [found(before, "torch.tensor([0] * 4, device=d)", "DSV108")], [])
    assert change.status == "removed"


def test_an_element_filled_is_a_fix() -> None:
    before = "def f(cu):\n    cu[0] = 0\n"
    after = "def f(cu):\n    cu[0].fill_(0)\n"
    (change,) = changed(before, after, [found(before, "cu[0] = 0", "DSV108")], [])
    assert change.status == "fixed"
    (change,) = changed(before, "def f(cu):\n    cu[0].fill_(1)\n", [found(before, "cu[0] = 0", "DSV108")], [])
    assert change.status == "removed"


COPY = "def f(x, event):\n    h = x.cpu()\n    return h\n"


def test_a_copy_read_after_its_event_is_proven_and_one_without_an_event_is_not() -> None:
    waited = (
        "def f(x, event):\n    h = x.to('cpu', non_blocking=True)\n    event.record()\n"
        "    event.synchronize()\n    return h\n"
    )
    old = [found(COPY, "x.cpu()", "DSV103")]
    (change,) = changed(COPY, waited, old, [])
    assert change.status == "fixed"
    assert "event waited for on line 4" in change.proof
    (change,) = changed(COPY, "def f(x, event):\n    return x.to('cpu', non_blocking=True)\n", old, [])
    assert change.status == "removed"
    assert "no event of it is waited for in its function" in change.proof


def test_a_host_mirror_may_be_stale() -> None:
    before = "def f(b):\n    return b.lens.max().item()\n"
    after = "def f(b):\n    return b.lens_cpu.max().item()\n"
    (change,) = changed(before, after, [found(before, "b.lens.max().item()", "DSV101")], [])
    assert change.status == "removed"
    assert "not proven" in change.proof


def test_what_an_allowance_protects_may_not_go_even_for_an_exact_total() -> None:
    protected = [Protected(PATH, 2, 2, ("DSV105",), "plan_rows", "the planner's copy is still pending")]
    (change,) = changed(SYNCED, SYNCED.replace(EXPAND, EXACT), [found(SYNCED, EXPAND)], [], protected=protected)
    assert change.status == "removed"
    assert change.protects == "plan_rows"
    assert "the planner's copy is still pending" in change.proof


def test_moved_lines_and_renamed_functions_are_unchanged() -> None:
    after = "import os\n\n\n" + SYNCED.replace("attach", "attach_rows")
    (change,) = changed(SYNCED, after, [found(SYNCED, EXPAND)], [found(after, EXPAND)])
    assert change.status == "unchanged"
    assert change.found.line == 5


def test_new_and_equal_ones_are_counted_one_by_one() -> None:
    after = SYNCED.replace(f"    return {EXPAND}\n", f"    a = {EXPAND}\n    return {EXPAND}\n")
    second = msgspec.structs.replace(found(after, EXPAND), line=3, end_line=3)
    changes = changed(SYNCED, after, [found(SYNCED, EXPAND)], [found(after, EXPAND), second])
    assert sorted(change.status for change in changes) == ["new", "unchanged"]


def test_a_finding_that_became_likely_is_new() -> None:
    old, new = found(SYNCED, EXPAND, level="possible"), found(SYNCED, EXPAND)
    (change,) = changed(SYNCED, SYNCED, [old], [new])
    assert change.status == "new"
    assert "only possible before" in change.proof


def test_a_deleted_function_is_removed_not_fixed() -> None:
    (change,) = changed(SYNCED, "x = 1\n", [found(SYNCED, EXPAND)], [])
    assert change.status == "removed"
    assert "gone with it" in change.proof
