"""A length of -1 in a slot that holds no request harms nobody, until a kernel reads it as unsigned: check the numbers
that the host gives to a step.

Only fields that hold lengths, counts or offsets by their names are judged: in a table of pages or slots -1 means
"none" and is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from dsv4prof.faultrecord.step_values import Value
from dsv4prof.faultrecord.steplog import Step

_LENGTH = re.compile(
    r"(?:^|[_.])(?:ctx|context|seq|kv|prompt|query|q|k|extend|prefix|cache|decode|token|block|draft|accept|topk|new)?_?"
    r"(?:len|lens|length|lengths|seqlen|seqlens|counts?|num_tokens|sizes?)(?:$|[_.])|seq_?lens?|ctx_?lens?|context_?len|num_\w*tokens",
    re.IGNORECASE,
)
_OFFSETS = re.compile(
    r"cu_?(?:seq)?_?(?:len|lens|seqlens|q|k)|indptr|(?:^|_)offsets?(?:$|_)|start_loc|cumsum", re.IGNORECASE
)
# Where -1 says "none".
_SENTINEL = re.compile(
    r"ind(?:ex|ices)|page|block_table|slot|_loc$|out_loc|mapping|table|parent|token_ids?|_ids?$", re.IGNORECASE
)
_BITS = re.compile(r"^u?int(8|16|32|64)$")
_SHORT = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64, "int": 32, "long": 64,
          "torch.int32": 32, "torch.int64": 64, "torch.int16": 16}  # fmt: skip
_WRAPPED = (32, 64)


class BadValue(msgspec.Struct, frozen=True):
    """A number in a step's metadata that no kernel should be given; `value` is a text ("NaN") where it is no number.

    `padding` is true in a slot that holds no request, None where the log does not say which slots do. `unsigned` is
    what a kernel reads that takes it for an unsigned number of `bits` bits; `assumed` that the log names no type.
    """

    step: int | None
    line: int
    field: str
    slot: int
    value: int | str
    problem: str
    padding: bool | None
    running: int | None
    padded: int | None
    bits: int = 32
    unsigned: int | None = None
    assumed: bool = True


def check_step(step: Step) -> list[BadValue]:
    """What is wrong with the numbers of one step."""
    limit = _limit(step.scalars)
    found: list[BadValue] = []
    for field, values in step.lists.items():
        if not is_judged(field):
            continue
        if _OFFSETS.search(_last(field)):
            found += _check_offsets(step, field, values)
        else:
            found += _check_lengths(step, field, values, limit)
        found += _check_numbers(step, field, values)
    # A value that is no number may come of the log alone; a kernel was given the others.
    return sorted(found, key=lambda bad: isinstance(bad.value, str))


def is_judged(field: str) -> bool:
    """Whether a list of this name holds lengths, counts or offsets."""
    name = _last(field)
    return bool(_OFFSETS.search(name) or (_LENGTH.search(name) and not _SENTINEL.search(name)))


def _last(field: str) -> str:
    return field.rpartition(".")[2]


def check_lengths(
    lengths: Mapping[str, Sequence[int]],
    *,
    step: int | None = None,
    running: int | None = None,
    padded: int | None = None,
) -> list[BadValue]:
    """The same for numbers that a running engine has on its host; nothing is read from a device."""
    lists = {name: tuple(values) for name, values in lengths.items()}
    return check_step(Step(step, None, running, padded, lists, {}, 0))


def words_of(bad: BadValue) -> str:
    """The finding as a sentence."""
    where = f"{bad.field}[{bad.slot}] = {bad.value}"
    if bad.padding is not None:
        slot = "a padding slot" if bad.padding else "a slot that holds a request"
        where += f" in {slot} (running {bad.running}, padded {bad.padded})"
    if bad.unsigned is not None:
        kind = f"uint{bad.bits}"
        where += f"; as {kind} {bad.unsigned}"
    return f"{where}: {bad.problem}"


def _check_numbers(step: Step, field: str, values: Sequence[Value]) -> list[BadValue]:
    """What is no whole number; a value that the log does not have is not judged."""
    offsets = _OFFSETS.search(_last(field)) is not None
    return [
        BadValue(
            step.index, step.line, field, slot, value, "no whole number",
            None if offsets else _is_padding(step, slot, len(values)), step.running, step.padded,
        )
        for slot, value in enumerate(values)
        if isinstance(value, str)
    ]  # fmt: skip


def _check_lengths(step: Step, field: str, values: Sequence[Value], limit: int | None) -> list[BadValue]:
    bits, known = _bits(step, field)
    found = []
    for slot, value in enumerate(values):
        if not isinstance(value, int):
            continue
        padding = _is_padding(step, slot, len(values))
        problem, unsigned = "", None
        if value < 0:
            problem, unsigned = "a length below zero", value + (1 << bits)
        elif any(value >= 1 << (width - 1) for width in _WRAPPED if width == bits or (not known and width == 32)):
            width = bits if value < 1 << bits else 64
            problem = f"{value - (1 << width)} read as unsigned"
        elif limit is not None and value > limit:
            problem = f"longer than the {limit} that the server allows"
        if problem:
            found.append(
                BadValue(
                    step.index, step.line, field, slot, value, problem, padding, step.running, step.padded,
                    bits, unsigned, not known,
                )
            )  # fmt: skip
    return found


def _check_offsets(step: Step, field: str, values: Sequence[Value]) -> list[BadValue]:
    numbers = [(slot, value) for slot, value in enumerate(values) if isinstance(value, int)]
    for (earlier, before), (slot, value) in pairwise(numbers):
        if value < before or before < 0:
            at, bad = (slot, value) if value < before else (earlier, before)
            problem = (
                f"offsets must not fall, and {before} comes before it" if value < before else "an offset below zero"
            )
            bits, known = _bits(step, field)
            unsigned = bad + (1 << bits) if bad < 0 else None
            padding = None if step.running is None or step.padded is None else at > step.running
            return [
                BadValue(
                    step.index, step.line, field, at, bad, problem, padding, step.running, step.padded, bits,
                    unsigned, not known,
                )
            ]  # fmt: skip
    return []


def _is_padding(step: Step, slot: int, number: int) -> bool | None:
    """Requests come first, padding after them; a list of another length than the batch has tells nothing."""
    if step.running is None or step.padded is None:
        return None
    if number == step.padded:
        return slot >= step.running
    rows, rest = divmod(number, step.padded) if step.padded else (0, 1)
    return slot >= step.running * rows if rows and not rest else None


def _bits(step: Step, field: str) -> tuple[int, bool]:
    """How wide the field's numbers are, and whether the log says so."""
    short = field.rpartition(".")[2]
    candidates = (f"{field}_dtype", f"{short}_dtype", f"dtypes.{short}", f"dtype.{short}", f"types.{short}", "dtype")
    for name in candidates:
        said = str(step.scalars.get(name, "")).lower()
        if said in _SHORT:
            return _SHORT[said], True
        if (match := _BITS.match(said.removeprefix("torch.").removeprefix("np."))) is not None:
            return int(match[1]), True
    return 32, False


def _limit(scalars: Mapping[str, Any]) -> int | None:
    for name in ("max_model_len", "max_context_len", "context_len", "max_seq_len", "max_ctx", "context_length"):
        value = scalars.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None
