"""What a parent tells the processes of a watched command, and how it puts itself into them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from dsv4prof.model.syncs import Direction, Layer

ENV = "DSV4PROF_WATCH"
"""Names the file with the orders."""
INJECTED = Path(__file__).with_name("injected")


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """As SyncWatch; `regions` are `module:function`, `entered` files and folders whose functions are noted.

    `root` is where this package lies, for an interpreter that has it not installed. `gpu` None: where there is one.
    """

    folder: str
    root: str
    gpu: bool | None = None
    vendor: Literal["cuda", "hip"] = "cuda"
    layers: list[Layer] | None = None
    max_syncs: int | None = None
    warmup: int = 0
    disallow: list[Direction] = []
    regions: list[str] = []
    hazards: bool = False
    entered: list[str] = []
    fault_watch: bool = False


def give(orders: Orders, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command that is to be watched, in every Python process that it starts.

    Raises OSError where the orders cannot be written.
    """
    path = Path(orders.folder) / "orders.json"
    path.write_bytes(msgspec.json.encode(orders))
    before = environment.get("PYTHONPATH")
    return {
        **environment,
        ENV: str(path.resolve()),
        "PYTHONPATH": str(INJECTED) + (os.pathsep + before if before else ""),
    }


def read(path: Path) -> Orders:
    return msgspec.json.decode(path.read_bytes(), type=Orders)


def root() -> str:
    """The folder to import this package from."""
    return str(Path(sys.modules["dsv4prof"].__file__ or "").resolve().parents[1])
