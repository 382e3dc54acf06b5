"""SGLang 0.5.23's own DSV4 metadata, run whole on tensors that say cuda: run by test_sglang_prefill_meta, in an
environment that has sglang.

`_attach_unified_kv_prefill_meta` is the function of sglang #29202. Nothing in it is replaced: its gate is asked for
real, with a torch that says it is one for HIP. The plan builders end in a compiled module; a fake of it returns
tensors of the shapes that their own comments document. What that hides, in kernels/jit/csrc/deepseek_v4: in c_plan.cuh
`plan_compress_prefill` (lines 442 to 640: the host loop over lengths, and the raw asynchronous copies out of
`pin_buffer` of lines 604 to 613), `plan_compress_decode`, and their kernels; in c128_online_v2.cuh the same of
`plan_compress_128_online_prefill`. All Python around them is run: compress.py and compressor_v2.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import sglang.srt.layers.attention.deepseek_v4_backend_hip_radix as backend
import torch
from sglang.kernels.ops.attention.dsv4 import compress
from sglang.srt.layers.attention.dsv4 import compressor_v2, unified_kv_gate

EXTENDS = [3, 1, 4]
PREFIXES = [5, 0, 2]


@pytest.fixture
def unified(monkeypatch):
    """The unified path, which exists on HIP alone."""
    monkeypatch.setattr(torch.version, "hip", "7.0.0")
    monkeypatch.setenv("SGLANG_HACK_FLASHMLA_BACKEND", "unified_kv_triton")
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget():
    """Both answers are kept for a process."""
    unified_kv_gate.is_unified_kv_triton.cache_clear()
    unified_kv_gate.is_hip.cache_clear()


def attached(device, *, exact, padding=0):
    extend = torch.tensor(EXTENDS, device=device, dtype=torch.int32)
    seq = torch.tensor([e + p for e, p in zip(EXTENDS, PREFIXES, strict=True)], device=device, dtype=torch.int32)
    rows = sum(EXTENDS) + padding
    core = SimpleNamespace(unified=None, positions_casual=torch.arange(rows, device=device))
    owner = SimpleNamespace(token_to_kv_pool=SimpleNamespace(unified_swa_window=128))
    build = backend.DeepseekV4HipRadixBackend._attach_unified_kv_prefill_meta
    build(
        owner, core, torch.tensor([7, 2, 9], device=device), torch.arange(rows, device=device), seq, extend,
        sum(EXTENDS), exact_num_tokens=exact,
    )  # fmt: skip
    return core.unified


def rows_of(unified):
    return [getattr(unified, name).tolist() for name in ("pf_state_slot", "pf_chunk_start", "pf_cu_q", "pf_final_pos")]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("padding", [0, 4])
def test_attach_prefill_meta(unified, exact, padding):
    on_device = attached("cuda", exact=exact, padding=padding)
    assert on_device.pf_state_slot.device.type == "cuda"
    assert rows_of(on_device) == rows_of(attached("cpu", exact=exact, padding=padding))
    assert rows_of(on_device)[0][: sum(EXTENDS)] == [7] * 3 + [2] + [9] * 4


class Planner:
    """In place of the compiled module; shapes as CompressorDecodePlan and CompressorPrefillPlan document them."""

    def plan_prefill(self, slots, table, mapping, seq, extend, pinned, tokens, *_):
        if isinstance(tokens, int):
            made = torch.empty((tokens, 16), dtype=torch.uint8, device=slots.device)
            return made, torch.empty((tokens, 8), dtype=torch.uint8, device=slots.device)
        # The online one is given its targets and says how many rows it wrote.
        return len(EXTENDS), len(EXTENDS)

    def plan_decode(self, *given):
        return torch.empty((len(EXTENDS), 16), dtype=torch.uint8, device=given[0].device)


@pytest.fixture
def planner(monkeypatch):
    monkeypatch.setattr(compress, "_jit_compress_plan_module", Planner)
    monkeypatch.setattr(compress, "_jit_compress_128_online_module", lambda *_: Planner())


def plan(*, is_prefill, on_host, online=False):
    device = "cuda"
    pool = SimpleNamespace(
        swa_page_size=256,
        get_ring_size=lambda compress_ratio: 8,
        _unified_kv=True,
        full_to_swa_index_mapping=torch.arange(64, device=device),
    )
    build = compressor_v2._create_online_paged_compressor_data if online else compressor_v2.create_paged_compressor_data
    lens = [e + p for e, p in zip(EXTENDS, PREFIXES, strict=True)]
    options = {} if online else {"compress_ratio": 4}
    return build(
        **options,
        is_prefill=is_prefill,
        token_to_kv_pool=pool,
        req_to_token=torch.zeros((16, 64), dtype=torch.int32, device=device),
        req_pool_indices=torch.tensor([7, 2, 9], device=device),
        seq_lens=torch.tensor(lens, device=device, dtype=torch.int32),
        extend_lens=torch.tensor(EXTENDS, device=device, dtype=torch.int32),
        seq_lens_cpu=lens if on_host else None,
        extend_lens_cpu=EXTENDS if on_host else None,
        num_q_tokens=sum(EXTENDS),
        use_prefill_cuda_graph=False,
    )


@pytest.mark.parametrize("on_host", [True, False])
def test_prefill_plan(planner, on_host):
    made = plan(is_prefill=True, on_host=on_host)
    assert (made.plan_c.shape, made.plan_w.shape) == ((8, 16), (8, 8))
    assert made.pin_buffer.is_pinned() == on_host


def test_decode_plan(planner):
    assert plan(is_prefill=False, on_host=True).plan_d.shape == (3, 16)


def test_online_prefill_plan(planner):
    assert plan(is_prefill=True, on_host=False, online=True).plan_c.shape == (3, 16)
