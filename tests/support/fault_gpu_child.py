"""A process on a GPU whose work goes wrong in a step, under a fault watch: `python fault_gpu_child.py FOLDER HOW`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from dsv4prof.sync.runtime.faultwatch.watch import FaultWatch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def read_rows(table, index, out, width: tl.constexpr):
        row = tl.load(index + tl.program_id(0))
        columns = tl.arange(0, width)
        tl.store(out + tl.program_id(0) * width + columns, tl.load(table + row * width + columns))

    @triton.jit
    def wait_for_flag(flag, out):
        seen = tl.load(flag, volatile=True)
        while seen == 0:
            seen = tl.load(flag, volatile=True)
        tl.store(out, seen)


def main(folder: Path, how: str) -> None:
    device = torch.device("cuda:0")
    facts = {"argv": ["python", "fault_gpu_child.py", how]}
    if how == "hang":
        # Compiled before: a compilation within a step is a step that does not move.
        wait_for_flag[(1,)](*(torch.ones(1, dtype=torch.int32, device=device) for _ in range(2)))
    with FaultWatch(folder, timeout_s=5.0 if how == "hang" else None, grace_s=1.0, facts=facts) as watch:
        table = torch.randn(1000, 64, device=device)
        good = torch.arange(8, device=device)
        # Torch's kernels may compute with 32 bits: an index beyond them could wrap into the table again.
        bad = torch.tensor([1, 2, 3, 4, 5, 6, 7, 5_000_000], device=device)
        far = torch.tensor([1, 2, 3, 4, 5, 6, 7, 1 << 34], device=device)
        for step in range(20):
            with watch.step(step, kind="decode", requests=8, rows=8), watch.phase("draft"):
                for _ in range(5):
                    table.index_select(0, good).mul_(2.0)
                    # A kernel that is used for the first time behind one that never ends may wait for it to be loaded.
                    table.add_(1.0)
                if step == 0 and how == "graph":
                    graph, rows = captured(table, good)
                if step == 19:
                    go_wrong(how, table, far if how == "triton" else bad)
                    if how == "graph":
                        rows.copy_(bad)
                        graph.replay()
                    for _ in range(5):
                        table.add_(1.0)
                torch.cuda.synchronize()
    print("the child ended well, which it was not to", file=sys.stderr)


def captured(table, index):
    rows = index.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        table.index_select(0, rows).mul(2.0)
    return graph, rows


def go_wrong(how, table, bad):
    if how == "assert":
        table.index_select(0, bad)
    elif how == "triton":
        read_rows[(8,)](table, bad, torch.empty(8, 64, device=table.device), 64)
    elif how == "hang":
        flag, out = (torch.zeros(1, dtype=torch.int32, device=table.device) for _ in range(2))
        wait_for_flag[(1,)](flag, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
