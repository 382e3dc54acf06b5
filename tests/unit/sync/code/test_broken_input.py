"""Input of any kind: a sentence for each file that cannot be read, and the rest audited."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.options import AuditOptions
from tests.unit.sync.code.snippets import audited, write

GOOD = "import torch\ndef f(x: torch.Tensor):\n    return x.tolist()\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def f(:\n", "syntax error"),
        (b"def f():\n    print 'x'\n", "Python 2"),
        (b"try:\n    pass\nexcept ValueError, e:\n    pass\n", "Python 2"),
        (b"x = '\xff\xfe'\n", "cannot be decoded"),
        (b"# -*- coding: no-such-code -*-\n", "cannot be decoded"),
        (b"x = 1\x00\n", "null byte"),
        (b"x = " + b"(" * 5000 + b")" * 5000 + b"\n", ""),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_bytes(content)
    got = audit(tmp_path, AuditOptions(jobs=1))
    assert [(problem.path, message in problem.message) for problem in got.problems] == [("bad.py", True)]
    assert [one.path for one in got.found] == ["good.py"]
    assert (got.files, got.paths) == (1, ["good.py"])


def test_declared_encodings_are_read(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\n# \xe9\n" + GOOD
    (tmp_path / "a.py").write_bytes(text.encode("latin-1"))
    (tmp_path / "b.py").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    got = audit(tmp_path, AuditOptions(jobs=1))
    assert [one.line for one in got.found] == [5, 3]


def test_a_very_long_file(tmp_path: Path) -> None:
    table = "TABLE = [\n" + "    (1, 2, 3),\n" * 50_000 + "]\n"
    got = audited(tmp_path, {"long.py": table + GOOD})
    assert got.problems == []
    assert [one.line for one in got.found] == [50_005]


def test_deep_nesting_ends_in_a_problem_and_not_in_a_crash(tmp_path: Path) -> None:
    deep = "import torch\ndef f(x: torch.Tensor):\n    return " + "-" * 900 + "x\n"
    got = audited(tmp_path, {"deep.py": deep, "good.py": GOOD})
    assert [one.path for one in got.found] == ["good.py"]


def test_names_that_import_each_other(tmp_path: Path) -> None:
    files = {
        "a.py": "from b import x\nfrom b import *\n",
        "b.py": """
            import torch
            from a import x
            import a
            def f(t: torch.Tensor):
                a.x.y(t)
                return x(t), t.tolist()
            """,
        "c.py": """
            import torch
            class A(B):
                pass
            class B(A):
                def f(self, x: torch.Tensor):
                    return self.y, x.tolist()
            """,
        "d.py": """
            import torch
            def g(x: torch.Tensor):
                return h(x).tolist()
            def h(x):
                return g(x)
            """,
    }
    got = audited(tmp_path, files)
    assert got.problems == []
    assert [one.path for one in got.found if one.level != "possible"] == ["b.py", "c.py"]


def test_pipes_and_broken_links_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"good.py": GOOD})
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "link.py").symlink_to(tmp_path / "nowhere.py")
    got = audit(tmp_path, AuditOptions(jobs=1))
    assert got.paths == ["good.py"]


def test_a_module_beside_a_package_of_its_name(tmp_path: Path) -> None:
    got = audited(tmp_path, {"a.py": GOOD, "a/__init__.py": "", "odd:name.py": GOOD})
    assert got.problems == []


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        audit(tmp_path / "none", AuditOptions())


def test_chosen_and_excluded_paths(tmp_path: Path) -> None:
    files = {"a/x.py": GOOD, "a/y.py": GOOD, "b/z.py": GOOD, ".venv/q.py": GOOD}
    assert audited(tmp_path, files).paths == ["a/x.py", "a/y.py", "b/z.py"]
    assert audited(tmp_path, {}, exclude=("a/x*", "b")).paths == ["a/y.py"]
    assert audited(tmp_path, {}, paths=(tmp_path / "a",)).paths == ["a/x.py", "a/y.py"]
    assert audit(tmp_path / "b" / "z.py", AuditOptions()).paths == ["z.py"]


def test_sources_stand_for_files(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": GOOD, "b.py": GOOD})
    got = audit(tmp_path, AuditOptions(jobs=1, sources={"a.py": None, "c.py": b"\n" + GOOD.encode()}))
    assert [(one.path, one.line) for one in got.found] == [("b.py", 3), ("c.py", 4)]


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_lines_may_end_in_any_way(end: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(GOOD.replace("\n", end).encode() + b"\x0c# form feed\n")
    got = audit(tmp_path, AuditOptions(jobs=1))
    assert ([one.line for one in got.found], got.problems) == ([3], [])
