"""What a removed wait may have protected stands where nobody looks: other files, constructors, equal statements."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.changes.compare import Change, Protected, compare
from dsv4prof.sync.code.changes.git import ChangedFile, ChangeSet
from dsv4prof.sync.code.files import discover
from dsv4prof.sync.code.options import AuditOptions

UPLOAD, FILLED = "torch.tensor([0] * 4, device=dev)", "torch.full((4,), 0, device=dev)"
META = f"""\
import torch


class Builder:
    def attach(self, slots: torch.Tensor):
        dev = torch.device("cuda")
        return {UPLOAD}

    def prepare(self, batch):
        return self.attach(batch.slots)
"""
RUNNER = """\
from .meta import Builder
from .plan import Planner


class Runner:
    def __init__(self) -> None:
        self.builder = Builder()
        self.planner = Planner()

    def replay_once(self, batch):
        plan = self.planner.lay_out(4)
        return plan, self.builder.prepare(batch)
"""
PLAN = """\
import torch


class Planner:
    def lay_out(self, n: int):
        return self._rows(n)

    def _rows(self, n: int):
        rows = torch.empty(n, pin_memory=True)
        native.send(rows.data_ptr(), n)
        return rows
"""


def change(root: Path, files: dict[str, str], after: str, protected: tuple[Protected, ...] = ()) -> list[Change]:
    """What the change of meta.py into `after` does, by the detector itself."""
    (root / "srv").mkdir()
    for name, text in {"__init__.py": "", "meta.py": META, **files}.items():
        (root / "srv" / name).write_text(text)
    path = "srv/meta.py"
    before = (root / path).read_bytes()
    (root / path).write_text(after)
    lines = [
        [(n, n) for n, line in enumerate(one.splitlines(), 1) if line not in other.splitlines()]
        for one, other in ((after, before.decode()), (before.decode(), after))
    ]
    old, new = (
        audit(root, AuditOptions(paths=(root / path,), sources=sources, cache_dir=None))
        for sources in ({path: before}, {})
    )
    changed = ChangedFile(path, path, before, after.encode(), *lines)

    def read(name: str) -> bytes | None:
        full = root / name
        return full.read_bytes() if full.is_file() else None

    return compare(
        ChangeSet("main", "base", [changed]),
        old,
        new,
        protected=protected,
        read=read,
        paths=lambda: discover(root, AuditOptions()),
    )


def test_a_planner_of_another_file_called_by_a_caller_of_another_file(tmp_path: Path) -> None:
    """The form of the change that was taken back after a crash: the hot path starts at the builder, and the plan whose
    pinned rows a raw copy still reads is made by the function that calls the builder."""
    (gone,) = [
        item
        for item in change(tmp_path, {"runner.py": RUNNER, "plan.py": PLAN}, META.replace(UPLOAD, FILLED))
        if item.status != "unchanged"
    ]
    assert gone.status == "removed"
    assert "makes the same tensor on the device, but it may have protected pinned staging memory" in gone.proof
    assert {(item.path, item.function) for item in gone.staging} == {("srv/plan.py", "Planner._rows")}


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("self.rows = torch.empty(4, pin_memory=True)", "self.rows"),
        ("self.rows: torch.Tensor = torch.empty(4).pin_memory()", "self.rows"),
    ],
)
def test_a_buffer_that_the_constructor_made(made: str, used: str, tmp_path: Path) -> None:
    runner = RUNNER.replace("self.planner = Planner()", made).replace("self.planner.lay_out(4)", used)
    changes = change(tmp_path, {"runner.py": runner}, META.replace(UPLOAD, FILLED))
    (gone,) = [item for item in changes if item.status in ("fixed", "removed")]
    assert (gone.status, gone.staging[0].path, gone.staging[0].line) == ("removed", "srv/runner.py", 8)


def test_a_buffer_of_the_file(tmp_path: Path) -> None:
    runner = "import torch\nROWS = torch.empty(4, pin_memory=True)\n" + RUNNER.replace(
        "self.planner.lay_out(4)", "ROWS"
    )
    changes = change(tmp_path, {"runner.py": runner}, META.replace(UPLOAD, FILLED))
    assert [item.status for item in changes if item.status in ("fixed", "removed")] == ["removed"]


def test_a_copy_without_a_wait_by_position(tmp_path: Path) -> None:
    runner = RUNNER.replace("plan = self.planner.lay_out(4)", "plan = batch.out.copy_(batch.rows, True)")
    changes = change(tmp_path, {"runner.py": runner}, META.replace(UPLOAD, FILLED))
    assert [item.status for item in changes if item.status in ("fixed", "removed")] == ["removed"]


def test_where_nothing_stages_it_is_fixed_and_every_caller_was_looked_at(tmp_path: Path) -> None:
    runner = RUNNER.replace("self.planner.lay_out(4)", "4")
    changes = change(tmp_path, {"runner.py": runner, "plan.py": PLAN}, META.replace(UPLOAD, FILLED))
    (gone,) = [item for item in changes if item.status in ("fixed", "removed")]
    assert gone.status == "fixed"
    assert "Runner.replay_once" in gone.proof


def test_callers_that_are_too_many_to_look_at_are_named(tmp_path: Path) -> None:
    files = {f"r{n}.py": "def run(b, x):\n    return b.prepare(x)\n" for n in range(21)}
    changes = change(tmp_path, files, META.replace(UPLOAD, FILLED))
    (gone,) = [item for item in changes if item.status in ("fixed", "removed")]
    assert "too many call Builder.prepare to look at them" in gone.proof


def test_of_a_version_that_cannot_be_read_nothing_is_gone(tmp_path: Path) -> None:
    conflict = META.replace(
        f"        return {UPLOAD}\n", f"<<<<<<< ours\n        return {UPLOAD}\n=======\n>>>>>>> o\n"
    )
    assert [item.status for item in change(tmp_path, {}, conflict)] == []


TWICE = "import torch\n\n\ndef f(x: torch.Tensor):\n    a = x.cpu()\n    b = 1\n    c = x.cpu()\n    return a, b, c\n"


def test_of_equal_statements_the_one_on_the_changed_line_is_gone(tmp_path: Path) -> None:
    protected = (Protected("srv/meta.py", 5, 5, ("DSV103",), "rows", "the copy is pending"),)
    changes = change(tmp_path, {"meta.py": TWICE}, TWICE.replace("    a = x.cpu()\n", "    a = 0\n"), protected)
    (gone,) = [item for item in changes if item.status == "removed"]
    assert (gone.found.line, gone.protects) == (5, "rows")


def test_of_equal_statements_the_one_on_the_changed_line_is_new(tmp_path: Path) -> None:
    changes = change(tmp_path, {"meta.py": TWICE}, TWICE.replace("    a = x", "    z = x.cpu()\n    a = x"))
    assert [item.found.line for item in changes if item.status == "new" and item.found.code == "DSV103"] == [5]


WAITED = "def f(x: torch.Tensor, e, o, slow):\n    h = x.to('cpu', non_blocking=True)\n{}    return h\n"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("    e.record()\n    e.synchronize()\n", "fixed"),
        ("    e.record()\n    o.synchronize()\n", "removed"),
        ("    e.record()\n    if slow:\n        e.synchronize()\n", "removed"),
        ("    e.record()\n    for _ in slow:\n        e.synchronize()\n", "removed"),
        ("    if slow:\n        e.record()\n    e.synchronize()\n", "removed"),
        ("    e.synchronize()\n    e.record()\n", "removed"),
    ],
)
def test_the_wait_is_for_an_event_behind_the_copy_whatever_is_decided(lines: str, status: str, tmp_path: Path) -> None:
    before = "import torch\n\n\n" + WAITED.format("").replace("x.to('cpu', non_blocking=True)", "x.cpu()")
    changes = change(tmp_path, {"meta.py": before}, "import torch\n\n\n" + WAITED.format(lines))
    assert [item.status for item in changes if item.status in ("fixed", "removed")] == [status]


@pytest.mark.parametrize("index", ["[0, 2]", "x > 0"])
def test_a_fill_of_a_copy_writes_nothing(index: str, tmp_path: Path) -> None:
    before = f"import torch\n\n\ndef f(x: torch.Tensor):\n    x[{index}] = 5\n"
    after = before.replace(f"x[{index}] = 5", f"x[{index}].fill_(5)")
    changes = change(tmp_path, {"meta.py": before}, after)
    assert "fixed" not in [item.status for item in changes]
