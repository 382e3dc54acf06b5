"""Other people's code under `audit run --no-gpu`: SGLang 0.5.23's own metadata builders, run whole.

Needs an interpreter with sglang 0.5.23, torch and pytest: this one, or the one that SGLANG_CPU_PYTHON names. What a
fake hides is said in cases/check_prefill_meta.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from child import Outcome, dsv4prof

CASES = Path(__file__).with_name("cases") / "check_prefill_meta.py"
PYTHON = os.environ.get("SGLANG_CPU_PYTHON", sys.executable)

pytestmark = pytest.mark.slow


def _missing() -> str:
    code = "import pytest, msgspec\nfrom importlib.metadata import version\nprint(version('sglang'))"
    child = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    if child.returncode:
        return f"{PYTHON} has no sglang: set SGLANG_CPU_PYTHON to one that has, with pytest and msgspec"
    return "" if child.stdout.strip() == "0.5.23" else f"sglang is {child.stdout.strip()}, and this was read in 0.5.23"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> dict[str, Any]:
    why = _missing()
    if why:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("sglang")
    done: Outcome = dsv4prof(
        "audit", "run", "--no-gpu", "--format", "json", "--export", "ran.json", "--",
        PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(CASES),
        cwd=folder,
        env={
            "SGLANG_CPU_PEER": "1",
            "SGLANG_USE_CPU_ENGINE": "1",
            "PYTHONPATH": str(shared / "peers" / "sglang_cpu" / "site"),
        },
    )  # fmt: skip
    assert done.status == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, Any] = done.json
    return found


def in_function(report: dict[str, Any], function: str) -> list[tuple[str, int, str]]:
    """(code, how often it waited, source line) of the findings in one function of SGLang."""
    found = []
    for finding in report["findings"]:
        place = finding["location"]
        if place["function"].rpartition(".")[2] == function and "sglang" in place["file"]:
            text = Path(place["file"]).read_text().splitlines()[place["line"] - 1].strip()
            found.append((finding["code"], finding["evidence"]["reads"], text))
    return sorted(found)


def test_the_hidden_read_of_29202_is_found_where_no_total_is_given(report: dict[str, Any]) -> None:
    ((code, reads, text),) = in_function(report, "_attach_unified_kv_prefill_meta")
    # Twice a call without output_size, of the four calls two.
    assert (code, reads) == ("DSV105", 4)
    assert text == "bid = torch.repeat_interleave("


def test_the_plan_builders_wait_where_the_source_copies(report: dict[str, Any]) -> None:
    assert in_function(report, "create_paged_compressor_data") == []
    online = in_function(report, "generate_online")
    assert {code for code, _, _ in online} >= {"DSV103"}
    copies = [text for code, _, text in online if code == "DSV103"]
    assert len(copies) == 2 and all(text.endswith(".cpu()") for text in copies)
