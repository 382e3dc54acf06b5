"""Small programs with hazards that were reported in public, each with a clean twin. `device` is what torch is told."""

from __future__ import annotations

from contextlib import contextmanager

import torch


def stale_pinned_mirror(clean):
    """sglang #31364: lengths are mirrored in pinned memory by a copy that nobody waits for before the host plans."""
    lens = torch.full((64,), 7, device="cuda")
    mirror = torch.zeros(64, dtype=torch.int64, pin_memory=True)
    for _ in range(3):
        lens += 1
        mirror.copy_(lens, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        if clean:
            copied.synchronize()
        max(mirror.tolist())


def early_read(clean):
    """sglang #16493: `.to("cpu", non_blocking=True)` read at once."""
    hidden = torch.ones(512, device="cuda") * 3
    host = hidden.to("cpu", non_blocking=True)
    if clean:
        torch.cuda.current_stream().synchronize()
    host.sum() + 1


def offloaded_norm(clean):
    """DeepSpeed #501: gradients are copied to a pinned buffer, and the CPU optimiser reads it."""
    gradient = torch.full((256,), 0.5, device="cuda")
    buffer = torch.zeros(1024, pin_memory=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        buffer[256:512].copy_(gradient, non_blocking=True)
    if clean:
        side.synchronize()
    buffer[256:512].norm()


def overwritten_source(clean):
    """vllm-ascend #12079: numpy writes the next step's ids into the pinned source of the last one's upload."""
    ids = torch.zeros(128, dtype=torch.int64, pin_memory=True)
    target = torch.empty(128, dtype=torch.int64, device="cuda")
    copied = torch.cuda.Event()
    for step in range(3):
        if clean and step:
            copied.synchronize()
        ids.numpy()[:] = step
        target.copy_(ids, non_blocking=True)
        copied.record()


def reused_staging(clean):
    """sglang #29202, the first candidate, by torch's own copies: one staging buffer for every plan."""
    staging = [torch.zeros(64, dtype=torch.int64, pin_memory=True) for _ in range(4 if clean else 1)]
    plans = []
    for turn in range(4):
        buffer = staging[turn % len(staging)]
        buffer.fill_(turn)
        plans.append(torch.empty(64, dtype=torch.int64, device="cuda"))
        plans[-1].copy_(buffer, non_blocking=True)


def table_race(clean):
    """The second candidate: another stream writes the table that the running forward reads."""
    table, rows = torch.zeros(8, 16, device="cuda"), torch.arange(4, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(3):
        table[rows]
        if clean:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            table.fill_(1)
        torch.cuda.current_stream().wait_stream(side)


def padded_total(clean):
    """The third candidate: a bucket's size instead of the sum."""
    lens = torch.tensor([3, 1, 4]).to("cuda")
    total = 8 if clean else 64
    try:
        torch.repeat_interleave(torch.arange(3, device="cuda"), lens, output_size=total)
    except RuntimeError:
        # A CPU refuses it; a GPU fails later.
        return


def unkept_memory(clean):
    """Memory of the main stream, used on another one and given back with no record_stream."""
    side = torch.cuda.Stream()
    for _ in range(2):
        scratch = torch.ones(1 << 12, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            scratch.sum()
        if clean:
            scratch.record_stream(side)
        del scratch
        torch.zeros(1 << 12, device="cuda")


PROGRAMS = {
    stale_pinned_mirror: ("DSV202", "read-early"),
    early_read: ("DSV202", "read-early"),
    offloaded_norm: ("DSV202", "read-early"),
    overwritten_source: ("DSV203", "overwritten"),
    reused_staging: ("DSV203", "overwritten"),
    table_race: ("DSV204", "write-after-read"),
    padded_total: ("DSV201", "output-size"),
    unkept_memory: ("DSV204", "freed-in-use"),
}


@contextmanager
def watched_on_shadows(**options):
    """A watch over shadow tensors."""
    from dsv4prof.sync.runtime.hazards import HazardWatch
    from dsv4prof.sync.runtime.shadow import ShadowDevice

    watch = HazardWatch(gpu=False, **options)
    with ShadowDevice("cuda", lambda _: None, watch.listener), watch:
        yield watch


def watched_engine(steps, **changes):
    """The engine on shadow tensors under a watch, which is returned with the sentence of the engine's failure."""
    import msgspec

    from dsv4prof.target.hazard_run import HazardSpec, watch_engine
    from dsv4prof.target.spec import RunSpec

    small = RunSpec(
        model="dsv4-tiny", device="cuda", num_drafts=1, max_requests=2, requests=2, max_new_tokens=60, threads=1
    )
    run = msgspec.structs.replace(small, page_size=128, context_len=500, **changes)
    return watch_engine(HazardSpec(run=run, steps=steps, gpu=False))
