"""Of which memory a `device=` argument speaks."""

from __future__ import annotations

from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.values import (
    CERTAIN,
    DEVICE,
    HOST,
    LIKELY,
    NONE,
    NOTHING,
    ON_DEVICE,
    PAGEABLE,
    TENSOR,
    Value,
    Why,
)

_ON_HOST = Value(kinds=DEVICE, places=PAGEABLE, strength=CERTAIN, why=Why("the device is the CPU"))
# A factory without device=: torch's default device is the CPU, unless somebody has set another one.
NOT_GIVEN = "no device= is given"
UNSAID = Value(kinds=DEVICE, places=PAGEABLE, strength=CERTAIN, why=Why(NOT_GIVEN))


def device_of(argument: Value | None) -> Value:
    """A DEVICE value for what is given as `device=` (None: nothing is)."""
    if argument is None:
        return UNSAID
    kinds = argument.kinds
    if kinds & DEVICE:
        return argument if kinds == DEVICE else _either(argument)
    const = argument.const
    if const is None:
        return UNSAID
    if isinstance(const, str):
        name = const.partition(":")[0]
        if name in ("cpu", "meta"):
            return _ON_HOST
        return Value(kinds=DEVICE, places=ON_DEVICE, strength=CERTAIN, why=Why(f"device {const!r} is given"))
    if const is not NOTHING and isinstance(const, int):
        return Value(kinds=DEVICE, places=ON_DEVICE, strength=CERTAIN, why=Why(f"device {const} is given"))
    if kinds & TENSOR:
        return Value(
            kinds=DEVICE, places=argument.places, strength=argument.strength, why=argument.why, params=argument.params
        )
    return Value(
        kinds=DEVICE,
        places=argument.places or ON_DEVICE,
        strength=LIKELY,
        why=argument.why or Why("a device is given"),
        params=argument.params,
    )


_HIDDEN = Value(kinds=DEVICE, places=ON_DEVICE, strength=LIKELY, why=Why("a device is given among **keywords"))


def target_of(args: Args) -> Value:
    """Where a factory makes its tensor."""
    given = args.keywords.get("device")
    if given is None and args.hidden:
        return _HIDDEN
    return device_of(given)


def _either(argument: Value) -> Value:
    """A device that may be something else too, often None: the default of a parameter that callers do set."""
    places = argument.places or ON_DEVICE
    if argument.kinds & (NONE | HOST) and not places & ON_DEVICE:
        places |= ON_DEVICE if argument.kinds & HOST else 0
    return Value(
        kinds=DEVICE, places=places, strength=min(argument.strength, LIKELY), why=argument.why, params=argument.params
    )


def same_memory(tensor: Value) -> Value:
    """`tensor.device`."""
    places = tensor.places
    if places & ~ON_DEVICE:
        places = (places & ON_DEVICE) | PAGEABLE
    # Who asks a name for its device has a tensor there.
    strength = max(tensor.strength, LIKELY)
    return Value(kinds=DEVICE, places=places or ON_DEVICE, strength=strength, why=tensor.why, params=tensor.params)
