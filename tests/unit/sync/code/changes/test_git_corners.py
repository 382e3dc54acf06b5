"""Checkouts as they are: conflicts, links, pipes, odd names, hooks, settings of the person who runs git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.sync.code.changes.git import changes_since

TEXT = "one\ntwo\nthree\nfour\n"


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost", *words],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")


def made(folder: Path) -> Path:
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_text(TEXT)
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return made(tmp_path / "r")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(repository: Path) -> None:
    (repository / "pkg" / "a.py").unlink()
    os.mkfifo(repository / "pkg" / "a.py")
    assert changes_since(repository, "HEAD").files == []


@pytest.mark.parametrize("name", [b"caf\xe9", b"blank ", b"[a]", b":(top)x"])
def test_a_checkout_may_have_any_name(name: bytes, tmp_path: Path) -> None:
    folder = made(tmp_path / os.fsdecode(name))
    (folder / "pkg" / "a.py").write_text("0\n")
    (folder / "pkg" / "b.py").write_text("0\n")
    assert [file.path for file in changes_since(folder, "HEAD").files] == ["pkg/a.py", "pkg/b.py"]


def test_names_are_no_patterns(repository: Path) -> None:
    (repository / "pkg" / "[a].py").write_text(TEXT)
    commit(repository)
    (repository / "pkg" / "a.py").write_text(TEXT + "five\n")
    (repository / "pkg" / "[a].py").write_text("0\n" + TEXT)
    files = {file.path: file.lines for file in changes_since(repository, "HEAD").files}
    assert files == {"pkg/a.py": [(5, 5)], "pkg/[a].py": [(1, 1)]}
    (repository / "[pkg]").mkdir()
    (repository / "[pkg]" / "b.py").write_text("0\n")
    assert [file.path for file in changes_since(repository / "[pkg]", "HEAD").files] == ["b.py"]


def test_a_file_moved_into_the_folder_asked_for_is_known_by_what_it_held(repository: Path) -> None:
    (repository / "other").mkdir()
    git(repository, "mv", "pkg/a.py", "other/a.py")
    (moved,) = changes_since(repository / "other", "HEAD").files
    assert (moved.path, moved.old_path, moved.before, moved.lines) == ("a.py", "a.py", TEXT.encode(), [])
    (gone,) = changes_since(repository / "pkg", "HEAD").files
    assert (gone.path, gone.before, gone.after) == ("a.py", TEXT.encode(), None)


def test_a_link_held_no_python(repository: Path) -> None:
    (repository / "pkg" / "link.py").symlink_to("a.py")
    commit(repository)
    (repository / "pkg" / "link.py").unlink()
    (repository / "pkg" / "link.py").write_text(TEXT)
    (changed,) = changes_since(repository, "HEAD").files
    assert changed.before is None


def test_a_conflict_is_one_file(repository: Path) -> None:
    git(repository, "checkout", "-qb", "other")
    (repository / "pkg" / "a.py").write_text(TEXT.replace("two", "2"))
    commit(repository)
    git(repository, "checkout", "-q", "main")
    (repository / "pkg" / "a.py").write_text(TEXT.replace("two", "zwei"))
    commit(repository)
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "-q", "other")
    (changed,) = changes_since(repository, "HEAD").files
    assert b"<<<<<<<" in (changed.after or b"")


def test_settings_of_git_do_not_matter(repository: Path) -> None:
    for name, value in (
        ("color.ui", "always"), ("diff.noprefix", "true"), ("diff.external", "/bin/false"), ("diff.relative", "true"),
        ("core.quotePath", "true"), ("diff.renames", "false"),
    ):  # fmt: skip
        git(repository, "config", name, value)
    (repository / "pkg" / "a.py").write_text(TEXT + "five\n")
    (changed,) = changes_since(repository / "pkg", "HEAD").files
    assert (changed.path, changed.lines) == ("a.py", [(5, 5)])


def test_called_by_a_hook_it_knows_its_folder(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "pkg" / "a.py").write_text("0\n")
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    (changed,) = changes_since(repository / "pkg", "HEAD").files
    assert (changed.path, changed.before) == ("a.py", TEXT.encode())


def test_without_common_history_it_says_what_it_compared(repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "lone")
    git(repository, "commit", "-qm", "another")
    assert "no common history with main" in changes_since(repository, "main").notes[0]
    assert changes_since(repository, "HEAD").notes == []


def test_it_is_said_what_is_wrong_and_not_what_git_advises(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    with pytest.raises(InputError, match="dubious ownership"):
        changes_since(repository, "HEAD")
