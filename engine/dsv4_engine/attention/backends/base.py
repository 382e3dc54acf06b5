"""What an attention backend is: it reads the engine's metadata and pools, and has no state of its own between steps."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

import torch

from dsv4_engine.attention.metadata import DSV4Metadata
from dsv4_engine.errors import EngineError

REGISTRY = {"reference": "dsv4_engine.attention.backends.reference:ReferenceBackend"}
"""Backends that exist, as module:class; a module is imported when its backend is asked for."""

_PLANNED = ("triton", "aiter")


class AttentionBackend(Protocol):
    """Attention of all three kinds over unified pools. Nothing here reads a device value on the host."""

    @property
    def name(self) -> str: ...

    def plan(self, meta: DSV4Metadata) -> object:
        """What the backend works out once a step, for all layers: None, or nested frozen dataclasses of tensors."""
        ...

    def store(self, unified: torch.Tensor, kv: torch.Tensor, meta: DSV4Metadata, plan: object) -> None:
        """Put this step's keys (T, d) into the window rings."""
        ...

    def attend(
        self,
        query: torch.Tensor,
        kv: torch.Tensor,
        unified: torch.Tensor,
        meta: DSV4Metadata,
        plan: object,
        *,
        ratio: int,
        sink: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """One softmax over window keys, compressed keys and a sink of zero value: (T, H, d) float32.

        query: (T, H, d). kv: (T, d), this step's keys, each its own value. unified: (rows, d), the layer's pool. sink:
        (H,) float32. With streams in the metadata every key comes from the pool, where `store` has put this step's
        keys before. Without, keys of this step come from `kv`, and `store` follows. In a ratio-4 layer
        `core.c4_sparse_page_indices` holds the indexer's choice.
        """
        ...


def load_backend(name: str) -> AttentionBackend:
    """The backend of that name; EngineError if there is none, or if what it needs is not installed."""
    if name in _PLANNED:
        raise EngineError(f"attention backend {name!r} is not built yet", hint="use reference")
    if name not in REGISTRY:
        raise EngineError(f"attention backend {name!r} is unknown", hint=f"known: {', '.join(REGISTRY)}")
    module, _, attribute = REGISTRY[name].partition(":")
    try:
        backend: AttentionBackend = getattr(import_module(module), attribute)()
    except ImportError as error:
        raise EngineError(f"attention backend {name!r} cannot be loaded: {error}", hint="use reference") from error
    return backend
