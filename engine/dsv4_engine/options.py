"""What a user chooses about the engine, checked before anything is loaded.

Only what names a device or a dtype needs torch, so that a launcher can check options before it starts any rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError

if TYPE_CHECKING:
    import torch

MAX_DRAFTS = 7
_DTYPES = ("float32", "bfloat16")
_DEFAULT_CONTEXT_LEN = 4096


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """model: a checkpoint folder or `dsv4-tiny`. num_drafts: MTP drafts a step (0 to 7; 0 decodes plainly).

    max_requests: cache slots; further requests wait. chunk_tokens: most prompt tokens of one prefill step.
    context_len: most tokens of one request, prompt and output; None takes the model's, 4096 at most.
    exact_num_tokens: tell the metadata builder's row expansion its size (sglang #29202), instead of letting it read
    the size back from the device. Raises EngineError on a value out of range.
    """

    model: str = "dsv4-tiny"
    device: str = "cpu"
    dtype: str = "float32"
    num_drafts: int = 3
    max_requests: int = 8
    chunk_tokens: int = 64
    context_len: int | None = None
    exact_num_tokens: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise EngineError(f"dtype {self.dtype!r} is unknown", hint=f"known: {', '.join(_DTYPES)}")
        if not 0 <= self.num_drafts <= MAX_DRAFTS:
            raise EngineError(f"num_drafts is {self.num_drafts}", hint=f"choose 0 (plain decoding) to {MAX_DRAFTS}")
        for name in ("max_requests", "chunk_tokens"):
            if getattr(self, name) < 1:
                raise EngineError(f"{name} is {getattr(self, name)}", hint="choose at least 1")

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
