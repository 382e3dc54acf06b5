"""How a golden set was made: which prompts it should hold, and what another implementation's draft loops gained."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_engine.errors import EngineError
from dsv4_engine.json_object import read_json_object
from dsv4_engine.options import MAX_DRAFTS

_INCOMPLETE_HINT = "the folder is not a complete golden set"
_FORM_HINT = "the manifest is not of this form"


@dataclass(frozen=True, kw_only=True)
class SpecRun:
    """A greedy draft-verify loop of another implementation, for one prompt."""

    prompt: str
    accept_lens: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def num_output(self) -> int:
        """Tokens to make before comparing: no more than the accept lengths explain, whatever the list says."""
        gained = sum(min(accepted, MAX_DRAFTS + 1) for accepted in self.accept_lens)
        return min(len(self.tokens), 1 + gained + MAX_DRAFTS)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """prompts: names that the set should hold. num_generated: greedy tokens of each prompt.

    num_generated, spec and mean_accept are None where the manifest does not say.
    """

    prompts: tuple[str, ...]
    num_generated: int | None
    spec: tuple[SpecRun, ...] | None
    mean_accept: float | None


def read_manifest(path: Path) -> Manifest:
    """Read `manifest.json`; EngineError names the entry that cannot be used."""
    values = read_json_object(path, hint=_INCOMPLETE_HINT)
    return Manifest(
        prompts=_prompts(values, path),
        num_generated=_num_generated(values, path),
        spec=_spec(values, path),
        mean_accept=_mean_accept(values, path),
    )


def _prompts(values: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    lengths = values.get("prompt_lens")
    if lengths is None:
        return ()
    if not isinstance(lengths, list) or not all(_is_integer(length, minimum=1) for length in lengths):
        raise EngineError(f"{path}: prompt_lens is no list of lengths", hint=_FORM_HINT)
    return tuple(f"p{length}" for length in lengths)


def _num_generated(values: Mapping[str, Any], path: Path) -> int | None:
    value = values.get("gen")
    if value is not None and not _is_integer(value, minimum=1):
        raise EngineError(f"{path}: gen is {value!r}, not a number of tokens", hint=_FORM_HINT)
    return value


def _spec(values: Mapping[str, Any], path: Path) -> tuple[SpecRun, ...] | None:
    spec = values.get("spec")
    if spec is None or spec == {}:
        return None
    if not isinstance(spec, dict):
        raise EngineError(f"{path}: spec is no object of draft loops by prompt", hint=_FORM_HINT)
    return tuple(
        SpecRun(
            prompt=f"p{length.removeprefix('p')}",
            accept_lens=_integers(run, "accept_lens", f"{path}: spec {length}", minimum=1),
            tokens=_integers(run, "tokens", f"{path}: spec {length}", minimum=0),
        )
        for length, run in spec.items()
    )


def _integers(run: object, name: str, where: str, *, minimum: int) -> tuple[int, ...]:
    value = run.get(name) if isinstance(run, dict) else None
    if not isinstance(value, list) or not all(_is_integer(item, minimum=minimum) for item in value):
        raise EngineError(f"{where} has no {name} of integers of at least {minimum}", hint=_FORM_HINT)
    return tuple(value)


def _mean_accept(values: Mapping[str, Any], path: Path) -> float | None:
    value = values.get("mean_accept")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < sys.maxsize:
        raise EngineError(f"{path}: mean_accept is {value!r}, no mean of accept lengths", hint=_FORM_HINT)
    return float(value)


def _is_integer(value: object, *, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= sys.maxsize
