"""The whole engine on a shadow device: the tokens of the CPU, and its syncs by line."""

from __future__ import annotations

import pytest

from dsv4prof.model.syncs import Observation
from dsv4prof.sync.runtime.shadow import ShadowDevice
from serving import random_prompts, serve, tokens_of

# The golden checkpoint is read with it.
pytest.importorskip("safetensors")

OPTIONS = ({"overlap": False}, {"overlap": True}, {"graphs": True}, {"exact_num_tokens": True})
# Where a step makes its metadata, launches, and reads its tokens; what loads a checkpoint may wait.
STEP = ("metadata.py", "readback.py", "loop.py", "runner.py", "staging.py", "request_table.py")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_tokens_and_every_sync_of_a_step(options: dict[str, object]) -> None:
    prompts = random_prompts([5, 40, 17])
    settings = {"graphs": False, "max_requests": 2, **options}
    expected = tokens_of(serve(prompts, **settings))
    seen: list[Observation] = []
    with ShadowDevice("cuda", seen.append):
        assert tokens_of(serve(prompts, device="cuda", **settings)) == expected
    found = [(one.form, one.stack[0]) for one in seen if one.kind.waits]
    sites = {(form, frame.file.rsplit("/", 1)[1], frame.function.split(".")[-1]) for form, frame in found}
    wanted = {("event-synchronize", "readback.py", "wait")}
    if not options.get("exact_num_tokens"):
        wanted.add(("repeat-interleave-tensor", "metadata.py", "attach_prefill_meta"))
    assert {one for one in sites if one[1] in STEP} == wanted
