"""What a packet sequence has said so far: the strings behind its numbers, its defaults, its GPU's counters."""

from __future__ import annotations

import msgspec

from dsv4prof.trace.perfetto.proto import fields
from dsv4prof.trace.perfetto.schema import Defaults, Event, Interned, InternedString


class CounterSource(msgspec.Struct, frozen=True):
    """A GPU's counters, by number."""

    gpu: int
    names: dict[int, str]


class SequenceState:
    """Interned strings of one sequence by kind and number."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: the sequence begins anew."""
        self.categories: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.annotation_names: dict[int, str] = {}
        self.annotation_strings: dict[int, str] = {}
        self.stages: dict[int, str] = {}
        self.kernels: dict[int, str] = {}
        self.counters: dict[int, CounterSource] = {}
        self.default_track = 0

    def take_interned(self, content: bytes) -> None:
        """Raises BrokenMessageError."""
        tables = {
            Interned.CATEGORIES: self.categories,
            Interned.NAMES: self.names,
            Interned.ANNOTATION_NAMES: self.annotation_names,
            Interned.ANNOTATION_STRINGS: self.annotation_strings,
            Interned.GPU_STAGES: self.stages,
        }
        for field, value in fields(content):
            if isinstance(value, int):
                continue
            table = tables.get(field)
            if table is not None:
                number, text = _string(value)
                table[number] = text
            elif field == Interned.KERNELS:
                number, text = _kernel(value)
                self.kernels[number] = text
            elif field == Interned.GPU_COUNTERS:
                number, source = _counter_source(value)
                self.counters[number] = source

    def take_defaults(self, content: bytes) -> None:
        """Raises BrokenMessageError."""
        for field, value in fields(content):
            if field == Defaults.TRACK_EVENT and isinstance(value, bytes):
                for inner, number in fields(value):
                    if inner == Event.TRACK and isinstance(number, int):
                        self.default_track = number


def _string(content: bytes) -> tuple[int, str]:
    number, text = 0, ""
    for field, value in fields(content):
        if field == InternedString.ID and isinstance(value, int):
            number = value
        elif field == InternedString.TEXT and isinstance(value, bytes):
            text = value.decode(errors="replace")
    return number, text


def _kernel(content: bytes) -> tuple[int, str]:
    """(number, its readable name where there is one)."""
    number, names = 0, {}
    for field, value in fields(content):
        if field == 1 and isinstance(value, int):
            number = value
        elif field in (2, 3) and isinstance(value, bytes):
            names[field] = value.decode(errors="replace")
    return number, names.get(3) or names.get(2, "")


def _counter_source(content: bytes) -> tuple[int, CounterSource]:
    number = gpu = 0
    names: dict[int, str] = {}
    for field, value in fields(content):
        if field == 1 and isinstance(value, int):
            number = value
        elif field == 3 and isinstance(value, int):
            gpu = value
        elif field == 2 and isinstance(value, bytes):
            for inner, spec in fields(value):
                if inner == 1 and isinstance(spec, bytes):
                    counter, name = _string(spec)
                    names[counter] = name
    return number, CounterSource(gpu, names)
