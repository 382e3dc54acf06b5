"""A folder of golden numbers: a model, what other implementations computed with it, and how it was made.

Names, lengths and counts are read from the files, so that any set of this form can be compared: `config.json`,
`model.safetensors`, `golden.safetensors` and `manifest.json`; optional are `trace.safetensors` and `quant/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from dsv4_engine.check.manifest import Manifest, read_manifest
from dsv4_engine.check.tensors import GoldenPrompt, read_prompts, read_trace
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.options import MAX_DRAFTS


@dataclass(frozen=True, kw_only=True)
class GoldenSet:
    """Everything that a folder holds, known to be of a form that can be compared. No trace, no quant: None."""

    folder: Path
    config: ModelConfig
    manifest: Manifest
    prompts: tuple[GoldenPrompt, ...]
    trace: Mapping[str, torch.Tensor] | None
    quant: tuple[GoldenPrompt, ...] | None

    @property
    def quant_folder(self) -> Path:
        return self.folder / "quant"

    @property
    def missing_prompts(self) -> tuple[str, ...]:
        """Prompts that the manifest lists and that have no tensors."""
        known = {prompt.name for prompt in self.prompts}
        return tuple(name for name in self.manifest.prompts if name not in known)

    @property
    def num_generated(self) -> int:
        """Greedy tokens of each prompt: as many as of the one that has most, since all continue equally far."""
        return max(prompt.rows("greedy", "greedy_logits") for prompt in self.prompts)

    @property
    def chain_length(self) -> int:
        """Drafts in each prompt's chain, likewise; at least 1, which needs no chain."""
        return max(1, *(prompt.rows("mtp_chain", "mtp_chain_logits") for prompt in self.prompts))

    @property
    def num_drafts(self) -> int:
        """Drafts a step: as many as a chain has, if the engine makes so many."""
        return min(self.chain_length, MAX_DRAFTS)

    @property
    def context_len(self) -> int:
        """Tokens that the longest prompt needs with what follows it, and one more where the model has room."""
        return min(self.needed_context + 1, self.config.max_position_embeddings)

    @property
    def needed_context(self) -> int:
        loops = {run.prompt: run.num_output for run in self.manifest.spec or ()}
        follow = max(1, self.num_generated, self.chain_length)
        return max(len(prompt.ids) + max(follow, loops.get(prompt.name, 0)) for prompt in self.prompts)


def read_golden(folder: Path) -> GoldenSet:
    """Read a folder; EngineError names the file and the part that is absent, unreadable or of another form."""
    if not folder.is_dir():
        raise EngineError(f"{folder} is not a folder", hint="give the folder of a golden set")
    config = ModelConfig.from_folder(folder)
    trace, quant = folder / "trace.safetensors", folder / "quant"
    golden = GoldenSet(
        folder=folder,
        config=config,
        manifest=read_manifest(folder / "manifest.json"),
        prompts=read_prompts(folder / "golden.safetensors", config),
        trace=read_trace(trace, config) if trace.exists() else None,
        quant=_read_quant(quant) if quant.exists() else None,
    )
    _require_room("golden.safetensors", golden.needed_context, config)
    if golden.trace is not None:
        _require_room("trace.safetensors", len(golden.trace["input_ids"]), config)
    return golden


def _read_quant(folder: Path) -> tuple[GoldenPrompt, ...]:
    config = ModelConfig.from_folder(folder)
    prompts = read_prompts(folder / "golden_weight_dequant_only.safetensors", config)
    _require_room("quant", max(len(prompt.ids) for prompt in prompts), config)
    return prompts


def _require_room(what: str, needed: int, config: ModelConfig) -> None:
    limit = config.max_position_embeddings
    if needed > limit:
        raise EngineError(
            f"{what} needs a context of {needed} tokens, and max_position_embeddings is {limit}",
            hint="does config.json fit the set?",
        )
