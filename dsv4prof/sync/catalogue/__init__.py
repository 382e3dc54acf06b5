"""Every known way of making the host wait for the device, and the look-alikes that do not: one module a code.

All three detectors speak of these forms. They load when they are first asked for; nothing here needs torch.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from dsv4prof.sync.catalogue.form import Fix, Form

CODES = (*(f"DSV{number}" for number in range(101, 113)), *(f"DSV{number}" for number in range(201, 206)))


@cache
def of_code(code: str) -> tuple[Form, ...]:
    """The forms of a code such as DSV105, those that wait first; none for a code without forms."""
    if code not in CODES:
        return ()
    found: tuple[Form, ...] = import_module(f"{__name__}.{code.lower()}").FORMS
    return tuple(sorted(found, key=lambda form: not form.syncs))


@cache
def forms() -> tuple[Form, ...]:
    """Every form, by code."""
    return tuple(form for code in CODES for form in of_code(code))


@cache
def _by_id() -> dict[str, Form]:
    return {form.id: form for form in forms()}


def form(id: str) -> Form:
    """The form of an id. Raises KeyError for an unknown one."""
    return _by_id()[id]


__all__ = ["CODES", "Fix", "Form", "form", "forms", "of_code"]
