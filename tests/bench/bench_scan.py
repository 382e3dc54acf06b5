"""Reading and writing the events of one rank: both makes of the core against msgspec's typed decode, in one run.

    python tests/bench/bench_scan.py FILE [MEGABYTES]

FILE is a trace (.json or .json.gz); its events are scanned, encoded as a merge writes them, and split into lanes, in
blocks of 4 MB, until MEGABYTES (default 64) of text are through. Rounds alternate and the best of each counts, in CPU
seconds. msgspec decodes into the structs of the general reader, arguments unread, collector off.
"""

from __future__ import annotations

import gc
import gzip
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import numpy as np

from dsv4prof.trace.columns import Block, OutBlock, Scanner
from dsv4prof.trace.core import NATIVE, PLAIN, Core, native
from dsv4prof.trace.wire import WireEvent

BLOCK = 4 << 20
ROUNDS = 3
OVERLAPPING = 50_000


def makes() -> list[Core]:
    try:
        library = native.Native()
    except native.UnusableError as error:
        print(f"the compiled core cannot be used: {error}")
        return [PLAIN]
    return [Core(NATIVE, library.new_scanner, library.new_encoder, library.lanes, library.open_at), PLAIN]


def events_text(path: Path, size: int) -> bytes:
    """The elements of `traceEvents`, again and again, up to `size` bytes; no bracket around them."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    elements = bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw])["traceEvents"])[1:-1]
    return b",".join([elements] * max(1, size // len(elements)))


def scan(scanner: Scanner, text: bytes) -> Iterator[Block]:
    """The blocks of a text, each with its rows; elements for the general reader are passed over."""
    held = b""
    for start in range(0, len(text), BLOCK):
        held += text[start : start + BLOCK]
        at = 0
        while True:
            found = scanner.scan(held, at)
            yield Block(held, found.rows)
            at = found.end
            if found.stop != "odd":
                break
        held = held[found.consumed :]


def scan_rows(make: Core, text: bytes) -> int:
    return sum(len(block.rows) for block in scan(make.scanner(), text))


def out_blocks(blocks: list[Block]) -> list[OutBlock]:
    return [
        OutBlock(text, rows, rows["ts"].copy(), rows["dur"].copy(), np.zeros(len(rows), np.int32), rows["id"].copy())
        for text, rows in blocks
    ]


def encode(make: Core, blocks: list[OutBlock], words: list[str]) -> int:
    encoder = make.encoder(words, [b'"pid":3,"tid":7'], b"0:")
    return sum(len(encoder.block(block)) for block in blocks)


def lanes(make: Core, start: np.ndarray, end: np.ndarray) -> int:
    return int(make.split_lanes(start, end, np.array([0, len(start)])).max())


def cpu_seconds(call: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    began = time.process_time()
    call()
    spent = time.process_time() - began
    gc.enable()
    return spent


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    text = events_text(Path(sys.argv[1]), int(sys.argv[2]) * 1_000_000 if len(sys.argv) > 2 else 64_000_000)
    array = b"[" + text + b"]"
    typed = msgspec.json.Decoder(list[WireEvent])
    first = np.arange(OVERLAPPING, dtype=np.int64)
    tasks: dict[str, Callable[[], object]] = {"msgspec typed decode": lambda: typed.decode(array)}
    sizes = {"msgspec typed decode": len(text)}
    for make in makes():
        scanner = make.scanner()
        out = out_blocks(list(scan(scanner, text)))
        rows = sum(len(block.rows) for block in out)
        print(f"{make.name}: {len(text) / 1e6:.1f} MB, {rows:,} rows, {len(scanner.words):,} words")
        tasks[f"{make.name} scan"] = lambda make=make: scan_rows(make, text)
        tasks[f"{make.name} encode"] = lambda make=make, out=out, words=scanner.words: encode(make, out, words)
        tasks[f"{make.name} lanes"] = lambda make=make: lanes(make, first, first + OVERLAPPING)
        sizes[f"{make.name} scan"] = len(text)
        sizes[f"{make.name} encode"] = encode(make, out, scanner.words)
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            best[name] = min(best[name], cpu_seconds(task))
    floor = best["msgspec typed decode"]
    for name, seconds in best.items():
        if name in sizes:
            print(
                f"{name:22}{seconds:8.3f} CPU s  {sizes[name] / seconds / 1e6:7.0f} MB per CPU s  "
                f"{floor / seconds:6.2f} times msgspec's speed"
            )
        else:
            print(f"{name:22}{seconds:8.3f} CPU s  for {OVERLAPPING:,} spans that all overlap")


if __name__ == "__main__":
    main()
