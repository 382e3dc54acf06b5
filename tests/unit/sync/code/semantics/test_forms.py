"""What the semantics tell of stands in the catalogue."""

from __future__ import annotations

import re
from pathlib import Path

from dsv4prof.sync import catalogue
from dsv4prof.sync.code import semantics
from dsv4prof.sync.code.semantics import forms

NAMES = {name: value for name, value in vars(forms).items() if name.isupper()}
# The catalogue lists them as hazards: the host does not wait.
HAZARDS = {forms.OUTPUT_SIZE_NOT_EXACT, forms.NONBLOCKING_COPY_READ_EARLY}


def test_every_form_that_can_be_told_is_one_of_the_catalogue_that_waits() -> None:
    for name, form in NAMES.items():
        entry = catalogue.form(form)
        assert entry.syncs or form in HAZARDS, f"{name} does not wait"


def test_hazards_have_their_own_codes() -> None:
    assert {catalogue.form(form).code for form in HAZARDS} == {"DSV201", "DSV202"}


def test_every_form_is_told_somewhere() -> None:
    folder = Path(semantics.__file__).parent
    used = set(re.findall(r"forms\.([A-Z0-9_]+)", "".join(p.read_text(encoding="utf-8") for p in folder.glob("*.py"))))
    assert set(NAMES) == used


def test_nothing_of_torch_or_numpy_is_needed() -> None:
    folder = Path(semantics.__file__).parent
    for path in folder.glob("*.py"):
        assert not re.search(r"^\s*(import|from) (torch|numpy)\b", path.read_text(encoding="utf-8"), re.M), path.name
