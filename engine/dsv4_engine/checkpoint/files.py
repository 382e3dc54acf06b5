"""The safetensors files of a checkpoint: one, several with an index, or several numbered ones without it.

Downloads stop half-way: every shard is opened, and so checked for its full length, before any weight is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dsv4_engine.checkpoint.configs import FOLDER_HINT
from dsv4_engine.errors import EngineError
from dsv4_engine.json_object import read_json_object

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NUMBERED = re.compile(r"model-(\d+)-of-(\d+)\.safetensors")
_DOWNLOAD_HINT = "download the file again"
_INSTALL_HINT = "pip install safetensors"


class CheckpointFiles:
    """All tensors of a folder's shards by name; a context manager that holds the files open (memory-mapped)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        expected = _indexed_names(folder)
        paths = _shard_paths(folder, expected)
        self._handles = [open_safetensors(path) for path in paths]
        self._owner: dict[str, Any] = {}
        for handle in self._handles:
            self._owner.update(dict.fromkeys(handle.keys(), handle))
        self._expected = expected

    def __enter__(self) -> CheckpointFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.clear()
        self._handles.clear()

    def __contains__(self, name: str) -> bool:
        return name in self._owner

    def read(self, name: str) -> torch.Tensor:
        """The stored tensor as it is; where it is absent, EngineError names it, and its shard if the index knows it."""
        handle = self._owner.get(name)
        if handle is None:
            raise self._missing(name)
        return handle.get_tensor(name)

    def _missing(self, name: str) -> EngineError:
        place = self.folder / self._expected[name] if name in self._expected else self.folder
        hint = _DOWNLOAD_HINT
        if any(key.startswith("model.") for key in self._owner):
            hint = "these are transformers' tensor names; the engine reads DeepSeek's official ones"
        elif name.startswith("mtp."):
            hint = "the config promises an MTP layer; set num_nextn_predict_layers to 0 for a checkpoint without one"
        return EngineError(f"tensor {name} is missing from {place}", hint=hint)


def _indexed_names(folder: Path) -> Mapping[str, str]:
    path = folder / _INDEX
    if not path.exists():
        return {}
    weight_map = read_json_object(path, hint=_DOWNLOAD_HINT).get("weight_map")
    valid = isinstance(weight_map, dict) and all(isinstance(shard, str) and shard for shard in weight_map.values())
    if not weight_map or not valid:
        raise EngineError(f"{path} holds no weight_map of tensor names to shards", hint=_DOWNLOAD_HINT)
    assert isinstance(weight_map, dict)
    return weight_map


def _shard_paths(folder: Path, indexed: Mapping[str, str]) -> list[Path]:
    if indexed:
        return [_present(folder / shard, f"named by {_INDEX}") for shard in sorted(set(indexed.values()))]
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    matches = [match for path in folder.iterdir() if (match := _NUMBERED.fullmatch(path.name))]
    if not matches:
        raise EngineError(
            f"{folder} holds no weights: neither {_SINGLE} nor model-*.safetensors",
            hint=f"its weights have to be safetensors; {FOLDER_HINT}",
        )
    width, total = len(matches[0][1]), matches[0][2]
    names = [f"model-{number:0{width}d}-of-{total}.safetensors" for number in range(1, int(total) + 1)]
    return [_present(folder / name, f"one of {int(total)} shards") for name in names]


def _present(path: Path, why: str) -> Path:
    if not path.is_file():
        raise EngineError(f"weight shard {path} is missing ({why})", hint=_DOWNLOAD_HINT)
    return path


def open_safetensors(path: Path) -> Any:
    """An open safetensors file, checked for its full length; EngineError names it where it is cut or damaged."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise EngineError("reading a checkpoint needs the package safetensors", hint=_INSTALL_HINT) from None
    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise EngineError(f"{path} is cut or damaged: {error}", hint=_DOWNLOAD_HINT) from None
