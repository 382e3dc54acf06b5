"""`state.pt` of a training folder: everything that a run needs to go on, and what it was started with."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from dsv4_engine.errors import EngineError

STATE = "state.pt"
_MOST_TOLD = 3
_PARTS = ("options", "model", "optimizer", "step", "seconds")


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Replace the folder's state at once: a run that is killed, or a disk that is full, leaves the one before.

    EngineError where it cannot be written.
    """
    partial = folder / f"{STATE}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(dict(state), partial)
        partial.replace(folder / STATE)
    except OSError as error:
        raise EngineError(f"{folder / STATE} cannot be written: {error}", hint="is the disk full?") from None
    except RuntimeError:  # torch's word for a disk that is full in the end
        raise EngineError(f"{folder / STATE} cannot be written", hint="is the disk full?") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def load_state(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """None where the folder has no state, EngineError where it is damaged or something else."""
    path = folder / STATE
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error}", hint="choose another folder") from None
    except (RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError):  # what they say means nothing to us
        raise EngineError(f"{path} is cut or damaged", hint="choose another folder") from None
    if not isinstance(state, dict) or any(part not in state for part in _PARTS):
        raise EngineError(f"{path} is no state of a training run", hint="choose another folder")
    return state


def require_same_run(folder: Path, saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """EngineError that names what a folder's run was started with and this one is not."""
    other = [name for name in sorted(saved.keys() | own.keys()) if saved.get(name) != own.get(name)]
    if other:
        differences = [_difference(name, saved.get(name), own.get(name)) for name in other]
        more = ", ..." if len(differences) > _MOST_TOLD else ""
        raise EngineError(
            f"{folder / STATE} was trained with other options ({', '.join(differences[:_MOST_TOLD])}{more})",
            hint="choose another folder or the same ones",
        )


def _difference(name: str, saved: object, own: object) -> str:
    """Values only where they are short."""
    numbers = all(isinstance(value, int | float) for value in (saved, own))
    return f"{name}: {saved}, not {own}" if numbers else name
