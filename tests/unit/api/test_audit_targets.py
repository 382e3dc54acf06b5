"""What is read beside what was named, and how its files are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.api.audit_targets import Part, decode, targets
from dsv4prof.errors import InputError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/p/__init__.py", "a/p/q/__init__.py", "a/p/q/m.py", "a/loose.py", "b/n.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


def test_a_folder_is_its_own_root(tree: Path) -> None:
    made = targets(["a"], tree)
    assert (made.root, made.parts) == (tree / "a", (Part(tree / "a"),))
    assert targets([], tree / "a").root == tree / "a"
    assert targets(["a", "a/p"], tree).parts == (Part(tree / "a"),), "all of it was named"


def test_a_part_of_a_package_is_read_with_the_package(tree: Path) -> None:
    made = targets(["a/p/q/m.py"], tree)
    assert (made.root, made.parts) == (tree / "a/p/q", (Part(tree / "a/p", (tree / "a/p/q/m.py",)),))


def test_a_part_of_a_project_is_read_with_the_project(tree: Path) -> None:
    (tree / "pyproject.toml").write_text("")
    made = targets(["a", "b"], tree)
    assert made.parts == (Part(tree, (tree / "a", tree / "b")),)


def test_a_common_folder_that_is_no_project_is_not_read(tree: Path) -> None:
    """It could be a disk."""
    made = targets(["a", "b/n.py"], tree)
    assert (made.root, made.parts) == (tree, (Part(tree / "a"), Part(tree / "b/n.py")))
    assert targets(["a/loose.py"], tree).parts == (Part(tree / "a/loose.py"),)
    assert Part(tree / "b/n.py").folder == tree / "b"


def test_files_are_called_from_the_working_directory(tree: Path) -> None:
    assert targets(["a"], tree).shown("p/q/m.py") == "a/p/q/m.py"
    assert targets(["../a"], tree / "b").shown("p/q/m.py") == f"{tree}/a/p/q/m.py"
    assert targets(["."], tree / "a").shown("../b/n.py") == f"{tree}/b/n.py"
    assert targets(["."], tree).shown("") == "."
    assert targets(["/"], Path("/")).shown("x.py") == "x.py"


def test_what_is_not_there(tree: Path) -> None:
    with pytest.raises(InputError, match="there is no file or folder a/x"):
        targets(["a", "a/x"], tree)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("ä\r\nb\rc".encode(), "ä\nb\nc"),
        (b"\xef\xbb\xbfx", "x"),
        (b"# coding: latin-1\n\xe4", "# coding: latin-1\nä"),
        (b"\xe4", None),
        (b"# coding: nonsense\n", None),
    ],
)
def test_decoding(data: bytes, text: str | None) -> None:
    assert decode(data) == text
