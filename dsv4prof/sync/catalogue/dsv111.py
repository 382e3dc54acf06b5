"""DSV111: the allocator, or the pinning of memory, stalls a hot path."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form
from dsv4prof.sync.catalogue.shows import Trace, free, waits

_CODE = "DSV111"
_FREE = Trace("alloc", "cudaFree, which waits for the device; no warning", "hipFree (unverified)")
_PIN = Trace("alloc", "a long cudaHostAlloc; no wait for a stream", "a long hipHostMalloc (unverified)")
_MALLOC = Trace(
    "alloc", "cudaMalloc that fails, then cudaFree, which waits; no warning", "hipMalloc and hipFree (unverified)"
)

FORMS: tuple[Form, ...] = (
    waits(
        _FREE,
        _CODE,
        "empty-cache",
        "cached device memory given back",
        ("torch.cuda.empty_cache()",),
        "something is cached; with nothing cached it takes 4 us",
        mark="measured",
        measured=("empty_cache_something",),
        fix=Fix("leave the cache, or empty it outside the step", "changes timing"),
    ),
    waits(
        _PIN,
        _CODE,
        "pin-memory",
        "memory pinned in a hot path",
        ("t.pin_memory()", "torch.empty(n, pin_memory=True)", "torch.tensor(values, pin_memory=True)"),
        "the pinned allocator has no free block of the size: a new one of 4 KiB took 1.2 ms, of 8 MiB 5.5 to 14.4 ms, "
        "of 64 MiB 42 ms (vllm #37006)",
        mark="measured",
        fix=Fix("allocate pinned buffers once, and reuse them after their event", "caller must prove"),
    ),
    waits(
        _MALLOC,
        _CODE,
        "allocator-growth",
        "device memory asked from the driver",
        ("torch.empty(new_largest_size, device=dev)",),
        "the caching allocator has no block and memory is short: cached blocks are freed, which waits for the device",
        mark="measured",
        measured=("allocator_retry",),
        fix=Fix("allocate the largest sizes once, before the hot path", "caller must prove"),
    ),
    free(
        _CODE,
        "allocate-cached",
        "device memory from the cache",
        ("torch.empty(n, device=dev)",),
        "the cache has a block",
        measured=("alloc_cached", "pin_cached", "storage_resize_zero", "host_alloc_free_in_use"),
    ),
    free(
        _CODE,
        "allocate-new",
        "device memory from the driver while there is enough",
        ("torch.empty(new_largest_size, device=dev)",),
        "cudaMalloc did not wait for the device: 0.25 ms for 1 GiB",
        mark="measured",
        measured=("cuda_malloc_growth",),
    ),
    free(
        _CODE,
        "empty-cache-nothing",
        "an empty cache emptied",
        ("torch.cuda.empty_cache()",),
        "nothing is cached",
        measured=("empty_cache_nothing",),
    ),
    free(
        _CODE,
        "mem-get-info",
        "free device memory asked",
        ("torch.cuda.mem_get_info()",),
        "it did not wait where it was measured",
        mark="measured",
        measured=("mem_get_info",),
    ),
)
