"""What a user chooses about the engine, checked before anything is loaded.

Only what names a device or a dtype needs torch, so that a launcher can check options before it starts any rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsv4_engine.checkpoint.configs import DEFAULT_MODEL
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError

if TYPE_CHECKING:
    import torch

MAX_DRAFTS = 7
FAULTS = ("freed_staging", "padded_output_size", "no_war_barrier")
"""Safeguards that can be left out on purpose, see `cache.staging.Faults`."""

PAGES_PER_TAIL = 8
"""A tail takes as much as several pages, so there are fewer of them."""

_DTYPES = ("float32", "bfloat16")
_DEFAULT_CONTEXT_LEN = 4096
_LEAST = {
    "max_requests": 1,
    "chunk_tokens": 1,
    "page_size": 1,
    "num_pages": 1,
    "cache_bytes": 1,
    "num_tails": 0,
}


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """model: a checkpoint folder or a bundled name. num_drafts: MTP drafts a step (0 to 7; 0 decodes plainly).

    max_requests: cache slots; further requests wait. chunk_tokens: most prompt tokens of one prefill step.
    context_len: most tokens of one request, prompt and output; None takes the model's, 4096 at most.
    exact_num_tokens: tell the metadata builder's row expansion its size (sglang #29202), instead of letting it read
    the size back from the device.

    Caches: page_size in tokens. num_pages: pages of all requests and kept prefixes; else cache_bytes is the caches'
    budget in bytes, or mem_fraction the share of the device's memory for weights and caches; without any of the three
    there are pages for max_requests of context_len. radix: keep prefixes for requests that begin alike; num_tails: how
    many ends of prefixes can be continued from, None chooses.

    Scheduling: overlap: launch a step before the one before it is read; "auto" does so on GPUs. mixed: running requests
    take part in prefill steps. seed: what requests without a seed of their own draw it from.

    backend: attention backend. graphs: "auto" (on for GPUs), True or False; draft_extend_graph: whether draft-extend
    may be captured; capture_at_start: all graphs at once instead of each at its first use. plan_on: "device" or "host",
    where compress plans are made. faults: names from FAULTS. simulate_accept_len: mean tokens of a verify whatever the
    drafts are, for benchmarks; the text is meaningless then. Raises EngineError on a value out of range.
    """

    model: str = DEFAULT_MODEL
    device: str = "cpu"
    dtype: str = "float32"
    num_drafts: int = 3
    max_requests: int = 8
    chunk_tokens: int = 64
    context_len: int | None = None
    exact_num_tokens: bool = False
    page_size: int = 256
    num_pages: int | None = None
    cache_bytes: int | None = None
    mem_fraction: float | None = None
    radix: bool = True
    num_tails: int | None = None
    overlap: bool | str = "auto"
    mixed: bool = False
    seed: int = 0
    backend: str = "reference"
    graphs: bool | str = "auto"
    draft_extend_graph: bool = True
    capture_at_start: bool = False
    plan_on: str = "device"
    faults: tuple[str, ...] = ()
    simulate_accept_len: float | None = None

    def __post_init__(self) -> None:
        _require_choice("dtype", self.dtype, _DTYPES)
        _require_choice("plan_on", self.plan_on, ("device", "host"))
        for name in ("overlap", "graphs"):
            if getattr(self, name) not in ("auto", True, False):
                raise EngineError(f"{name} is {getattr(self, name)!r}", hint="choose auto, True or False")
        self._check_faults()
        if not 0 <= self.num_drafts <= MAX_DRAFTS:
            raise EngineError(f"num_drafts is {self.num_drafts}", hint=f"choose 0 (plain decoding) to {MAX_DRAFTS}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise EngineError(f"{name} is {value}", hint=f"choose at least {least}")
        self._check_budget()
        self._check_accept_len()

    def _check_faults(self) -> None:
        for fault in self.faults:
            _require_choice("fault", fault, FAULTS)
        if "freed_staging" in self.faults and self.plan_on != "host":
            raise EngineError("fault freed_staging finds no compress plan in staging", hint="set plan_on to host")
        if "padded_output_size" in self.faults and not self.exact_num_tokens:
            raise EngineError("fault padded_output_size finds no output_size to pad", hint="set exact_num_tokens")

    def _check_budget(self) -> None:
        given = [n for n in ("num_pages", "cache_bytes", "mem_fraction") if getattr(self, n) is not None]
        if len(given) > 1:
            raise EngineError(f"{' and '.join(given)} are both given", hint="choose one: each sets the number of pages")
        if self.mem_fraction is not None and not 0 < self.mem_fraction <= 1:
            raise EngineError(f"mem_fraction is {self.mem_fraction}", hint="choose more than 0 and at most 1")

    def _check_accept_len(self) -> None:
        mean, rows = self.simulate_accept_len, self.num_drafts + 1
        if mean is None:
            return
        if self.num_drafts == 0:
            raise EngineError("simulate_accept_len needs drafts", hint="set num_drafts to 1 or more")
        if not 1 <= mean <= rows:
            raise EngineError(f"simulate_accept_len is {mean}", hint=f"choose 1 to {rows}, the rows of a verify")

    @property
    def overlaps(self) -> bool:
        """Whether steps overlap, with "auto" resolved by the device."""
        return self.device.startswith("cuda") if self.overlap == "auto" else bool(self.overlap)

    def tails_for(self, num_pages: int) -> int:
        """Tails that go with so many pages; none without the prefix cache."""
        if not self.radix:
            return 0
        return max(num_pages // PAGES_PER_TAIL, 2 * self.max_requests) if self.num_tails is None else self.num_tails

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[self.dtype]

    def torch_device(self) -> torch.device:
        """The device, known to be there; EngineError where torch has no such device."""
        import torch

        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise EngineError(f"device {self.device!r} is unknown", hint="use cpu, cuda or cuda:N") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise EngineError("torch sees no CUDA or HIP device", hint="use device cpu, or install torch for the GPU")
        if device.type not in ("cpu", "cuda"):
            raise EngineError(f"device {self.device!r} is not supported", hint="use cpu, cuda or cuda:N")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise EngineError(f"device {self.device!r} is absent", hint=f"torch sees {torch.cuda.device_count()}")
        return device

    def resolve_context_len(self, config: ModelConfig) -> int:
        """Tokens a request may have on this model; EngineError where the model cannot hold what was asked for."""
        limit = config.max_position_embeddings
        if self.context_len is None:
            return min(limit, _DEFAULT_CONTEXT_LEN)
        if not 2 <= self.context_len <= limit:
            raise EngineError(
                f"context_len is {self.context_len}", hint=f"choose 2 to {limit}, the model's max_position_embeddings"
            )
        return self.context_len

    def require_mtp(self, config: ModelConfig) -> None:
        """EngineError where drafts are asked of a model without an MTP layer."""
        if self.num_drafts and not config.has_mtp:
            raise EngineError(f"model {self.model} has no MTP layer to draft with", hint="set num_drafts to 0")


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise EngineError(f"{name} {value!r} is unknown", hint=f"known: {', '.join(choices)}")
