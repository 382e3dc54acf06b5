"""Process groups: `nccl` is gloo on the host here, and still waits where NCCL does."""

from __future__ import annotations

from typing import Any

from torch import distributed as dist

from dsv4prof.sync.runtime.reasons import named
from dsv4prof.sync.runtime.shadow.patches import Patches
from dsv4prof.sync.runtime.shadow.world import World


def install(patches: Patches, world: World) -> None:
    """Nothing where this torch has no distributed package."""
    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    init, new_group, barrier, backend = c10d.init_process_group, c10d.new_group, c10d.barrier, c10d.get_backend
    ours: set[int] = set()

    def on_host(backend: str | None) -> tuple[str | None, bool]:
        nccl = backend is not None and "nccl" in backend.lower()
        return ("gloo" if nccl else backend), nccl or backend is None

    def init_process_group(backend: str | None = None, *args: Any, device_id: Any = None, **options: Any) -> None:
        host, nccl = on_host(backend)
        init(host or "gloo", *args, **options)
        if nccl:
            ours.add(id(c10d._get_default_group()))

    def make_group(ranks: Any = None, timeout: Any = None, backend: str | None = None, **options: Any) -> Any:
        host, nccl = on_host(backend)
        options.pop("device_id", None)
        group = new_group(ranks, timeout, host, **options)
        if nccl and (backend is not None or id(c10d._get_default_group()) in ours):
            ours.add(id(group))
        return group

    def is_nccl(group: Any) -> bool:
        return id(group if group is not None else c10d._get_default_group()) in ours

    def wait_all(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        if is_nccl(group) and not async_op:
            world.noted(named("dist-barrier", "NCCL's barrier waits for the stream"), "dist.barrier", ())
            world.waited_for_stream(world.here.stream)
        with world.unseen():
            return barrier(group, async_op)

    def named_backend(group: Any = None) -> Any:
        return "nccl" if is_nccl(group) else backend(group)

    changed = {"init_process_group": init_process_group, "new_group": make_group, "barrier": wait_all}
    changed["get_backend"] = named_backend
    changed["is_nccl_available"] = lambda: True
    for owner in (c10d, dist):
        patches.put_all(owner, changed)
    objects = c10d._get_object_coll_device

    def object_device(group: Any = None) -> str:
        return "cuda" if is_nccl(group) else objects(group)

    patches.put(c10d, "_get_object_coll_device", object_device)


def is_collective(func: Any) -> bool:
    """Whether an operator belongs to torch.distributed."""
    return str(func.namespace) in ("c10d", "_c10d_functional")
