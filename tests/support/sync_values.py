"""Values that the tables of these tests speak of by name."""

from __future__ import annotations

from dsv4prof.sync import catalogue
from dsv4prof.sync.code.effects import Args, Outcome
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    CERTAIN,
    DEVICE,
    DTYPE,
    HOST_NUMBER,
    LIKELY,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    TENSOR,
    Value,
    constant,
    sequence,
    sequence_of,
    tensor,
)

KNOWN: dict[str, Value] = {
    "x": tensor(ON_DEVICE, CERTAIN, dtype="float", ndim=1, same=""),
    "y": tensor(ON_DEVICE, CERTAIN, dtype="float", ndim=1),
    "m": tensor(ON_DEVICE, CERTAIN, dtype="float", ndim=2),
    "t": tensor(ON_DEVICE, CERTAIN, dtype="int", ndim=0),
    "flag": tensor(ON_DEVICE, CERTAIN, dtype="bool", ndim=0),
    "index": tensor(ON_DEVICE, CERTAIN, dtype="int", ndim=1),
    "mask": tensor(ON_DEVICE, CERTAIN, dtype="bool", ndim=1),
    "bytes": tensor(ON_DEVICE, CERTAIN, dtype="uint8", ndim=1),
    "any_place": tensor(ON_DEVICE, LIKELY),
    "cpu": tensor(PAGEABLE, CERTAIN, dtype="float", ndim=1),
    "cpu_index": tensor(PAGEABLE, CERTAIN, dtype="int", ndim=1),
    "cpu_mask": tensor(PAGEABLE, CERTAIN, dtype="bool", ndim=1),
    "cpu_scalar": tensor(PAGEABLE, CERTAIN, dtype="float", ndim=0),
    "pinned": tensor(PINNED, CERTAIN, dtype="float", ndim=1),
    "strided": Value(kinds=TENSOR, places=PINNED, strength=CERTAIN, ndim=1, strided=True),
    "array": Value(kinds=ARRAY, strength=CERTAIN, ndim=1),
    "n": HOST_NUMBER,
    "none": constant(None),
    "numbers": sequence((constant(1), constant(2)), "list"),
    "list": sequence_of(HOST_NUMBER, "list"),
    "tensors": sequence_of(tensor(ON_DEVICE, CERTAIN, dtype="int", ndim=0), "list"),
    "unknown": ANYTHING,
    "cuda": constant("cuda:0"),
    "host": constant("cpu"),
    "device": Value(kinds=DEVICE, places=ON_DEVICE, strength=CERTAIN),
    "int64": Value(kinds=DTYPE, dtype="int", strength=CERTAIN),
    "true": constant(True),
    "false": constant(False),
}


def value(name: object) -> Value:
    """A known value by name, a tuple of them, or a literal."""
    if isinstance(name, Value):
        return name
    if isinstance(name, tuple):
        return sequence(tuple(value(item) for item in name))
    return KNOWN[name] if isinstance(name, str) and name in KNOWN else constant(name)


def arguments(*positional: object, **keywords: object) -> Args:
    return Args(tuple(value(item) for item in positional), {name: value(item) for name, item in keywords.items()})


def told(outcome: Outcome | None) -> list[str]:
    """The forms that an outcome tells of at `likely` or above, without those of old versions of torch."""
    if outcome is None:
        return []
    forms = [effect.form for effect in outcome.effects if effect.level >= LIKELY]
    return [form for form in forms if catalogue.form(form).until in (None, "2.13")]
