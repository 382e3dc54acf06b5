"""Which layers a watch has, by what is asked for and what this machine is."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, get_args

import msgspec

from dsv4prof.errors import MissingExtraError, UsageError
from dsv4prof.model.syncs import Layer
from dsv4prof.sync.runtime.watch.hub import Hooked, Hub, the_hub

CHEAP: tuple[Layer, ...] = ("warn", "explicit", "copies")
"""On a GPU without being asked: what costs next to nothing."""
ON_A_GPU: tuple[Layer, ...] = (*CHEAP, "gpu_trace", "dispatch", "callbacks")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch was asked for; as SyncWatch."""

    gpu: bool | None = None
    vendor: Literal["cuda", "hip"] = "cuda"
    layers: tuple[Layer, ...] | None = None
    own_process: bool = False
    hazards: bool = False


def choose(choice: Choice) -> tuple[Layer, ...]:
    """The layers to switch on, in the order in which they are. Raises UsageError, MissingExtraError without torch."""
    known_layers(choice.layers or ())
    if choice.vendor not in ("cuda", "hip"):
        raise UsageError(f"{choice.vendor!r} is no vendor", hint="cuda or hip")
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "engine", purpose="watching a program's syncs")
    # Inside a watch without a GPU torch says that there is one.
    there = there_is_a_gpu()
    gpu = there if choice.gpu is None else choice.gpu
    if choice.layers is not None and "shadow" in choice.layers:
        if choice.gpu or len(choice.layers) > 1:
            raise UsageError("shadow tensors stand in for a GPU", hint="the other layers need one: choose either")
        gpu = False
    if not gpu:
        if choice.layers is not None and choice.layers != ("shadow",):
            raise UsageError(
                f"without a GPU there is only the layer shadow, not {', '.join(choice.layers)}",
                hint="leave the layers out, or watch on a machine with a GPU",
            )
        return ("shadow",)
    if not there:
        raise UsageError("torch sees no GPU here", hint="gpu=False watches on shadow tensors")
    return _on_a_gpu(choice)


def known_layers(layers: Sequence[str]) -> None:
    """Raises UsageError for a name that is no layer."""
    unknown = [each for each in layers if each not in get_args(Layer)]
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no layer", hint=f"layers: {', '.join(get_args(Layer))}")


def there_is_a_gpu() -> bool:
    """Whether torch sees a device that is none of our shadows."""
    import torch

    return "shadow" not in the_hub().layers and torch.cuda.is_available()


def _on_a_gpu(choice: Choice) -> tuple[Layer, ...]:
    wanted = CHEAP if choice.layers is None else choice.layers
    if "gpu_trace" in wanted and not choice.own_process:
        raise UsageError(
            "the layer gpu_trace cannot be switched off again in this process",
            hint="dsv4prof audit run -- CMD watches in a process of its own; own_process=True says that this is one",
        )
    return tuple(layer for layer in ON_A_GPU if layer in wanted)


def hooked(layers: tuple[Layer, ...], hub: Hub, choice: Choice, *, hazards: Any = None) -> list[Hooked]:
    """A fresh object for each layer; nothing is hooked yet. `hazards` hears what the layers know of the device."""
    from dsv4prof.sync.runtime.watch import layers as package

    # On a GPU whoever looks for hazards sees operators and events without our help; raw copies only the driver shows.
    listeners = {"shadow": getattr(hazards, "listener", None), "callbacks": hazards}
    return [package.make(name, hub, vendor=choice.vendor, listener=listeners.get(name)) for name in layers]
