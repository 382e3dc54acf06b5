"""What git says of a change: files, contents, lines; renames, new and deleted files, odd names, no repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsv4prof.errors import InputError, UsageError
from dsv4prof.sync.code.changes.git import ChangedFile, changes_since


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost", *words],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text("one\ntwo\nthree\nfour\n")
    (tmp_path / "pkg" / "old.py").write_text("".join(f"line {i}\n" for i in range(20)))
    (tmp_path / "pkg" / "gone.py").write_text("x\n")
    (tmp_path / "note.txt").write_text("x\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_lines_contents_renames_and_files_that_git_does_not_know(repository: Path) -> None:
    folder = repository / "pkg"
    (folder / "a.py").write_text("one\n2\nthree\nfour\nfive\nsix\n")
    (folder / "gone.py").unlink()
    git(repository, "mv", "pkg/old.py", "pkg/new name.py")
    (folder / "extra é.py").write_text("y\n")
    (repository / "note.txt").write_text("changed\n")
    changes = changes_since(repository, "HEAD")
    files = {file.path: file for file in changes.files}
    assert sorted(files) == ["pkg/a.py", "pkg/extra é.py", "pkg/gone.py", "pkg/new name.py"]
    assert files["pkg/a.py"].lines == [(2, 2), (5, 6)]
    # What was put in after line 4 stands between 4 and 5.
    assert files["pkg/a.py"].removed == [(2, 2), (4, 5)]
    assert files["pkg/a.py"].before == b"one\ntwo\nthree\nfour\n"
    assert files["pkg/gone.py"].after is None
    assert files["pkg/new name.py"].old_path == "pkg/old.py"
    assert files["pkg/new name.py"].lines == []
    assert files["pkg/extra é.py"].before is None


def test_paths_are_relative_to_the_root_asked_for(repository: Path) -> None:
    (repository / "pkg" / "a.py").write_text("0\n")
    (repository / "top.py").write_text("0\n")
    assert [file.path for file in changes_since(repository / "pkg", "HEAD").files] == ["a.py"]


def test_the_other_branch_s_own_work_does_not_count(repository: Path) -> None:
    git(repository, "checkout", "-qb", "work")
    (repository / "pkg" / "a.py").write_text("mine\n")
    git(repository, "commit", "-qam", "mine")
    git(repository, "checkout", "-q", "main")
    (repository / "pkg" / "old.py").write_text("theirs\n")
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "work")
    assert [file.path for file in changes_since(repository, "main").files] == ["pkg/a.py"]


def test_bad_questions_get_a_sentence(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for revision in ("nowhere", "--output=x", "HEAD~9"):
        with pytest.raises(UsageError, match="does not know the revision"):
            changes_since(repository, revision)
    with pytest.raises(InputError, match="in no git repository"):
        changes_since(tmp_path_factory.mktemp("plain"), "HEAD")


def test_without_git_it_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="needs git"):
        changes_since(repository, "HEAD")


def test_where_a_line_of_the_old_text_stands_now() -> None:
    """A change that puts two lines before 3, takes 5 and 6 away, writes 8 anew as two, and takes 10 to 12 for one."""
    hunks = [(2, 0, 3, 2), (5, 2, 6, 0), (8, 1, 8, 2), (10, 3, 11, 1)]
    file = ChangedFile("m.py", "m.py", b"", b"", [], [], hunks)
    assert [file.now(line) for line in range(1, 15)] == [1, 2, 5, 6, 6, 6, 7, 8, 10, 11, 11, 11, 12, 13]
    assert ChangedFile("m.py", "m.py", b"", None, [], []).now(3) == 0
