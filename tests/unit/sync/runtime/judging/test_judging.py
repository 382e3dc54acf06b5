"""Verdicts of shadows agree with what an H200 said, use no label, and survive cases that take a process down."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from dsv4prof.errors import InputError, UsageError
from dsv4prof.model.syncs import Kind, Observation
from dsv4prof.sync import measured
from dsv4prof.sync.measured import Case, CaseFile, Meta
from dsv4prof.sync.runtime.judging import agreement
from dsv4prof.sync.runtime.judging.campaign import Judged, child_command, judge_all
from dsv4prof.sync.runtime.judging.verdicts import Verdict, verdict
from dsv4prof.sync.runtime.reasons.versions import running

SHADOW = child_command("shadow", "cuda", None)
SHARED = Path(__file__).resolve().parents[6] / "shared" / "truth" / "sync_ops.h200.torch2.11.jsonl"


def shipped() -> Path:
    (path,) = [one for one in measured.shipped() if one.stem == "h200.torch2.11"]
    return path


@pytest.fixture(scope="module")
def judged() -> Judged:
    return judge_all(measured.cases(shipped()), SHADOW)


def known(path: Path) -> dict[str, bool]:
    return {row.id: row.syncs for row in measured.read(path).rows if row.syncs is not None}


def explained(found: agreement.Agreement) -> bool:
    """Torch 2.10 to 2.13 do what the measured 2.11 does, but for a shortcut that modes of torch switch off."""
    alike = (2, 10) <= running() <= (2, 13)
    return not alike or {*found.missed, *found.false} <= {"transformer_padding_mask"}


def test_the_shipped_cases_are_judged_as_an_h200_does(judged: Judged) -> None:
    found = agreement.of_union(judged.verdicts, known(shipped()))
    assert found.compared > 790
    assert found.agreement is not None
    assert explained(found), found
    assert found.agreement >= 0.98


def test_the_reasons_name_forms_of_the_catalogue(judged: Judged) -> None:
    by_id = {one.id: one for one in judged.verdicts}
    for id, kind, form in [
        ("repeat_interleave_t", "SYNC", "repeat-interleave-tensor"), ("slice_stop_t", "SYNC", "slice-bound"),
        ("copy_to_pageable_nb", "SILENT", "copy-to-pageable-nonblocking"), ("unique_dim", "SILENT", "unique-dim"),
        ("cuda_synchronize", "SYNC", "cuda-synchronize"), ("fstring_0d", "SYNC", "format-fstring"),
        ("upload_pageable_nb_64k_x64", "SILENT", "upload-nonblocking-pageable"),
        ("idx_pylist", "SYNC", "index-by-list"),
        ("upload_pageable_nb_2m", "SUSPECT", "upload-nonblocking-pageable"), ("mm", "", ""),
    ]:  # fmt: skip
        assert (by_id[id].kind, by_id[id].form) == (kind, form), id


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the other measured cases are not here")
def test_other_measured_cases() -> None:
    found = agreement.of_union(judge_all(measured.cases(SHARED), SHADOW).verdicts, known(SHARED))
    assert found.agreement is not None
    assert found.agreement >= 0.99
    assert explained(found), found


def test_no_label_decides(judged: Judged) -> None:
    """The same cases in another order, with nothing but what a stranger would write."""
    file = measured.cases(shipped())
    some = [Case(id=one.id, setup=one.setup, call=one.call, needs=one.needs) for one in file.cases[::-7]]
    bare = judge_all(CaseFile(Meta(format=measured.CASES_FORMAT, prelude=file.meta.prelude), some), SHADOW)
    full = {one.id: one for one in judged.verdicts}
    assert len(bare.verdicts) > 100
    assert [(one.id, one.syncs, one.kind, one.reason) for one in bare.verdicts] == [
        (one.id, full[one.id].syncs, full[one.id].kind, full[one.id].reason) for one in bare.verdicts
    ]


def cases(*calls: str, prelude: str = "x = torch.ones(3, device=dev)\n") -> CaseFile:
    named = [Case(id=f"case{place}", call=call) for place, call in enumerate(calls)]
    return CaseFile(Meta(format=measured.CASES_FORMAT, prelude=prelude), named)


def test_a_case_that_fails_costs_itself() -> None:
    found = judge_all(
        cases("x.sum().item()", "import os; os._exit(9)", "x.item()", "x.cpu(); 1 / 0", "x +", "x + 1"), SHADOW
    )
    by_id = {one.id: one for one in found.verdicts}
    assert [one.syncs for one in found.verdicts] == [True, False, False, True, False, False]
    assert "ended with 9" in by_id["case1"].error
    assert "RuntimeError" in by_id["case2"].error
    assert "ZeroDivisionError" in by_id["case3"].error
    assert "SyntaxError" in by_id["case4"].error
    assert by_id["case5"].error == ""


def test_the_first_case_may_end_its_process_and_any_may_fork_or_ask() -> None:
    calls = ("import os; os._exit(1)", "import os; os.fork() and os.wait()", "input()", "x.cpu()")
    found = judge_all(cases(*calls), SHADOW).verdicts
    assert [one.id for one in found] == ["case0", "case1", "case2", "case3"]
    assert [one.syncs for one in found] == [False, False, False, True]
    assert "ended with 1" in found[0].error and not found[1].error and "EOFError" in found[2].error


@pytest.mark.slow
def test_a_case_that_hangs_is_left() -> None:
    found = judge_all(cases("import time; time.sleep(60)", "x.cpu()"), SHADOW, patience_s=8)
    assert [(one.syncs, bool(one.error)) for one in found.verdicts] == [(False, True), (True, False)]


def test_one_case_leaves_nothing_to_the_next() -> None:
    calls = (
        "torch.cuda.set_stream(torch.cuda.Stream()); torch.cuda.CUDAGraph().capture_begin()",
        "x.sum().item()",
        "torch.empty(1 << 26, dtype=torch.uint8, device=dev)",
        "torch.cuda.empty_cache()",
        "torch.set_default_device(dev); torch.set_grad_enabled(False); torch.set_default_dtype(torch.float64)",
        "assert torch.ones(1).dtype == torch.float32; torch.ones(1).cpu(); (x.requires_grad_() * 2).sum().backward()",
    )
    verdicts = judge_all(cases(*calls), SHADOW).verdicts
    assert [one.syncs for one in verdicts] == [False, True, False, False, False, False]
    assert not verdicts[-1].error


def test_an_id_names_one_case_and_a_child_must_start() -> None:
    doubled = cases("1", "2")
    doubled.cases[1].id = "case0"
    with pytest.raises(InputError, match="two cases have the id 'case0'"):
        judge_all(doubled, SHADOW)

    def broken(job: Path, out: Path) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('no torch here')"]

    with pytest.raises(UsageError, match="no torch here"):
        judge_all(cases("1"), broken)


def test_ctrl_c_keeps_what_was_judged() -> None:
    def command(job: Path, out: Path) -> list[str]:
        line = msgspec.json.encode(Verdict(id="case0", syncs=True)).decode()
        code = f"open({str(out)!r}, 'a').write({line!r} + '\\n'); import os, signal, time; time.sleep(0.5);"
        return [sys.executable, "-c", f"{code} os.kill({os.getpid()}, signal.SIGINT); time.sleep(30)"]

    found = judge_all(cases("1", "2"), command)
    assert found.interrupted
    assert [one.id for one in found.verdicts] == ["case0"]


def test_a_verdict_is_the_worst_that_any_layer_saw() -> None:
    def seen(layer: str, kind: Kind, times: int = 1) -> Observation:
        return Observation(layer=layer, kind=kind, direction="d2h", op="op", reason=kind.value, times=times)  # type: ignore[arg-type]

    one = verdict("x", ["warn", "copies"], [seen("copies", Kind.SUSPECT), seen("copies", Kind.SILENT, 2)])
    assert (one.syncs, one.kind, one.times, one.layers) == (True, "SILENT", 2, {"warn": False, "copies": True})
    assert msgspec.to_builtins(one)["class"] == "SILENT"
    suspect = verdict("x", ["warn"], [seen("warn", Kind.SUSPECT)])
    assert (suspect.syncs, suspect.kind) == (False, "SUSPECT")
    assert verdict("x", ["warn"], []).kind == ""


def test_agreement_counts_what_both_know() -> None:
    verdicts = [
        Verdict(id=id, syncs=syncs, layers={"a": syncs, "b": False}) for id, syncs in (("p", True), ("q", False))
    ]
    found = agreement.of_union(verdicts, {"p": False, "r": True})
    assert (found.compared, found.agreement, found.missed, found.false) == (1, 0.0, (), ("p",))
    layers = agreement.by_layer(verdicts, {"p": True, "q": False})
    assert (layers["a"].agreement, layers["b"].missed) == (1.0, ("p",))
    assert agreement.of_union(verdicts, {}).agreement is None
