"""The step that never ends is rarely like the one before it: say what is different, and leave out what always is."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4prof.faultrecord.metadata import check_step, is_judged
from dsv4prof.faultrecord.step_values import Value
from dsv4prof.faultrecord.steplog import Step

_MOST_SLOTS = 4


def changed(steps: Sequence[Step], previous: Step | None, last: Step) -> tuple[str, ...]:
    """What is different from the step before, in words; `steps` are all of the log."""
    if previous is None:
        return ()
    return (*_batch(steps, previous, last), *_words(previous, last), *_numbers(previous, last))


def _batch(steps: Sequence[Step], previous: Step, last: Step) -> list[str]:
    words = []
    if previous.running is not None and last.running is not None and previous.running != last.running:
        gone = previous.running - last.running
        count = "one request" if abs(gone) == 1 else f"{abs(gone)} requests"
        words.append(f"{count} {'left' if gone > 0 else 'came'} ({previous.running} to {last.running} running)")
    if _padding(last) > 0 and _padding(previous) == 0:
        known = [each for each in steps[:-1] if each.padded is not None and each.running is not None]
        first = not any(_padding(each) > 0 for each in known)
        words.append(
            f"{'first step with' if first else 'a step with'} padding ({_padding(last)} of {last.padded} slots)"
        )
    elif _padding(last) != _padding(previous) and last.padded is not None:
        words.append(f"padding went from {_padding(previous)} to {_padding(last)} slots")
    if previous.padded is not None and last.padded is not None and previous.padded != last.padded:
        words.append(f"padded batch went from {previous.padded} to {last.padded}")
    return words


def _words(previous: Step, last: Step) -> list[str]:
    plain = {key: value for key, value in last.scalars.items() if isinstance(value, bool) or _is_word(value)}
    return [
        f"{key} went from {previous.scalars[key]} to {value}"
        for key, value in plain.items()
        if key in previous.scalars and previous.scalars[key] != value
    ]


def _numbers(previous: Step, last: Step) -> list[str]:
    """Slots of lengths and offsets that became impossible, or that changed although they hold no request."""
    bad = {(each.field, each.slot) for each in check_step(last)}
    words = []
    for field, values in last.lists.items():
        before = previous.lists.get(field)
        if before is None or not is_judged(field):
            continue
        if len(before) != len(values):
            words.append(f"{field} went from {len(before)} to {len(values)} values")
        told = [
            f"{field}[{slot}] went from {_said(old)} to {_said(new)}"
            for slot, (old, new) in enumerate(zip(before, values, strict=False))
            if old != new and ((field, slot) in bad or _is_odd(previous, last, slot, len(values)))
        ]
        words += told[:_MOST_SLOTS]
        if len(told) > _MOST_SLOTS:
            words.append(f"{len(told) - _MOST_SLOTS} more slots of {field} changed so")
    return words


def _is_odd(previous: Step, last: Step, slot: int, number: int) -> bool:
    """Whether the slot held no request in either step, so that nothing should have changed in it."""
    steps = (previous, last)
    return all(step.running is not None and step.padded == number and slot >= step.running for step in steps)


def _said(value: Value) -> str:
    return "nothing" if value is None else str(value)


def _is_word(value: object) -> bool:
    """Whether it says what kind of step it was; numbers that are written as text differ in every step."""
    return isinstance(value, str) and not value[:1].isdigit() and value[:1] not in "+-."


def _padding(step: Step) -> int:
    return max(0, step.padded - step.running) if step.padded is not None and step.running is not None else 0
