"""All comparisons of one folder, on one rank of a group."""

from __future__ import annotations

from pathlib import Path

import torch

from dsv4_engine.check.forwards import check_prompts, check_quantised, check_trace
from dsv4_engine.check.golden import read_golden
from dsv4_engine.check.ledger import Ledger
from dsv4_engine.check.rank import CheckRank
from dsv4_engine.check.serving import check_serving
from dsv4_engine.check.speculation import check_spec


@torch.inference_mode()
def check_folder(folder: Path, rank: CheckRank) -> Ledger:
    """Compare everything that a golden folder holds; EngineError where it cannot be read."""
    golden, ledger = read_golden(folder), Ledger()
    for part in (check_prompts, check_trace, check_serving, check_spec, check_quantised):
        part(golden, rank, ledger)
    return ledger
