"""`dsv4-tiny`, whose text is noise, and documents made up."""

from __future__ import annotations

import pytest
import torch

from dsv4_engine.training.corpus import Documents
from dsv4_engine.training.evaluate.subject import Subject
from made_up_texts import chat, document, documents


@pytest.fixture(scope="session")
def subject() -> Subject:
    torch.set_num_threads(1)
    return Subject.load("dsv4-tiny")


@pytest.fixture(scope="session")
def held_out() -> dict[str, Documents]:
    return {
        "code": documents(*(document(length, seed) for seed, length in enumerate((300, 90, 40, 700)))),
        "chat": documents(*(chat(length, 10 + length) for length in (30, 150))),
    }
