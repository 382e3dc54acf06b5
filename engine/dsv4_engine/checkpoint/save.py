"""From numbers to a checkpoint folder that this engine, SGLang and DeepSeek's own code can load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

from dsv4_engine.checkpoint.config_json import config_json
from dsv4_engine.checkpoint.layout import TensorSpec, tensor_specs
from dsv4_engine.checkpoint.quantize import is_fp4, quantize_fp4, quantize_fp8
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError

_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
_LARGEST = 2.0**127
"""No format rounds this, or less, to infinity."""

_TRAINED_HINT = "save the weights of a run that has not diverged"


def save_checkpoint(folder: Path, config: ModelConfig, weights: Mapping[str, torch.Tensor], *, quantised: bool) -> None:
    """Write `config.json` and `model.safetensors`; the folder is made, files of those names are replaced, others stay.

    weights: every tensor of `layout.tensor_specs` under its official name, unquantised, on any device, and no other.
    Matrices and norms are stored as bfloat16, those that the paper keeps in fp32 as fp32, `tid2eid` as int64. With
    `quantised` routed experts are stored as mxfp4 and the other large matrices as fp8, each with its `scale`. Equal
    weights give equal bytes. EngineError, before anything is written, on names that are missing or unknown, a wrong
    shape, experts that do not exist, and values that are not finite or above 2^127.
    """
    specs = tensor_specs(config)
    _require_names(weights, specs)
    stored: dict[str, torch.Tensor] = {}
    for name, spec in sorted(specs.items()):
        values = _checked(name, spec, weights[name], config)
        stored |= _stored(name, spec, values, config.weight_block_size, quantised=quantised)
    if (folder / f"{_WEIGHTS}.index.json").exists():
        raise EngineError(f"{folder} holds a checkpoint of several shards", hint="save into an empty folder")
    _write(folder, stored, json.dumps(config_json(config, quantised=quantised), indent=2) + "\n")


def _require_names(weights: Mapping[str, torch.Tensor], specs: Mapping[str, TensorSpec]) -> None:
    missing, unknown = sorted(specs.keys() - weights.keys()), sorted(weights.keys() - specs.keys())
    if missing:
        raise EngineError(f"tensor {missing[0]} is missing ({len(missing)} in all)", hint="a checkpoint needs all")
    if unknown:
        raise EngineError(f"tensor {unknown[0]} is unknown to this config ({len(unknown)} in all)", hint="leave it out")


def _checked(name: str, spec: TensorSpec, tensor: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """The tensor on the CPU in fp32 or int64, known to be storable."""
    if tuple(tensor.shape) != spec.shape:
        raise EngineError(
            f"tensor {name} has shape {list(tensor.shape)} instead of {list(spec.shape)}", hint="does the config fit?"
        )
    if spec.integer == tensor.is_floating_point():
        wanted = "integers" if spec.integer else "floating-point numbers"
        raise EngineError(f"tensor {name} is {str(tensor.dtype).removeprefix('torch.')}, not {wanted}")
    # dsv4prof: allow[DSV103] once a checkpoint, while it is saved
    values = tensor.detach().to("cpu", torch.int64 if spec.integer else torch.float32)
    low, high = values.aminmax()
    least, most = low.item(), high.item()
    if spec.integer and not (least >= 0 and most < config.n_routed_experts):
        raise EngineError(f"tensor {name} names experts outside 0 to {config.n_routed_experts - 1}")
    if not spec.integer and not (least >= -_LARGEST and most <= _LARGEST):  # also where they are NaN
        raise EngineError(f"tensor {name} holds values that are not finite, or above 2^127", hint=_TRAINED_HINT)
    return values


def _stored(
    name: str, spec: TensorSpec, values: torch.Tensor, block: tuple[int, int], *, quantised: bool
) -> dict[str, torch.Tensor]:
    if spec.integer or spec.fp32:
        return {name: values.contiguous()}
    if not (quantised and spec.quantised):
        return {name: values.to(torch.bfloat16).contiguous()}
    weight, scale = quantize_fp4(values) if is_fp4(spec) else quantize_fp8(values, block)
    return {name: weight.contiguous(), name.removesuffix("weight") + "scale": scale.contiguous()}


def _write(folder: Path, tensors: dict[str, torch.Tensor], config: str) -> None:
    """Each file whole or not at all; the config last, so that a folder with one has its weights."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import save_file
    except ImportError:
        raise EngineError(
            "writing a checkpoint needs the package safetensors", hint="pip install safetensors"
        ) from None
    weights_part, config_part = folder / f"{_WEIGHTS}.part", folder / f"{_CONFIG}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, weights_part, metadata={"format": "pt"})
        config_part.write_text(config, encoding="utf-8")
        # safetensors makes files that their owner alone can read; these are as open as any other file.
        weights_part.chmod(config_part.stat().st_mode & 0o777)
        _replace(folder, weights_part, config_part, config)
    except (OSError, SafetensorError) as error:  # the latter for a full disk
        raise EngineError(f"{folder} cannot be written: {error}", hint="choose another folder") from None
    finally:
        for part in (weights_part, config_part):
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _replace(folder: Path, weights_part: Path, config_part: Path, config: str) -> None:
    before = folder / _CONFIG
    if before.exists() and before.read_text(encoding="utf-8", errors="replace") != config:
        # Another model's: whoever stops us between the two files leaves no weights under a config that is not theirs.
        before.unlink()
    weights_part.replace(folder / _WEIGHTS)
    config_part.replace(before)
