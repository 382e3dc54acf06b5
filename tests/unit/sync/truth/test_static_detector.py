"""The static detector against the device: it reads every measured case as source, and says whether the call waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.sync import measured
from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.measured import Measurement, Truth

HEAD = """\
import copy, io, logging, math, operator, pickle
import numpy as np
import torch
import torch.nn.functional as F
from torch import distributed as dist

def pin(t: torch.Tensor):
    return t.pin_memory()

"""
# What no reading of the source can tell: how much is queued already, and what memory holds.
UNKNOWABLE = ("upload_", "launch_queue", "allocator_retry", "empty_cache", "pinned_strided_nb_8m", "pinned_cols_to_dev")


def as_source(truth: Truth, rows: list[Measurement]) -> tuple[str, list[range]]:
    """A module with a function a case, and the lines of each call."""
    lines, calls = HEAD.splitlines(), []
    for place, row in enumerate(rows):
        before = ['dev = torch.device("cuda", 0)', *truth.meta.prelude.strip().splitlines(), *row.setup.splitlines()]
        lines += [f"def case_{place}():", *(f"    {line}" for line in before)]
        first = len(lines) + 1
        lines += [f"    {line}" for line in row.call.splitlines()]
        calls.append(range(first, len(lines) + 1))
    return "\n".join(lines) + "\n", calls


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Measurement, bool]]:
    """Every case that can be told from source, and whether the detector is certain or finds it likely that it waits."""
    (path,) = [path for path in measured.shipped() if path.stem == "h200.torch2.11"]
    truth = measured.read(path)
    rows = [row for row in truth.rows if not row.error and not row.id.startswith(UNKNOWABLE)]
    source, calls = as_source(truth, rows)
    folder = tmp_path_factory.mktemp("cases")
    Path(folder, "cases.py").write_text(source)
    found = audit(folder, AuditOptions(cache_dir=None)).found
    waiting = {
        one.line
        for one in found
        if one.level != "possible" and one.code.startswith("DSV1") and one.code not in ("DSV111", "DSV112")
    }
    return [(row, not waiting.isdisjoint(lines)) for row, lines in zip(rows, calls, strict=True)]


def test_calls_that_wait_on_the_device_are_found(verdicts: list[tuple[Measurement, bool]]) -> None:
    waiting = [(row, seen) for row, seen in verdicts if row.syncs]
    missed = [row.id for row, seen in waiting if not seen]
    assert len(waiting) > 300
    assert len(missed) <= 0.05 * len(waiting), missed


def test_calls_that_do_not_wait_are_left_alone(verdicts: list[tuple[Measurement, bool]]) -> None:
    quiet = [(row, seen) for row, seen in verdicts if not row.syncs]
    false = [row.id for row, seen in quiet if seen]
    assert len(quiet) > 300
    assert len(false) <= 0.02 * len(quiet), false
