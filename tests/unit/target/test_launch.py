"""A run of the bundled model: three passes, one session; and what is refused leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from dsv4prof.errors import Dsv4profError, UsageError
from dsv4prof.model.session import Outcome, Session
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import open_session
from dsv4prof.target.launch import run
from dsv4prof.target.spec import RunSpec

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "dsv4_tiny"
SMALL: dict[str, Any] = {"model": "dsv4-tiny", "requests": 3, "max_requests": 2, "max_new_tokens": 8}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session, list[str]]:
    heard: list[str] = []
    root = tmp_path_factory.mktemp("sessions")
    plan = RecordPlan(active=5)
    folder, session = run(RunSpec(**SMALL, tp=2, profile=True, plan=plan, root=str(root)), progress=heard.append)
    return folder, session, heard


def test_both_ranks_record_the_window_and_release(recorded: tuple[Path, Session, list[str]]) -> None:
    folder, session, heard = recorded
    assert session == open_session(folder)
    assert session.outcome is Outcome.COMPLETE
    for rank in session.ranks:
        assert rank.steps == 5
        assert (folder / str(rank.trace)).stat().st_size == rank.trace_bytes
        assert rank.release is not None
        assert rank.release.freed
    assert len({rank.first_step for rank in session.ranks}) == 1
    assert heard[0] == "loading the model"
    assert heard[-1] == f"waiting {session.ranks[0].first_step} steps, then recording 5 steps"
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json", "rank0.json", "rank0.log", "rank0.trace.json.gz",
        "rank1.json", "rank1.log", "rank1.trace.json.gz",
    ]  # fmt: skip


def test_every_recorded_step_has_an_unprofiled_twin(recorded: tuple[Path, Session, list[str]]) -> None:
    for rank in recorded[1].ranks:
        assert rank.overhead is not None
        assert rank.overhead.reason == "5 of 5 profiled steps matched with unprofiled steps of the same work"
        assert rank.overhead.ratio is not None
        assert 0.5 < rank.overhead.ratio < 20


def test_the_region_pass_names_the_builders_line(recorded: tuple[Path, Session, list[str]]) -> None:
    session = recorded[1]
    sites = [site for site in session.ranks[0].call_sites if site.op == "aten::repeat_interleave"]
    assert sites
    for site in sites:
        assert site.region == "attach_prefill_meta"
        line = Path(site.file).read_text().splitlines()[site.line - 1]
        assert "repeat_interleave" in line
        assert "output_size" not in site.keywords
    assert session.ranks[0].call_sites_steps == 2


def test_gates_are_counted_in_the_window_only(recorded: tuple[Path, Session, list[str]]) -> None:
    gates = recorded[1].ranks[0].facts["gates"]
    assert gates["target_verify"]["reason"]
    assert 0 < gates["target_verify"]["count"] <= 5
    assert gates["target_verify"]["captured"] is False


def test_the_workload_is_described(recorded: tuple[Path, Session, list[str]], tmp_path: Path) -> None:
    workload = recorded[1].workload
    assert workload["output_tokens"] == 24
    assert workload["accept_length"] >= 1
    assert workload["step_ns"]["count"] == workload["steps"] == sum(workload["steps_by_kind"].values())
    _, single = run(RunSpec(**SMALL, tp=1, exact_num_tokens=True, root=str(tmp_path)))
    assert single.workload["tokens_sha256"] == workload["tokens_sha256"], "neither ranks nor the switch change tokens"
    assert single.ranks[0].trace is None
    assert single.outcome is Outcome.COMPLETE


def refused(tmp_path: Path, **changes: Any) -> Dsv4profError:
    root = tmp_path / "sessions"
    with pytest.raises(Dsv4profError) as caught:
        run(RunSpec(**{**SMALL, "profile": True, "root": str(root), **changes}))
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert not root.exists() or list(root.iterdir()) == []
    return caught.value


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    assert "no/such" in refused(tmp_path, model="no/such").message


def test_what_only_a_rank_can_see_comes_back_as_its_sentence(tmp_path: Path) -> None:
    assert "3 ranks" in refused(tmp_path, tp=3).message
    assert "context" in refused(tmp_path, context_len=20).message


def test_a_cut_shard_is_named(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(GOLDEN / "config.json", model)
    whole = (GOLDEN / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "model.safetensors" in refused(tmp_path, model=str(model), tp=2).message


def test_a_config_of_another_model_is_refused_before_any_rank_starts(tmp_path: Path) -> None:
    config = {**json.loads((GOLDEN / "config.json").read_text()), "model_type": "llama", "architectures": ["Llama"]}
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    assert "llama" in refused(tmp_path, model=str(model)).message


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in refused(tmp_path, port=port, tp=2).message


def test_a_wait_beyond_the_workload_is_refused(tmp_path: Path) -> None:
    assert "waits 5000 steps" in refused(tmp_path, plan=RecordPlan(wait=5000)).message


@pytest.mark.parametrize("changes", [{"tp": 0}, {"requests": 0}, {"port": 70000}])
def test_impossible_specs_are_refused_when_made(changes: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        RunSpec(**changes)


TORCHRUN = """
import json, os, sys
from pathlib import Path
from dsv4prof.errors import Dsv4profError
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.launch import run
from dsv4prof.target.spec import RunSpec
for number, changes in enumerate(json.loads(sys.argv[2])):
    try:
        folder, session = run(RunSpec(profile=True, root=str(Path(sys.argv[1], str(number))), requests=2,
                                      model="dsv4-tiny", max_requests=2, max_new_tokens=8,
                                      plan=RecordPlan(active=4), **changes))
        said = [session.outcome.value, [rank.steps for rank in session.ranks], session.workload["tokens_sha256"]]
    except Dsv4profError as error:
        said = [type(error).__name__, error.message]
    if os.environ["RANK"] == "0":
        print("SAID", json.dumps(said), flush=True)
"""
UNDER_TORCHRUN = ({"tp": 4}, {"tp": 2, "context_len": 9}, {"tp": 2})


@pytest.fixture(scope="module")
def under_torchrun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]]]:
    """Folder of each of the runs by number, and what rank 0 said of each."""
    folder = tmp_path_factory.mktemp("torchrun")
    script = folder / "script.py"
    script.write_text(TORCHRUN)
    child = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script), str(folder), json.dumps(UNDER_TORCHRUN)],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    said = [json.loads(line.removeprefix("SAID ")) for line in child.stdout.splitlines() if line.startswith("SAID ")]
    assert len(said) == len(UNDER_TORCHRUN), child.stdout + child.stderr
    return folder, said


def test_as_torchruns_ranks_they_share_one_session(under_torchrun: tuple[Path, list[list[Any]]]) -> None:
    root, said = under_torchrun
    outcome, steps, tokens = said[2]
    assert (outcome, steps) == ("complete", [4, 4])
    assert len(tokens) == 64
    (folder,) = [path for path in (root / "2").iterdir() if path.is_dir()]
    assert {path.name for path in folder.glob("*.gz")} == {"rank0.trace.json.gz", "rank1.trace.json.gz"}


@pytest.mark.parametrize(("number", "words"), [(0, "started 2 ranks"), (1, "context")])
def test_a_refusal_under_torchrun_leaves_no_session(
    under_torchrun: tuple[Path, list[list[Any]]], number: int, words: str
) -> None:
    root, said = under_torchrun
    kind, message = said[number]
    assert kind == "UsageError"
    assert words in message
    refused_root = root / str(number)
    assert not refused_root.exists() or [path for path in refused_root.iterdir() if path.is_dir()] == []
