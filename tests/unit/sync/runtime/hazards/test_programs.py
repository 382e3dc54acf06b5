"""Programs of public reports on shadow tensors: each hazard has its class and both places, its clean twin none."""

from __future__ import annotations

import pytest
import torch

from dsv4prof.sync.runtime.hazards import check_plan, guard_plan
from dsv4prof.sync.runtime.hazards.explain import explain
from dsv4prof.sync.runtime.hazards.replay import Place
from hazard_programs import PROGRAMS, early_read, overwritten_source, table_race, watched_on_shadows


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_reported_hazard_is_found_and_its_clean_twin_is_not(program):
    with watched_on_shadows() as watch:
        program(clean=False)
    found = watch.hazards()
    assert {(hazard.code, hazard.trouble) for hazard in found} == {PROGRAMS[program]}
    for hazard in found:
        for side in filter(None, (hazard.first, hazard.second)):
            assert side.stack[0].function == program.__name__
    with watched_on_shadows() as watch:
        program(clean=True)
    assert not watch.hazards()


def test_findings_say_both_places_the_memory_and_what_would_order_them():
    with watched_on_shadows() as watch:
        overwritten_source(clean=False)
    (finding,) = watch.findings()
    assert finding.code == "DSV203" and finding.location.function == "overwritten_source"
    assert "aten::copy_" in finding.message and "1,024 bytes of pinned memory" in finding.message
    evidence = finding.evidence
    assert evidence["first"]["stack"][0] != evidence["second"]["stack"][0]
    assert evidence["buffer"]["bytes"] == 1024 and "overwritten_source" in evidence["buffer"]["made"][0]
    assert "event" in finding.fix


def test_a_sync_is_explained_by_what_appears_without_it():
    with watched_on_shadows() as watch:
        overwritten_source(clean=True)
    found = explain(watch.log(), Place("hazard_programs.py", function="overwritten_source"))
    assert found.answer == "protects" and {hazard.code for hazard in found.protects} == {"DSV203"}
    assert found.waits[0].op == "Event.synchronize" and found.instead


def test_an_order_of_streams_is_not_taken_for_a_wait_of_the_host():
    with watched_on_shadows() as watch:
        table_race(clean=True)
    assert explain(watch.log(), Place("hazard_programs.py", function="table_race")).answer == "does not wait"
    assert explain(watch.log(), Place("hazard_programs.py", function="early_read")).answer == "not exercised"


def test_a_sync_that_protects_nothing_is_not_called_safe():
    def idle():
        torch.ones(4, device="cuda").sum()
        torch.cuda.synchronize()

    def valued():
        return torch.ones(4, device="cuda").sum().item()

    with watched_on_shadows() as watch:
        idle()
        valued()
    file = __file__.rpartition("/")[2]
    unneeded = explain(watch.log(), Place(file, function="idle"))
    assert unneeded.answer == "protects nothing exercised" and "no proof" in unneeded.sentence
    assert explain(watch.log(), Place(file, function="valued")).answer == "brings a value"
    with watched_on_shadows() as watch:
        early_read(clean=True)
    assert explain(watch.log(), Place("hazard_programs.py", function="early_read")).answer == "protects"


def test_a_size_that_was_sometimes_padded_is_no_replacement():
    def expand(bucket, rows):
        lens = torch.tensor(rows, device="cuda")
        return torch.repeat_interleave(lens)

    with watched_on_shadows() as watch:
        for bucket, rows in ((8, [3, 5]), (8, [4, 4]), (8, [1, 2])):
            expand(bucket, rows)
    found = explain(watch.log(), Place(__file__.rpartition("/")[2], function="expand"))
    assert found.answer == "size would be padded" and "bucket" in found.padded[0].name
    assert (found.padded[0].equal, found.padded[0].calls) == (2, 3)


def test_plans_that_changed_before_their_use():
    with watched_on_shadows() as watch:
        plan = {"rows": torch.arange(6, device="cuda"), "fills": torch.ones(3, device="cuda", dtype=torch.bool)}
        guard_plan("verify", plan)
        check_plan("verify", plan)
        assert not watch.hazards()
        plan["rows"][2:4] = plan["rows"][2:4].flip(0)
        check_plan("verify", plan)
        check_plan("unknown", plan)
    (hazard,) = watch.hazards()
    assert (hazard.code, hazard.facts["plan"], hazard.facts["tensor"]) == ("DSV206", "verify", 0)
    guard_plan("verify", plan)


def test_a_watch_leaves_no_trace():
    before = (torch.Tensor.numpy, torch.repeat_interleave)
    with watched_on_shadows():
        pass
    assert (torch.Tensor.numpy, torch.repeat_interleave) == before
