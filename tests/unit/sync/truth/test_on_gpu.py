"""The harness on a real device: what waits there, what does not, and what waits without a warning."""

from __future__ import annotations

import pytest

from dsv4prof.sync import measured
from dsv4prof.sync.measured import CaseFile
from dsv4prof.sync.runtime.truth.campaign import measure_all

pytestmark = pytest.mark.gpu
WANTED = ("item", "sum_alone", "copy_to_pageable_nb", "repeat_interleave_t", "set_mask_pyscalar", "np_asarray_dev")


def test_a_device_gives_the_verdicts_that_no_version_changed() -> None:
    torch = pytest.importorskip("torch", reason="the engine extra is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA or HIP device")
    known = measured.cases()
    truth = measure_all(CaseFile(known.meta, [case for case in known.cases if case.id in WANTED]))
    rows = truth.by_id()
    assert {id: row.syncs for id, row in rows.items()} == {
        "item": True,
        "sum_alone": False,
        "copy_to_pageable_nb": True,
        "repeat_interleave_t": True,
        "set_mask_pyscalar": False,
        "np_asarray_dev": None,
    }
    assert rows["item"].warned == 1
    assert rows["copy_to_pageable_nb"].warned == 0
    assert rows["copy_to_pageable_nb"].waited_ms
    assert rows["np_asarray_dev"].error.startswith("TypeError")
    assert truth.meta.sleep_ms == pytest.approx(20.0, rel=0.1)
