"""A folder of golden numbers: a model, what other implementations computed with it, and how it was made.

Names, lengths and counts are read from the files, so that any set of this form can be compared: `config.json`,
`model.safetensors`, `golden.safetensors` and `manifest.json`; optional are `trace.safetensors` and `quant/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dsv4_engine.checkpoint.files import open_safetensors
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.options import MAX_DRAFTS

_PROMPT_KEY = re.compile(r"(p[^.]+)\.(.+)")


@dataclass(frozen=True, kw_only=True, eq=False)
class GoldenPrompt:
    """One prompt's tensors, by quantity."""

    name: str
    tensors: Mapping[str, torch.Tensor]

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.tensors["input_ids"].tolist())

    def get(self, quantity: str) -> torch.Tensor | None:
        return self.tensors.get(quantity)

    @property
    def num_output(self) -> int:
        """Greedy tokens that the set knows for this prompt."""
        return len(self.tensors.get("greedy", ()))


@dataclass(frozen=True, kw_only=True)
class SpecRun:
    """A greedy draft-verify loop of another implementation, for one prompt."""

    prompt: str
    accept_lens: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GoldenSet:
    """trace and quant are None where the folder has none; so are spec and mean_accept where the manifest has none.

    missing_prompts: lengths that the manifest lists and `golden.safetensors` has no tensors for. num_generated: greedy
    tokens of each prompt, where the manifest says how many.
    """

    folder: Path
    config: ModelConfig
    prompts: tuple[GoldenPrompt, ...]
    missing_prompts: tuple[str, ...]
    num_generated: int | None
    trace: Mapping[str, torch.Tensor] | None
    quant: tuple[GoldenPrompt, ...] | None
    spec: tuple[SpecRun, ...] | None
    mean_accept: float | None

    @property
    def quant_folder(self) -> Path:
        return self.folder / "quant"

    @property
    def num_drafts(self) -> int:
        """Drafts a step, as many as the set's draft chains have and the engine makes; at least 1."""
        chains = (len(prompt.tensors.get("mtp_chain", ())) for prompt in self.prompts)
        return min(max(1, *chains), MAX_DRAFTS)

    @property
    def context_len(self) -> int:
        """Enough for every prompt with its output."""
        outputs = {run.prompt: len(run.tokens) for run in self.spec or ()}
        longest = max(len(p.ids) + max(p.num_output, outputs.get(p.name, 0)) + 1 for p in self.prompts)
        return min(longest, self.config.max_position_embeddings)


def read_golden(folder: Path) -> GoldenSet:
    """Read a folder; EngineError names the file that is absent or unreadable."""
    if not folder.is_dir():
        raise EngineError(f"{folder} is not a folder", hint="give the folder of a golden set")
    config = ModelConfig.from_folder(folder)
    manifest = _manifest(folder / "manifest.json")
    prompts = _prompts(folder / "golden.safetensors", config)
    if not prompts:
        raise EngineError(f"{folder / 'golden.safetensors'} holds no prompt", hint="its keys are p<length>.<quantity>")
    known = {prompt.name for prompt in prompts}
    listed = [f"p{length}" for length in manifest.get("prompt_lens", ())]
    trace, quant = folder / "trace.safetensors", folder / "quant"
    return GoldenSet(
        folder=folder,
        config=config,
        prompts=prompts,
        missing_prompts=tuple(name for name in listed if name not in known),
        num_generated=manifest.get("gen"),
        trace=_trace(trace, config) if trace.exists() else None,
        quant=_prompts(quant / "golden_weight_dequant_only.safetensors", config) if quant.exists() else None,
        spec=_spec(manifest, folder / "manifest.json"),
        mean_accept=_mean_accept(manifest, folder / "manifest.json"),
    )


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise EngineError(f"{path} is missing", hint="the folder is not a complete golden set")
    handle = open_safetensors(path)
    return {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 - not a mapping


def _trace(path: Path, config: ModelConfig) -> dict[str, torch.Tensor]:
    tensors = _tensors(path)
    _require_ids(tensors.get("input_ids"), f"{path}: input_ids", config)
    return tensors


def _prompts(path: Path, config: ModelConfig) -> tuple[GoldenPrompt, ...]:
    found: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in _tensors(path).items():
        match = _PROMPT_KEY.fullmatch(key)
        if match is None:
            raise EngineError(f"{path} has an unknown tensor {key}", hint="its keys are p<length>.<quantity>")
        found.setdefault(match[1], {})[match[2]] = tensor
    for name, tensors in found.items():
        _require_ids(tensors.get("input_ids"), f"{path}: {name}.input_ids", config)
    prompts = [GoldenPrompt(name=name, tensors=tensors) for name, tensors in found.items()]
    return tuple(sorted(prompts, key=lambda prompt: (len(prompt.ids), prompt.name)))


def _require_ids(ids: torch.Tensor | None, what: str, config: ModelConfig) -> None:
    if ids is None or ids.dim() != 1 or ids.is_floating_point() or not len(ids):
        raise EngineError(f"{what} is no list of token ids", hint="without input ids nothing can be computed")
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        raise EngineError(f"{what} leaves the vocabulary of {config.vocab_size}", hint="does config.json fit the set?")


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise EngineError(f"{path} cannot be read: {error}", hint="the folder is not a complete golden set") from None
    if not isinstance(manifest, dict):
        raise EngineError(f"{path} holds no JSON object", hint="the folder is not a complete golden set")
    return manifest


def _spec(manifest: Mapping[str, Any], path: Path) -> tuple[SpecRun, ...] | None:
    if not manifest.get("spec"):
        return None
    try:
        return tuple(
            SpecRun(
                prompt=f"p{length.removeprefix('p')}",
                accept_lens=tuple(run["accept_lens"]),
                tokens=tuple(run["tokens"]),
            )
            for length, run in manifest["spec"].items()
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise EngineError(
            f"{path}: spec has no accept_lens and tokens for each prompt", hint="the manifest is not of this form"
        ) from None


def _mean_accept(manifest: Mapping[str, Any], path: Path) -> float | None:
    value = manifest.get("mean_accept")
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        raise EngineError(f"{path}: mean_accept is {value!r}", hint="it should be a positive number")
    return value
