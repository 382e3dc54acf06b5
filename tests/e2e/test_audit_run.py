"""`audit run -- CMD` as a user meets it: whatever starts Python is watched, and stays what it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from child import TINY, dsv4prof

pytest.importorskip("torch")

PROGRAM = """
import sys, torch

def build(lens):
    return lens.sum().item()

lens = torch.tensor([1, 2, 3], device="cuda")
for _ in range(300):
    build(lens)
print("the program's own words")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
PYTHON = sys.executable


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


def watched(folder: Path, *arguments: str, env: dict[str, str] | None = None):
    return dsv4prof("audit", "run", "--no-gpu", *arguments, cwd=folder, env=env)


def test_a_program_is_reported_by_line_and_runs_as_it_would(program: Path) -> None:
    done = watched(program, "--", PYTHON, "prog.py")
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("the program's own words\n")
    assert "300 in all  DSV101" in done.stdout
    assert "build, prog.py:5" in done.stdout
    assert "Next: dsv4prof hazards --no-gpu -o run.hazards.json.gz -- " in done.stdout


def test_the_machines_report_is_clean_and_has_stacks(program: Path) -> None:
    done = watched(program, "--format", "json", "--", PYTHON, "prog.py")
    report = done.json
    assert "the program's own words" in done.stderr
    worst = report["findings"][0]
    assert (worst["code"], worst["evidence"]["reads"], worst["evidence"]["kind"]) == ("DSV101", 300, "SYNC")
    assert [frame.split()[-1] for frame in worst["evidence"]["stack"]] == ["build", "<module>"]
    assert report["syncs"] == 301
    (process,) = report["processes"]
    assert process["layers"] == ["shadow"] and process["ended"]
    # A million syncs do not make a million lines.
    (log,) = Path(program, report["logs"]).glob("*.jsonl")
    assert len(log.read_text().splitlines()) < 100


def test_the_programs_status_comes_first(program: Path) -> None:
    assert watched(program, "--", PYTHON, "prog.py", "7").status == 7
    assert watched(program, "--max-syncs", "1", "--", PYTHON, "prog.py").status == 1
    assert watched(program, "--max-syncs", "301", "--", PYTHON, "prog.py").status == 0
    assert watched(program, "--disallow", "d2h", "--", PYTHON, "prog.py").status == 1
    assert watched(program, "--fail-on", "warning", "--", PYTHON, "prog.py").status == 1


def test_regions_are_functions_of_modules_and_budgets_count_their_calls(program: Path) -> None:
    (program / "main.py").write_text("import prog\n")
    done = watched(program, "--region", "prog:build", "--warmup", "10", "--max-syncs", "1", "--format", "json", "--",
                   PYTHON, "main.py")  # fmt: skip
    report = done.json
    assert done.status == 0, done.stderr
    assert report["findings"][0]["evidence"]["region"] == ""
    never = watched(program, "--region", "nowhere:at_all", "--", PYTHON, "prog.py")
    assert "--region nowhere:at_all: nowhere was not imported" in never.stdout


def test_a_region_is_entered_where_the_function_is_called_through_its_module(tmp_path: Path) -> None:
    (tmp_path / "backend.py").write_text(
        "import torch\nclass Backend:\n    def plan(self, lens):\n        return lens.tolist()\n"
    )
    (tmp_path / "main.py").write_text(
        "import torch\nfrom backend import Backend\nlens = torch.ones(3, device='cuda')\n"
        "for _ in range(5):\n    Backend().plan(lens)\n"
    )
    done = watched(tmp_path, "--region", "backend:Backend.plan", "--warmup", "2", "--max-syncs", "0", "--format",
                   "json", "--", PYTHON, "main.py")  # fmt: skip
    report = done.json
    assert done.status == 1
    (finding,) = report["findings"]
    assert finding["evidence"]["region"] == "Backend.plan"
    assert report["violations"][0] == "region Backend.plan waited 1 times, and 0 are allowed"
    assert len(report["violations"]) == 3


def test_children_and_their_sitecustomize_are_watched_and_kept(program: Path) -> None:
    (program / "own").mkdir()
    (program / "own" / "sitecustomize.py").write_text("import builtins\nbuiltins.MINE = 'kept'\n")
    (program / "parent.py").write_text(
        "import subprocess, sys\nprint(MINE)\n"
        "for _ in range(2):\n    subprocess.run([sys.executable, 'prog.py'], check=True)\n"
    )
    done = watched(program, "--format", "json", "--", PYTHON, "parent.py", env={"PYTHONPATH": str(program / "own")})
    report = done.json
    assert done.status == 0, done.stderr
    assert "kept" in done.stderr
    assert (len(report["processes"]), report["started"]) == (2, 3)
    assert report["findings"][0]["evidence"]["reads"] == 600
    assert report["findings"][0]["evidence"]["processes"] == 2


def test_a_forked_child_has_a_log_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(
        "import os, torch\nlens = torch.ones(3, device='cuda')\nlens.tolist()\n"
        "pid = os.fork()\nlens.tolist()\n"
        "if pid == 0:\n    lens.tolist()\n    os._exit(0)\nos.waitpid(pid, 0)\n"
    )
    report = watched(tmp_path, "--format", "json", "--", PYTHON, "forks.py").json
    assert len(report["processes"]) == 2
    by_line = {finding["location"]["line"]: finding["evidence"]["reads"] for finding in report["findings"]}
    assert by_line[3] == 1
    assert by_line[5] == 2


def test_a_process_that_is_killed_leaves_what_it_saw(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(
        "import os, signal, torch\nlens = torch.ones(3, device='cuda')\nfor _ in range(20):\n    lens.tolist()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = watched(tmp_path, "--format", "json", "--", PYTHON, "dies.py")
    report = done.json
    assert done.status == 128 + signal.SIGKILL
    assert report["findings"][0]["evidence"]["reads"] >= 16
    assert report["processes"][0]["ended"] is False


def test_ctrl_c_keeps_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        "import time, torch\nlens = torch.ones(3, device='cuda')\nlens.tolist()\nprint('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [PYTHON, "-m", "dsv4prof", "audit", "run", "--no-gpu", "--", PYTHON, "long.py"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "DSV102" in out
    assert "interrupted; until then 1 wait at 1 place" in out


def test_nothing_with_torch_is_said_plainly(tmp_path: Path) -> None:
    done = watched(tmp_path, "--", PYTHON, "-c", "print(1)")
    assert done.status == 0
    assert "nothing with torch ran: 1 Python process started and none imported it" in done.stdout
    other = watched(tmp_path, "--", "true")
    assert other.status == 2
    assert "no Python process could be watched" in other.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--", "no-such-program"], "there is no command 'no-such-program'"),
        (["--disallow", "up", "--", "python"], "'up' is no direction"),
        (["--region", "build", "--", PYTHON], "is not MODULE:FUNCTION"),
        (["--exercised", "nowhere", "--", PYTHON], "there is no nowhere"),
        (["--vendor", "intel", "--", PYTHON], "--vendor 'intel'"),
        (["--export", "nowhere/ran.json", "--", PYTHON], "cannot be written"),
        ([], "Missing argument"),
    ],
)
def test_requests_that_make_no_sense(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = watched(tmp_path, *arguments)
    assert done.status == 2
    assert said in done.stderr


def test_layers_that_need_a_gpu_are_refused_in_the_process(program: Path) -> None:
    done = dsv4prof("audit", "run", "--layers", "warn", "--", PYTHON, "-c", "import torch", cwd=program)
    import torch

    if not torch.cuda.is_available():
        assert done.status == 2
        assert "without a GPU there is only the layer shadow" in done.stdout


def test_the_export_says_what_ran_and_what_waited(program: Path) -> None:
    done = watched(program, "--exercised", "prog.py", "--export", "ran.json", "--", PYTHON, "prog.py")
    assert done.status == 0, done.stderr
    ran = json.loads((program / "ran.json").read_text())
    assert ran["format"] == "dsv4prof.syncs/1"
    assert {(site["line"], site["code"]) for site in ran["sites"]} == {(5, "DSV101"), (7, "DSV108")}
    (function,) = ran["functions"]
    assert (function["function"], function["line"], function["lines"]) == ("build", 4, [5])


def test_the_engine_names_steps_phases_and_spans(tmp_path: Path) -> None:
    done = watched(tmp_path, "--format", "json", "--", PYTHON, "-m", "dsv4prof", "run", "--device", "cuda", "--tp", "1",
                   *TINY, "--requests", "2", "--max-requests", "2", "--max-new-tokens", "6", "--no-graphs")  # fmt: skip
    assert done.status == 0, done.stderr
    report = done.json
    (total,) = [process["total"] for process in report["processes"]]
    assert total["steps"] > 3
    regions = {site["event"]["region"] for site in report["sites"]}
    assert "target_verify/build_metadata/attach_prefill_meta" in regions
    hidden = [
        finding
        for finding in report["findings"]
        if finding["evidence"]["region"] == "target_verify/build_metadata/attach_prefill_meta"
    ]
    assert [(each["code"], each["location"]["function"]) for each in hidden] == [("DSV105", "attach_prefill_meta")]
    allowed = {site["event"]["allowed_by"] for site in report["sites"]} - {""}
    assert all("the one wait of a step" in reason for reason in allowed)


def test_hazards_are_findings_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "races.py").write_text(
        "import torch\nvalues = torch.arange(8.0, device='cuda')\nthere = torch.empty(8, pin_memory=True)\n"
        "there.copy_(values, non_blocking=True)\nprint(there.tolist())\n"
    )
    report = watched(tmp_path, "--hazards", "--format", "json", "--", PYTHON, "races.py").json
    assert [each["code"] for each in report["findings"] if each["code"].startswith("DSV2")] == ["DSV202"]
    plain = watched(tmp_path, "--format", "json", "--", PYTHON, "races.py").json
    assert not [each for each in plain["findings"] if each["code"].startswith("DSV2")]


def test_a_run_that_is_kept_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    program = "import sys, torch; x = torch.ones(3, device='cuda'); [x.sum().item() for _ in range(int(sys.argv[1]))]"
    (tmp_path / "p.py").write_text(program)
    for waits in ("2", "5"):
        kept = dsv4prof("hazards", "--no-gpu", "-o", "run.gz", "--", PYTHON, "p.py", waits, cwd=tmp_path)
        assert kept.status == 0, kept.stderr
        assert "Next: dsv4prof hazards explain p.py:1 --ran run.gz" in kept.stdout
        asked = dsv4prof("hazards", "explain", "p.py:1", "--ran", "run.gz", cwd=tmp_path)
        assert f"its {waits} waits" in asked.stdout
    assert [each.name for each in tmp_path.glob("*.gz")] == ["run.gz"]


@pytest.mark.gpu
def test_every_layer_on_a_gpu_sees_the_same_calls(tmp_path: Path) -> None:
    (tmp_path / "backend.py").write_text(
        "import torch\ndef plan(lens, host):\n    torch.repeat_interleave(lens, lens)\n"
        "    host.copy_(lens, non_blocking=True)\n    torch.cuda.synchronize()\n"
    )
    (tmp_path / "main.py").write_text(
        "import torch\nimport backend\nlens = torch.tensor([1, 2, 3], device='cuda')\nhost = torch.empty(3).long()\n"
        "for _ in range(20):\n    torch.cuda._sleep(20_000_000)\n    backend.plan(lens, host)\n"
    )
    layers = "warn,explicit,copies,gpu_trace,dispatch,callbacks"
    done = dsv4prof("audit", "run", "--layers", layers, "--region", "backend:plan", "--format", "json", "--", PYTHON,
                    "main.py", cwd=tmp_path)  # fmt: skip
    assert done.status == 0, done.stderr
    report = done.json
    sites = {site["event"]["stack"][0]["line"]: site for site in report["sites"] if site["event"]["region"] == "plan"}
    assert set(sites) == {3, 4, 5}, done.stdout
    repeat, copy, wait = (sites[line] for line in (3, 4, 5))
    assert (repeat["event"]["code"], repeat["times"], repeat["event"]["op"]) == (
        "DSV105",
        40,
        "aten::repeat_interleave",
    )
    assert set(repeat["layers"]) == {"warn", "gpu_trace", "dispatch", "callbacks"}
    assert repeat["missing"] == {}
    assert (copy["event"]["kind"], copy["times"]) == ("SILENT", 20)
    assert {"copies", "dispatch"} <= set(copy["layers"])
    assert (wait["event"]["form"], wait["times"]) == ("cuda-synchronize", 20)
    assert {"explicit", "gpu_trace", "callbacks"} <= set(wait["layers"])
    assert repeat["blocked_ns"] > 20 * 1_000_000
