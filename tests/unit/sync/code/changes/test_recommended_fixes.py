"""What the rules themselves recommend is a fix, and what only looks like it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.changes.compare import Change, compare
from dsv4prof.sync.code.changes.git import ChangedFile, ChangeSet
from dsv4prof.sync.code.options import AuditOptions

HEAD = "import logging\n\nimport torch\n\nlogger = logging.getLogger()\n\n\n"
FUNCTION = HEAD + "class Backend:\n    def forward(self, x: torch.Tensor, z: torch.Tensor, e):\n{}        return x\n"


def change(root: Path, before: list[str], after: list[str]) -> list[Change]:
    """What the detector and the comparison say of one function, with these lines before and after."""
    path = "m.py"
    texts = [FUNCTION.format("".join(f"        {line}\n" for line in lines)) for lines in (before, after)]
    (root / path).write_text(texts[1])
    everything = [(1, 40)]
    old, new = (
        audit(root, AuditOptions(paths=(root / path,), sources=sources, cache_dir=None))
        for sources in ({path: texts[0].encode()}, {})
    )
    changed = ChangedFile(path, path, texts[0].encode(), texts[1].encode(), everything, everything)
    return compare(ChangeSet("main", "base", [changed]), old, new)


def taken(changes: list[Change]) -> list[str]:
    return [item.status for item in changes if item.status in ("fixed", "removed")]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("z[0] = 1", "z[0:1] = 1", "fixed"),
        ("z[0] = 1", "z[:1] = 1", "fixed"),
        ("z[-1] = 1", "z[-1:] = 1", "fixed"),
        ("z[-2] = 1", "z[-2:-1] = 1", "fixed"),
        ("z[3] = -1.5", "z[3:4] = -1.5", "fixed"),
        ("z[0] = 1", "z[0:2] = 1", "removed"),
        ("z[0] = 1", "z[1:2] = 1", "removed"),
        ("z[0] = 1", "z[0:1] = 2", "removed"),
        ("z[-1] = 1", "z[-1:0] = 1", "removed"),
        ("z[3] = 1", "z[:4] = 1", "removed"),
    ],
)
def test_an_element_written_as_a_slice(before: str, after: str, status: str, tmp_path: Path) -> None:
    assert taken(change(tmp_path, [before], [after])) == [status]


TWICE = ["total = x.sum().item()", "y = total", "again = x.sum().item()", "print(again)"]


@pytest.mark.parametrize(
    ("after", "status"),
    [
        ([*TWICE[:2], "again = total", TWICE[3]], "fixed"),
        ([*TWICE[:2], "again = y", TWICE[3]], "removed"),
        ([*TWICE[:2], "x.add_(1)", "again = total", TWICE[3]], "removed"),
        ([*TWICE[:2], "total = 5", "again = total", TWICE[3]], "removed"),
    ],
)
def test_a_value_that_was_read_twice_is_read_once(after: list[str], status: str, tmp_path: Path) -> None:
    assert taken(change(tmp_path, TWICE, after)) == [status]


def test_a_value_that_was_written_between_the_reads_is_another_one(tmp_path: Path) -> None:
    before = [TWICE[0], "x.add_(1)", *TWICE[2:]]
    assert taken(change(tmp_path, before, [TWICE[0], "x.add_(1)", "again = total", TWICE[3]])) == ["removed"]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ('logger.info(f"lens {x}")', 'logger.info("lens of %s", x.shape)', "fixed"),
        ('logger.info(f"lens {x}")', 'logger.info(f"lens of {x.shape[0]}")', "fixed"),
        ('logger.info(f"lens {x}")', 'logger.info("lens")', "removed"),
        ('name = f"lens {x}"', 'name = f"lens {x.shape}"', "removed"),
    ],
)
def test_a_log_line_tells_the_shape(before: str, after: str, status: str, tmp_path: Path) -> None:
    assert taken(change(tmp_path, [before], [after])) == [status]


def test_the_wait_that_proves_a_fix_is_not_new(tmp_path: Path) -> None:
    copied = ['h = x.to("cpu", non_blocking=True)', "e = torch.cuda.Event()", "e.record()", "e.synchronize()"]
    changes = change(tmp_path, ["h = x.cpu()"], copied)
    assert taken(changes) == ["fixed"]
    assert [(item.status, item.found.code) for item in changes if item.found.code == "DSV106"] == [
        ("unchanged", "DSV106")
    ]
    # Another wait beside it is one.
    changes = change(tmp_path, ["h = x.cpu()"], [*copied, "torch.cuda.synchronize()"])
    assert ("new", 1) in [(item.status, changes.count(item)) for item in changes if item.found.code == "DSV106"]


def test_of_a_wait_alone_nothing_is_replaced(tmp_path: Path) -> None:
    (gone,) = [item for item in change(tmp_path, ["torch.cuda.synchronize()"], ["pass"]) if item.status == "removed"]
    assert gone.proof.startswith("it did nothing but wait")
