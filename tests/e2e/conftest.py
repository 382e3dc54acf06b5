"""Runs that several tests look at, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from child import SMALL, Outcome, dsv4prof


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="the engine extra is not installed")
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="session")
def plain_run(workspace: Path) -> Outcome:
    """`run --profile` on two ranks with the metadata builder's hidden read, as JSON."""
    return dsv4prof("run", "--profile", "--tp", "2", *SMALL, "--name", "plain", "--format", "json", cwd=workspace)


@pytest.fixture(scope="session")
def exact_run(workspace: Path) -> Outcome:
    """The same with output_size given."""
    return dsv4prof(
        "run", "--profile", "--exact-num-tokens", "--tp", "2", *SMALL, "--name", "exact", "--format", "json",
        cwd=workspace,
    )  # fmt: skip
