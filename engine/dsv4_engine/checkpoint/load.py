"""From a folder, or the name of a bundled model, to the numbers that one rank computes with."""

from __future__ import annotations

from pathlib import Path

import torch

from dsv4_engine.checkpoint.configs import load_config, model_folder
from dsv4_engine.checkpoint.dequantize import (
    dequantize_fp4,
    dequantize_fp8,
    fp4_scale_shape,
    fp8_scale_shape,
    packed_shape,
)
from dsv4_engine.checkpoint.files import CheckpointFiles
from dsv4_engine.checkpoint.layout import TensorSpec, tensor_specs
from dsv4_engine.checkpoint.sharding import is_local, shard
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.parallel.place import ALONE, Place

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)
_BYTES = (torch.uint8, torch.int8)
_SHAPE_HINT = "config.json and weights must come from the same checkpoint"


def load_checkpoint(
    model: Path | str, *, place: Place = ALONE, dtype: torch.dtype = torch.float32
) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    """Config and this rank's weights under official names, dequantised, on the CPU.

    Matrices and norms come in `dtype`, the tensors that the paper keeps in fp32 (hyper-connections, sinks, position
    biases, router biases) in fp32, `tid2eid` in int64; scales are consumed. `place` says which part is this rank's.
    EngineError names the file or tensor that is missing, cut or of the wrong shape, and the sizes that divide the model
    where the wanted one does not.
    """
    config = load_config(model)
    place.sizes.require_divides(config)
    weights: dict[str, torch.Tensor] = {}
    with _source(model_folder(model), config) as source:
        for name, spec in tensor_specs(config).items():
            if is_local(spec, place, num_experts=config.n_routed_experts):
                values = _read(source, name, spec, config.weight_block_size)
                if spec.integer:
                    _require_experts(name, values, config.n_routed_experts)
                part = shard(values, spec.split, place)
                weights[name] = part.to(_target_dtype(spec, dtype))
    return config, weights


def _source(folder: Path | None, config: ModelConfig) -> CheckpointFiles | _Memory:
    return _Memory(tiny_weights(config)) if folder is None else CheckpointFiles(folder)


class _Memory:
    """Generated weights behind the interface of files."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self._weights = weights

    def __enter__(self) -> _Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self._weights = {}

    def read(self, name: str) -> torch.Tensor:
        return self._weights[name]


def _target_dtype(spec: TensorSpec, dtype: torch.dtype) -> torch.dtype:
    if spec.integer:
        return torch.int64
    return torch.float32 if spec.fp32 else dtype


def _read(source: CheckpointFiles | _Memory, name: str, spec: TensorSpec, block: tuple[int, int]) -> torch.Tensor:
    """One whole tensor of `spec.shape`; how it is stored follows from its dtype and shape, not from the config."""
    stored = source.read(name)
    plain = _INTEGERS if spec.integer else _FLOATS
    if stored.dtype in plain:
        _require_shape(name, stored, spec.shape)
        return stored
    if not spec.quantised:
        raise EngineError(f"tensor {name} is stored as {_dtype_name(stored)}, which it cannot be", hint=_SHAPE_HINT)
    scale_name = name.removesuffix("weight") + "scale"
    if stored.dtype == torch.float8_e4m3fn or (stored.dtype in _BYTES and tuple(stored.shape) == spec.shape):
        _require_shape(name, stored, spec.shape)
        scale = _read_scale(source, scale_name, fp8_scale_shape(spec.shape, block))
        return dequantize_fp8(stored, scale, block)
    if stored.dtype in (*_BYTES, getattr(torch, "float4_e2m1fn_x2", torch.int8)):
        _require_shape(name, stored, packed_shape(spec.shape))
        scale = _read_scale(source, scale_name, fp4_scale_shape(spec.shape))
        return dequantize_fp4(stored, scale, spec.shape[1])
    raise EngineError(f"tensor {name} is stored as {_dtype_name(stored)}, which is not supported", hint=_SHAPE_HINT)


def _read_scale(source: CheckpointFiles | _Memory, name: str, shape: tuple[int, int]) -> torch.Tensor:
    scale = source.read(name)
    if scale.dtype not in _BYTES and not scale.is_floating_point():
        raise EngineError(
            f"tensor {name} is stored as {_dtype_name(scale)}, which is no scale",
            hint="scales are float8_e8m0fnu, its raw bytes as uint8 or int8, or floats",
        )
    _require_shape(name, scale, shape)
    return scale


def _require_experts(name: str, experts: torch.Tensor, count: int) -> None:
    # dsv4prof: allow[DSV101] once a checkpoint, while it loads
    if experts.numel() and (int(experts.min()) < 0 or int(experts.max()) >= count):
        raise EngineError(f"tensor {name} names experts outside 0 to {count - 1}", hint=_SHAPE_HINT)


def _require_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise EngineError(f"tensor {name} has shape {list(tensor.shape)} instead of {list(shape)}", hint=_SHAPE_HINT)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
