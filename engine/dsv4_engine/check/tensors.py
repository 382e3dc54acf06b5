"""The tensors of a golden set, in the form that the comparisons rely on: whatever is of another is named here."""

# dsv4prof: allow-file[DSV101,DSV102] compares results offline, never in a serving step
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from dsv4_engine.checkpoint.files import open_safetensors
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError

_PROMPT_KEY = re.compile(r"(p[^.]+)\.(.+)")
_FORM_HINT = "the file is not of the form of a golden set"
_LISTS = ("input_ids", "greedy", "mtp_chain")
_MATRICES = ("logits", "greedy_logits", "last_streams", "mtp_logits", "mtp_last_streams", "mtp_chain_logits")
_TRACED_INTEGERS = ("router_indices", "index_topk")


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

    def rows(self, *quantities: str) -> int:
        """The fewest rows of those quantities that the prompt has; 0 where it has none of them."""
        return min((len(self.tensors[name]) for name in quantities if name in self.tensors), default=0)


def read_prompts(path: Path, config: ModelConfig) -> tuple[GoldenPrompt, ...]:
    """All prompts of a file, by length; EngineError where one has no input ids or a tensor of another form."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in _read(path).items():
        match = _PROMPT_KEY.fullmatch(key)
        if match is None:
            raise EngineError(f"{path} has an unknown tensor {key}", hint="its keys are p<length>.<quantity>")
        found.setdefault(match[1], {})[match[2]] = tensor
    if not found:
        raise EngineError(f"{path} holds no prompt", hint="its keys are p<length>.<quantity>")
    for name, tensors in found.items():
        where = f"{path}: {name}"
        tensors["input_ids"] = _token_ids(tensors.get("input_ids"), f"{where}.input_ids", config)
        for quantity, tensor in tensors.items():
            if quantity in _LISTS:
                _require_integers(tensor, f"{where}.{quantity}", dim=1)
            elif quantity in _MATRICES:
                _require_numbers(tensor, f"{where}.{quantity}", dim=2)
    prompts = [GoldenPrompt(name=name, tensors=tensors) for name, tensors in found.items()]
    return tuple(sorted(prompts, key=lambda prompt: (len(prompt.ids), prompt.name)))


def read_trace(path: Path, config: ModelConfig) -> dict[str, torch.Tensor]:
    """One prompt's tensors by layer and quantity, with its `input_ids`; EngineError as for prompts."""
    tensors = _read(path)
    tensors["input_ids"] = _token_ids(tensors.get("input_ids"), f"{path}: input_ids", config)
    for key, tensor in tensors.items():
        quantity = key.rpartition(".")[2]
        if quantity in _TRACED_INTEGERS:
            _require_integers(tensor, f"{path}: {key}", dim=2)
        elif key != "input_ids":
            _require_numbers(tensor, f"{path}: {key}", dim=None)
    return tensors


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Tensors by key, integers as int64."""
    if not path.is_file():
        raise EngineError(f"{path} is missing", hint="the folder is not a complete golden set")
    handle = open_safetensors(path)
    tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 - not a mapping
    return {name: tensor.long() if _holds_integers(tensor) else tensor for name, tensor in tensors.items()}


def _token_ids(ids: torch.Tensor | None, what: str, config: ModelConfig) -> torch.Tensor:
    if ids is None:
        raise EngineError(f"{what} is missing", hint="without input ids nothing can be computed")
    if ids.dim() == 2 and len(ids) == 1:
        ids = ids[0]
    _require_integers(ids, what, dim=1)
    if not len(ids):
        raise EngineError(f"{what} is empty", hint="without input ids nothing can be computed")
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        raise EngineError(f"{what} leaves the vocabulary of {config.vocab_size}", hint="does config.json fit the set?")
    return ids


def _require_integers(tensor: torch.Tensor, what: str, *, dim: int) -> None:
    if not _holds_integers(tensor) or tensor.dim() != dim:
        raise EngineError(f"{what} is {_describe(tensor)}, not {dim}-dimensional integers", hint=_FORM_HINT)


def _require_numbers(tensor: torch.Tensor, what: str, *, dim: int | None) -> None:
    if not tensor.is_floating_point() or dim not in (None, tensor.dim()):
        wanted = "floating-point numbers" if dim is None else f"{dim}-dimensional floating-point numbers"
        raise EngineError(f"{what} is {_describe(tensor)}, not {wanted}", hint=_FORM_HINT)


def _holds_integers(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
