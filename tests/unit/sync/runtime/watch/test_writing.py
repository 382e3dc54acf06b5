"""The log of a watched process on a disk that is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dsv4prof.sync.runtime.watch.ran_log import Head, read_folder
from dsv4prof.sync.runtime.watch.writing import LogWriter


def test_a_full_disk_is_said_once_and_costs_no_more_than_what_it_had_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LogWriter(
        tmp_path, Head(pid=1, argv=["x"], rank=None, torch="2", gpu=False, vendor="cuda", layers=["shadow"])
    )
    write, room = os.write, [10, 0, 0, 0]

    def full(file: int, data: bytes) -> int:
        if not room:
            return write(file, data)
        left = room.pop(0)
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:left])

    monkeypatch.setattr(os, "write", full)
    for text in ("cut", "lost", "lost", "lost", "whole"):
        log.note(text)
    monkeypatch.undo()
    log.finish()
    assert capsys.readouterr().err.count("cannot be written: No space left on device") == 1
    (seen,) = read_folder(tmp_path).logs
    assert seen.notes == ["whole"]
    assert seen.ended
