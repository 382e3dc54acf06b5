"""The static detector against what was measured on devices: every measured case, written as a function."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from dsv4prof.sync import catalogue, measured
from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.code.options import AuditOptions

HEAD = """import copy
import io
import logging
import math
import operator
import pickle

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F


def pin(t):
    return t.pin_memory()


"""
# Where the moment decides, and source cannot say what was measured.
MOMENT = {
    "item_on_other_stream": "the call waits, for a side stream that happens to be idle",
    "stream_synchronize_side": "the call waits, for a stream that happens to be idle",
    "empty_cache_something": "whether the allocator has cached blocks",
    "allocator_retry": "whether memory is short",
    "upload_pageable_nb_1m_x4": "how much the driver has staged already",
    "upload_pageable_nb_1m_x8": "how much the driver has staged already",
    "upload_pageable_nb_1m_x16": "how much the driver has staged already",
    "upload_pageable_nb_64k_x64": "how much the driver has staged already",
    "upload_pageable_nb_64k_x256": "how much the driver has staged already",
    "upload_pageable_nb_64k_x1000": "how much the driver has staged already",
    "launch_queue_2000": "how many kernels are queued already",
}
# What the detector does not follow.
NOT_FOLLOWED = {
    "max_star_t": "a call with starred arguments is not unpacked",
    "match_value": "the interpreter's patterns",
    "pinned_cols_to_dev_nb_8m": "shapes of more than one dimension are not followed, so neither is the size of columns",
    "load_state_dict_pageable": "state dicts are not followed",
    "nn_more_18": "sizes that differ, for which equal answers at once",
    "dataclass_repr": "the text of an object that holds a tensor",
}
ELSE = MOMENT | NOT_FOLLOWED
AGREEMENT = 0.98


def written(truth: measured.Truth) -> tuple[str, dict[str, tuple[int, int]]]:
    """One module with a function a case, and the lines of each measured call."""
    lines = HEAD.count("\n")
    parts, where = [HEAD], {}
    for number, row in enumerate(truth.rows):
        prelude = f'dev = torch.device("cuda")\n{truth.meta.prelude.strip()}\n{row.setup.strip()}\n'
        before = f"def case_{number}():\n" + textwrap.indent(prelude, "    ")
        call = textwrap.indent(row.call.strip(), "    ") + "\n"
        first = lines + before.count("\n") + 1
        where[row.id] = (first, first + call.count("\n") - 1)
        parts.append(before + call + "\n\n")
        lines += parts[-1].count("\n")
    return "".join(parts), where


def says_waits(found: Found) -> bool:
    """Whether a finding says that the host waits: hazards, slow allocations and repetitions say something else."""
    form = catalogue.form(found.form)
    return form.syncs and found.level != "possible" and form.code not in ("DSV111", "DSV112")


@pytest.mark.parametrize("path", measured.shipped(), ids=lambda path: path.stem)
def test_source_says_what_was_measured(path: Path, tmp_path: Path) -> None:
    truth = measured.read(path)
    text, where = written(truth)
    (tmp_path / "cases.py").write_text(text, encoding="utf-8")
    report = audit(tmp_path, AuditOptions(torch_version=truth.meta.torch.partition("+")[0], jobs=1))
    assert report.problems == []
    told = [found for found in report.found if says_waits(found)]
    rows = [row for row in truth.rows if row.syncs is not None]
    wrong = {}
    for row in rows:
        first, last = where[row.id]
        forms = sorted({found.form for found in told if first <= found.line <= last})
        if bool(forms) != row.syncs:
            wrong[row.id] = f"measured {row.syncs}, source says {forms}: {row.call}"
    unexplained = {name: text for name, text in wrong.items() if name not in ELSE}
    sayable = [row for row in rows if row.id not in MOMENT]
    assert len(wrong.keys() - MOMENT) <= (1 - AGREEMENT) * len(sayable), wrong
    assert unexplained == {}, "\n".join(unexplained.values())
