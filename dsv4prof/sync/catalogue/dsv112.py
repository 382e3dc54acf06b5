"""DSV112: the same device value is read twice."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form
from dsv4prof.sync.catalogue.shows import SCALAR, waits

FORMS: tuple[Form, ...] = (
    waits(
        SCALAR,
        "DSV112",
        "value-read-twice",
        "the same device value read again",
        ("n = int(t); ...; m = t.item()", "t.tolist(); ...; t.cpu()"),
        "nothing writes the tensor between the two reads",
        source="follows from the two reads, each of which is a form of its own",
        fix=Fix("read once, and keep the host value", "same result"),
    ),
)
