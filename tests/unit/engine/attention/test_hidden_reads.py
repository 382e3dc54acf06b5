"""What makes the host wait: nothing in a forward pass, and exactly the two reads of the inexact expansion."""

from __future__ import annotations

import pytest
import torch

from dsv4_engine.phase import Phase
from engine_batches import OperatorLog, SpanHooks, golden_runner, make_batch, random_ids


def logged(span: str, *, exact: bool):
    log = OperatorLog()
    hooks = SpanHooks(span, lambda: log)
    return golden_runner(exact=exact, hooks=hooks), log, hooks


def window(phase: Phase, rows: int):
    return make_batch(*((slot, 130, random_ids(rows, seed=slot)) for slot in range(1, 5)), phase=phase)


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.TARGET_VERIFY, Phase.DRAFT_EXTEND])
@pytest.mark.parametrize(("exact", "reads"), [(True, 0), (False, 2)])
def test_the_expansion_reads_twice_without_its_size_and_never_with_it(phase, exact, reads):
    runner, log, hooks = logged("attach_prefill_meta", exact=exact)
    batch = window(phase, 4)
    if phase is Phase.DRAFT_EXTEND:
        runner.forward_mtp(batch, torch.zeros(16, 4, 128))
    else:
        runner.forward_target(batch)
    assert hooks.entered == 1
    assert log.reads == ["aten::_local_scalar_dense"] * reads


def test_the_rest_of_the_builder_is_the_same_in_both_forms():
    operators = []
    for exact in (True, False):
        runner, log, _ = logged("build_metadata", exact=exact)
        runner.forward_target(window(Phase.TARGET_VERIFY, 4))
        operators.append(log)
    exact, inexact = operators
    assert exact.reads == [] and exact.count("aten::_to_copy") == inexact.count("aten::_to_copy")
    assert inexact.reads == ["aten::_local_scalar_dense"] * 2


@pytest.mark.parametrize("rows", [1, 2, 4, 40])
def test_no_forward_pass_reads_the_device(rows):
    runner = golden_runner(exact=True)
    batch, log = window(Phase.TARGET_VERIFY, rows), OperatorLog()
    with log:
        streams = runner.forward_target(batch, logits_rows=torch.tensor([0])).streams
        runner.forward_mtp(batch, streams, logits_rows=torch.tensor([0]))
    assert len(log.names) > 100 and log.reads == []


def test_single_row_steps_need_no_expansion():
    runner, log, hooks = logged("attach_prefill_meta", exact=False)
    runner.forward_target(window(Phase.DECODE, 1))
    assert hooks.entered == 0 and log.names == []
