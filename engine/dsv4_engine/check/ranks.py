"""Run a check on several ranks that share the model, and hand rank 0's ledger back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from dsv4_engine.check.folder import check_folder
from dsv4_engine.check.ledger import Ledger
from dsv4_engine.check.rank import CheckRank
from dsv4_engine.errors import EngineError
from dsv4_engine.parallel.group import TensorParallelGroup, close, init_process_group


def on_ranks(folder: Path, size: int, *, device: torch.device) -> Ledger:
    """Check in this process for one rank, else in `size` new ones, each with its own GPU; EngineError if one fails.

    One CPU thread a rank: the matrices are so small that more threads only wait for each other.
    """
    if size == 1:
        torch.set_num_threads(1)
        return check_folder(folder, CheckRank(group=TensorParallelGroup.single(), device=device))
    with tempfile.TemporaryDirectory() as meeting:
        try:
            torch.multiprocessing.spawn(_rank, args=(folder, size, device.type, meeting), nprocs=size)
        except (torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException) as error:
            last = str(error).strip().splitlines()[-1]
            raise EngineError(f"the check failed on {size} ranks: {last}", hint="run it on one rank first") from error
        ledger: Ledger = torch.load(Path(meeting) / "ledger.pt", weights_only=False)
        return ledger


def _rank(rank: int, folder: Path, size: int, kind: str, meeting: str) -> None:
    torch.set_num_threads(1)
    device = torch.device(f"{kind}:{rank}" if kind == "cuda" else kind)
    meet = f"file://{meeting}/ranks"
    group = init_process_group(rank=rank, size=size, device=device, init_method=meet, timeout_s=120.0)
    ledger = check_folder(folder, CheckRank(group=group, device=device))
    if rank == 0:
        torch.save(ledger, Path(meeting) / "ledger.pt")
    close(group)
