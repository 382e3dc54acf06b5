"""What `torch.cuda` answers on a shadow device: one device of a plausible kind, and nothing that needs hardware."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Literal

import torch

from dsv4prof.model.syncs import Kind
from dsv4prof.sync.runtime.reasons import named
from dsv4prof.sync.runtime.shadow.generators import Generators
from dsv4prof.sync.runtime.shadow.graphs import ShadowGraph
from dsv4prof.sync.runtime.shadow.patches import Patches
from dsv4prof.sync.runtime.shadow.streams import ShadowEvent, ShadowStream, StreamContext, Streams, makes, or_host
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor
from dsv4prof.sync.runtime.shadow.world import World

Vendor = Literal["cuda", "hip"]
_GIB = 1 << 30
_CUDA_VERSION, _HIP_VERSION = "13.0", "7.0.0"
_TENSOR_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}
# Names that `torch.cuda.graphs` looks up in itself.
_OF_GRAPHS = frozenset({"graph_pool_handle", "is_current_stream_capturing"})


def install(patches: Patches, world: World, streams: Streams, *, vendor: Vendor, devices: int) -> None:
    """Put all stand-ins in place."""
    generators = Generators(world, devices)
    properties = _properties(vendor)
    cuda = torch.cuda
    patches.put_all(cuda, _asked(world, properties, devices))
    patches.put_all(cuda, _streams(streams))
    patches.put_all(cuda, _memory(world, properties))
    patches.put_all(cuda, generators.functions())
    patches.put_all(cuda.graphs, {name: getattr(cuda, name) for name in vars(cuda.graphs) if name in _OF_GRAPHS})
    patches.put_all(cuda.memory, {name: getattr(cuda, name) for name in _memory(world, properties)})
    patches.put_all(cuda.random, {k: v for k, v in generators.functions().items() if k != "default_generators"})
    patches.put_all(cuda, {name: _TensorType(name, (), {"dtype": dtype}) for name, dtype in _TENSOR_TYPES.items()})
    patches.put(cuda.Stream, "__new__", makes(streams.stream))
    patches.put(cuda.ExternalStream, "__new__", makes(streams.external))
    patches.put(cuda.StreamContext, "__new__", makes(lambda stream: StreamContext(streams, stream)))
    patches.put(cuda.Event, "__new__", makes(streams.event))
    patches.put(cuda.device, "__enter__", lambda self: _enter_device(self, world))
    patches.put(cuda.device, "__exit__", lambda self, *_: _leave_device(self, world))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.put(cuda.nvtx, name, lambda *args, **options: 0)
    for owner in (cuda, cuda.memory):
        if hasattr(owner, "MemPool"):
            patches.put_all(owner, {"MemPool": _MemoryPool, "use_mem_pool": lambda pool, device=None: nullcontext()})
    patches.put(cuda.CUDAGraph, "__new__", makes(lambda keep_graph=False: ShadowGraph(world)))
    # The class keeps the first stream that it makes.
    patches.put(cuda.graph, "default_capture_stream", None)
    patches.put(torch._C, "_host_emptyCache", lambda: None)
    patches.put(torch._C, "_cuda_getCurrentRawStream", lambda index: streams.current().cuda_stream)
    patches.put(torch, "Generator", generators.type())
    patches.put(torch, "Event", or_host(torch.Event, streams.event, ShadowEvent))
    patches.put(torch, "Stream", or_host(torch.Stream, streams.stream, ShadowStream))
    patches.put_all(torch.accelerator, _accelerator(world, streams, properties, devices))
    patches.put(torch.version, "hip", _HIP_VERSION if vendor == "hip" else None)
    patches.put(torch.version, "cuda", None if vendor == "hip" else torch.version.cuda or _CUDA_VERSION)
    if torch.backends.cuda is not None:
        patches.put(torch.backends.cuda, "is_built", lambda: True)


class _MemoryPool:
    """A pool that all memory is in."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.id, self.allocator = (0, 1), None

    def use_count(self) -> int:
        return 1

    def snapshot(self) -> list[Any]:
        return []


def _asked(world: World, properties: SimpleNamespace, devices: int) -> dict[str, Any]:
    def current_device() -> int:
        return world.here.device

    def set_device(device: Any) -> None:
        world.here.device = _number(device, world)

    capability = (properties.major, properties.minor)
    return {
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: devices,
        "current_device": current_device,
        "set_device": set_device,
        "_exchange_device": lambda index: _exchange(world, index),
        "_maybe_exchange_device": lambda index: _exchange(world, index),
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: properties.name,
        "get_device_capability": lambda device=None: capability,
        "get_arch_list": lambda: [properties.gcnArchName or f"sm_{properties.major}{properties.minor}"],
        "can_device_access_peer": lambda device, peer: True,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_tf32_supported": lambda: True,
        "is_current_stream_capturing": lambda: world.here.graph is not None,
        "ipc_collect": lambda: None,
        "_sleep": lambda cycles: world.timeline.launch(world.here.stream),
        "current_blas_handle": lambda: 1,
        "utilization": lambda device=None: 0,
        "set_sync_debug_mode": lambda mode: None,
        "get_sync_debug_mode": lambda: 0,
        "graph_pool_handle": lambda: (0, 1),
    }


def _accelerator(world: World, streams: Streams, properties: SimpleNamespace, devices: int) -> dict[str, Any]:
    asked, memory = _asked(world, properties, devices), _memory(world, properties)
    shared = ("empty_cache", "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    return {
        **{name: memory[name] for name in (*shared, "memory_stats", "reset_peak_memory_stats")},
        "synchronize": streams.synchronize,
        "current_stream": streams.current,
        "set_stream": streams.set_current,
        "is_available": lambda: True,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "device_count": lambda: devices,
        "current_device_index": asked["current_device"],
        "set_device_index": asked["set_device"],
    }


def _streams(streams: Streams) -> dict[str, Any]:
    return {
        "synchronize": streams.synchronize,
        "current_stream": streams.current,
        "default_stream": streams.default,
        "set_stream": streams.set_current,
        "stream": lambda stream: StreamContext(streams, stream),
        "get_stream_from_external": lambda data_ptr, device=None: streams.external(data_ptr, device),
    }


def _memory(world: World, properties: SimpleNamespace) -> dict[str, Any]:
    memory, total = world.memory, properties.total_memory

    def empty_cache() -> None:
        if memory.empty_cache():
            text = "cached blocks are given back to the driver, which waits for the device"
            world.noted(named("empty-cache", text), "torch.cuda.empty_cache", ())

    def limited(fraction: float, device: Any = None) -> None:
        memory.limit = int(fraction * total) if fraction < 1 else None

    def retried() -> None:
        if memory.empty_cache():
            text = "memory is short: cached blocks are given back to the driver, which waits for the device"
            world.noted(named("allocator-growth", text, kind=Kind.SILENT), "aten::empty", (), inside=True)

    memory.retried = retried

    def stats(device: Any = None) -> dict[str, int]:
        now = {"allocated_bytes.all": memory.allocated, "reserved_bytes.all": memory.reserved}
        peaks = {"allocated_bytes.all": memory.peak, "reserved_bytes.all": memory.peak_reserved}
        current = {f"{name}.current": value for name, value in now.items()}
        return {**current, **{f"{name}.peak": value for name, value in peaks.items()}, "num_alloc_retries": 0}

    def reset(device: Any = None) -> None:
        memory.peak, memory.peak_reserved = memory.allocated, memory.reserved

    return {
        "empty_cache": empty_cache,
        "memory_allocated": lambda device=None: memory.allocated,
        "max_memory_allocated": lambda device=None: memory.peak,
        "memory_reserved": lambda device=None: memory.reserved,
        "max_memory_reserved": lambda device=None: memory.peak_reserved,
        "mem_get_info": lambda device=None: (total - memory.reserved, total),
        "memory_stats": stats,
        "memory_summary": lambda device=None, abbreviated=False: str(stats()),
        "memory_snapshot": lambda mempool_id=None: [],
        "reset_peak_memory_stats": reset,
        "reset_max_memory_allocated": reset,
        "reset_accumulated_memory_stats": reset,
        "set_per_process_memory_fraction": limited,
    }


def _properties(vendor: Vendor) -> SimpleNamespace:
    """Those of an H200, or of an MI300X."""
    hip = vendor == "hip"
    return SimpleNamespace(
        name="AMD Instinct MI300X (shadow)" if hip else "NVIDIA H200 (shadow)",
        major=9,
        minor=4 if hip else 0,
        total_memory=(192 if hip else 140) * _GIB,
        multi_processor_count=304 if hip else 132,
        gcnArchName="gfx942:sramecc+:xnack-" if hip else "",
        warp_size=64 if hip else 32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=65536 if hip else 49152,
        shared_memory_per_block_optin=65536 if hip else 232448,
        shared_memory_per_multiprocessor=65536 if hip else 233472,
        L2_cache_size=(4 if hip else 60) << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid="shadow",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


class _TensorType(type):
    """`torch.cuda.LongTensor(values)` or `(2, 3)`, the old way of making tensors; also asked by isinstance."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, **options: Any) -> torch.Tensor:
        if len(args) == 1 and not isinstance(args[0], int):
            # dsv4prof: allow[DSV108] what the program asked for; the shadow tells it
            return torch.tensor(args[0], dtype=cls.dtype, device="cuda")
        return torch.empty(args, dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, ShadowTensor) and instance.dtype == cls.dtype


def _enter_device(context: Any, world: World) -> None:
    context.prev_idx = _exchange(world, context.idx)


def _leave_device(context: Any, world: World) -> bool:
    _exchange(world, context.prev_idx)
    return False


def _exchange(world: World, index: int) -> int:
    before = world.here.device
    if index >= 0:
        world.here.device = index
    return before


def _number(device: Any, world: World) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return world.here.device if index is None else index
