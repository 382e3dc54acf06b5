"""The engine watched on shadow tensors: each fault that can be switched on is found, nothing is on the clean engine."""

from __future__ import annotations

import pytest

from dsv4prof.api.hazards import hazards_explain, hazards_of_run
from dsv4prof.errors import InputError, UsageError
from dsv4prof.report import render
from dsv4prof.sync.runtime.hazards.log import save
from hazard_programs import watched_engine as watched


@pytest.fixture(scope="module")
def staging_log():
    """Plans from the host through a buffer that is used again at once; the metadata's accidental syncs are there."""
    watch, failure = watched(10, faults=("freed_staging",), plan_on="host", overlap=False)
    assert not failure
    return watch.log(command="engine")


def test_a_freed_staging_buffer_is_found_at_the_plan_that_overwrites_it(staging_log):
    found = staging_log.found
    assert {hazard.code for hazard in found} == {"DSV203"}
    first, second = found[0].first, found[0].second
    assert first.op == "a raw copy" and first.stack[0].function == "_raw_copy"
    assert second.op == "aten::copy_" and second.stack[0].function == "StagingRing.upload"
    assert any("_on_host" in frame.function for frame in second.stack)
    assert found[0].memory.place == "pinned" and found[0].second.step is not None and found[0].second.region


def test_a_padded_output_size_is_found_where_it_is_given():
    watch, failure = watched(3, faults=("padded_output_size",), exact_num_tokens=True)
    assert failure.startswith("EngineError: the row expansion was told")
    (hazard,) = watch.hazards()
    assert (hazard.code, hazard.second.stack[0].function) == ("DSV201", "_expanded")
    assert hazard.facts["given"] > hazard.facts["actual"] > 0 and hazard.second.region == "attach_prefill_meta"


def test_a_table_write_without_its_barrier_races_the_reads_of_the_step_before():
    watch, failure = watched(8, faults=("no_war_barrier",), exact_num_tokens=True, requests=3, chunk_tokens=32)
    assert not failure
    races = [hazard for hazard in watch.hazards() if hazard.trouble == "write-after-read"]
    assert races and {hazard.code for hazard in watch.hazards()} == {"DSV204"}
    assert "RequestTable._write" in [frame.function for frame in races[0].second.stack]
    assert races[0].first.stream == 0 and races[0].second.stream


def test_the_accidental_sync_is_what_keeps_the_staging_fault_rare(staging_log, tmp_path):
    """sglang #29202: without the read of the size more copies are overwritten while they are pending."""
    path = tmp_path / "run.hazards.json.gz"
    save(staging_log, path)
    report = hazards_explain("metadata.py:attach_prefill_meta", ran=path)
    data = report.data
    assert (data["answer"], data["safe_to_remove"], data["exercised"]) == ("protects", False, True)
    assert {finding.code for finding in report.findings} == {"DSV203"}
    assert all(wait["op"] == "aten::repeat_interleave" for wait in data["waits"])
    assert "num_tokens in attach_prefill_meta" in [each["name"] for each in data["exact_totals"]]
    assert any("event" in line for line in data["instead"]) and any("output_size" in line for line in data["instead"])
    assert report.verdict.exit_code == 0 and "unsafe to remove" in report.verdict.summary
    assert data["source"]["found"][0]["code"] == "DSV105"


def test_the_accidental_sync_hides_the_race_of_a_missing_barrier(tmp_path):
    """The same read of the size orders the next step's table write behind this one's reads."""
    watch, failure = watched(8, faults=("no_war_barrier",), requests=3, chunk_tokens=32)
    path = tmp_path / "run.hazards.json.gz"
    watch.save(path)
    assert not failure and "write-after-read" not in {hazard.trouble for hazard in watch.hazards()}
    data = hazards_explain("metadata.py:76", ran=path).data
    assert data["answer"] == "protects"
    assert {each["code"] for each in data["protects"]} == {"DSV204"}
    assert "write-after-read" in {each["trouble"] for each in data["protects"]}


def test_the_one_wait_of_a_step_protects_the_tokens(staging_log, tmp_path):
    path = tmp_path / "run.hazards.json.gz"
    save(staging_log, path)
    report = hazards_explain("readback.py:HostCopy.wait", ran=path)
    assert report.data["answer"] == "protects" and "DSV202" in {finding.code for finding in report.findings}


def test_a_kept_run_is_reported_again_in_every_format(staging_log, tmp_path):
    path = tmp_path / "run.hazards.json.gz"
    save(staging_log, path)
    report = hazards_of_run(path)
    assert report.verdict.exit_code == 1 and {finding.code for finding in report.findings} == {"DSV203"}
    assert report.data["watched_on"] == "shadow tensors"
    for form in ("text", "json", "markdown", "sarif"):
        assert "DSV203" in render(report, form, color=False)
    assert hazards_of_run(path, fail_on="error").verdict.exit_code == 0


def test_what_cannot_be_asked_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="names no place"):
        hazards_explain("metadata", ran=tmp_path / "x")
    with pytest.raises(InputError, match="cannot read"):
        hazards_explain("metadata.py:3", ran=tmp_path / "x")
    with pytest.raises(UsageError, match="no run to judge"):
        hazards_explain("metadata.py:3")
