"""The attention backends whose kernels may be captured: names here, classes only when somebody asks.

A class is imported when its backend is, so that a machine without Triton or AMD's aiter can still decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

GATE_WITHOUT = "DSV4_GRAPH_GATE_WITHOUT"
"""Environment: names, comma-separated, that the gate is to have forgotten. It shows what sglang #29202 found."""

BACKEND_CLASSES: dict[str, str] = {
    "reference": "dsv4_engine.attention.backends.reference:ReferenceBackend",
    "triton": "dsv4_engine.attention.backends.triton:TritonBackend",
    "aiter": "dsv4_engine.attention.backends.aiter:AiterBackend",
}


def known_backend(name: str, environment: Mapping[str, str], classes: Mapping[str, str] | None = None) -> str | None:
    """None where the gate knows the backend and its class is there, else why not."""
    classes = BACKEND_CLASSES if classes is None else classes
    if name not in classes or name in _forgotten(environment):
        return f"backend {name} is not in the gate"
    try:
        resolve(classes[name])
    except (ImportError, AttributeError) as error:
        return f"backend {name} cannot be imported: {error}"
    return None


def resolve(place: str) -> type:
    """The class at `module:Class`; ImportError or AttributeError where it is not."""
    module, _, name = place.partition(":")
    found: type = getattr(import_module(module), name)
    return found


def _forgotten(environment: Mapping[str, str]) -> set[str]:
    return {name.strip() for name in environment.get(GATE_WITHOUT, "").split(",")}
