"""A model under evaluation, in the form in which the engine serves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from dsv4_engine.cache.layout import CacheShape
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.config import ModelConfig
from dsv4_engine.hooks import NullHooks
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.runner import ModelRunner
from dsv4_engine.tokenizer import load_tokenizer
from dsv4_engine.training.corpus.documents import require_same_tokens
from dsv4_engine.training.evaluate.texts import Alphabet


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """weights: as stored, dequantised to fp32, on the CPU; a runner rounds them to the dtype that it computes in."""

    model: str
    config: ModelConfig
    weights: Mapping[str, torch.Tensor]
    alphabet: Alphabet
    device: str
    dtype: str

    @classmethod
    def load(cls, model: str, *, device: str = "cpu", dtype: str = "float32") -> Subject:
        """EngineError where there is no such model or device, and for a model whose tokens are not the corpus's."""
        EngineOptions(model=model, device=device, dtype=dtype).torch_device()
        config, weights = load_checkpoint(model)
        tokenizer = load_tokenizer(model, config)
        require_same_tokens(model, config, tokenizer)
        alphabet = Alphabet.of(tokenizer, vocab_size=config.vocab_size, eos_token_ids=config.eos_token_ids)
        return cls(model=model, config=config, weights=weights, alphabet=alphabet, device=device, dtype=dtype)

    @property
    def name(self) -> str:
        """A bundled name, or the last part of a folder's: where it lay means nothing to a reader."""
        return Path(self.model).name or Path(self.model).resolve().name

    @property
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.weights.values())

    def options(self, **changes: object) -> EngineOptions:
        """For an engine that serves it."""
        return EngineOptions(model=self.model, device=self.device, dtype=self.dtype, **changes)  # type: ignore[arg-type]

    def runner(self, *, slots: int, context_len: int, num_drafts: int = 0, dtype: str | None = None) -> ModelRunner:
        """The engine's forward passes by themselves, with slots 1 to `slots`."""
        options = EngineOptions(model=self.model, device=self.device, dtype=dtype or self.dtype)
        return ModelRunner(
            self.config,
            self.weights,
            groups=ParallelGroups.single(),
            device=options.torch_device(),
            dtype=options.torch_dtype,
            cache=CacheShape(max_requests=slots, context_len=context_len, num_draft_tokens=num_drafts + 1),
            exact_num_tokens=True,
            hooks=NullHooks(),
        )
