"""Shared by all tests: torch on one thread, and settings that the developer's own environment cannot change."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell ignores SIGINT for what it starts in the background, nohup SIGHUP; children of the tests would inherit that.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("DSV4PROF_") or name in {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material beside the checkout; tests that need it are skipped without it."""
    if not SHARED.is_dir():
        pytest.skip("the reference material is not beside this checkout")
    return SHARED
