from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the engine extra is not installed")

from served import serving


@pytest.fixture(scope="module")
def served():
    """One server with a fake engine for all tests of a file that change nothing in it."""
    with serving() as server:
        yield server
