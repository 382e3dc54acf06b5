"""Which functions of a file ran, and which of their lines."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType

from dsv4prof.sync.runtime.watch.entered import Follower

SOURCE = """
class Builder:
    def build(self, given):
        if given:
            return [each for each in given]
        return []

def never():
    return 1

def in_a_thread():
    return 2
"""


def module_of(path: Path) -> ModuleType:
    path.write_text(SOURCE)
    made = ModuleType("sample")
    exec(compile(SOURCE, str(path), "exec"), vars(made))
    return made


def test_functions_are_told_once_with_the_lines_that_ran(tmp_path: Path) -> None:
    ours, other = module_of(tmp_path / "ours.py"), module_of(tmp_path.parent / "other.py")
    told: list[tuple[str, str, int]] = []
    follower = Follower([str(tmp_path)], lambda *function: told.append(function))
    follower.start()
    try:
        for _ in range(3):
            ours.Builder().build([1])
        other.never()
        thread = threading.Thread(target=ours.in_a_thread)
        thread.start()
        thread.join()
    finally:
        follower.stop()
    ours.never()
    file = str(tmp_path / "ours.py")
    # Before Python 3.11 code does not know its class.
    build = "Builder.build" if sys.version_info >= (3, 11) else "build"
    assert told == [(file, build, 3), (file, "in_a_thread", 11)]
    assert [(name, lines) for _, name, _, lines in follower.lines()] == [
        (build, (4, 5)),
        ("in_a_thread", (12,)),
    ]


def test_a_file_is_not_the_one_whose_name_begins_alike(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "a.py").write_text(SOURCE)
    module = module_of(tmp_path / "a.pyx")
    follower = Follower([str(tmp_path / "a.py")], lambda file, name, line: told.append(name))
    follower.start()
    module.never()
    follower.stop()
    assert told == []
