"""The source audit of a whole project against the parser alone, in one run.

    python tests/bench/bench_audit.py FOLDER [FILES]

Prints CPU seconds of `ast.parse` of every file (collector off), of a cold audit in one process and in two, of a warm
one, and of one that reports on FILES (default 20) files after an edit elsewhere; the ratio to the parser; peak memory
of each process; findings by level. Each is measured in a process of its own, so that one peak does not hide another.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from dsv4prof.sync.code import files
from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.options import AuditOptions


def cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def parse_alone(root: Path) -> dict[str, object]:
    gc.disable()
    warnings.simplefilter("ignore")
    texts = [files.read(root, path, AuditOptions()) for path in files.discover(root, AuditOptions())]
    start = cpu_s()
    for text in texts:
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return {"cpu_s": cpu_s() - start, "files": len(texts)}


def audited(root: Path, options: AuditOptions) -> dict[str, object]:
    start, began = cpu_s(), time.perf_counter()
    made = audit(root, options)
    wall_s = time.perf_counter() - began
    levels: dict[str, int] = {}
    for found in made.found:
        levels[found.level] = levels.get(found.level, 0) + 1
    return {
        "cpu_s": cpu_s() - start,
        "wall_s": wall_s,
        "files": made.files,
        "lines": made.lines,
        "findings": levels,
        "problems": len(made.problems),
    }


def one(root: Path, what: str, cache: Path, count: int) -> dict[str, object]:
    if what == "parse":
        return parse_alone(root)
    if what == "one process":
        return audited(root, AuditOptions(jobs=1))
    if what != "some files":
        return audited(root, AuditOptions(jobs=2, cache_dir=cache))
    paths = files.discover(root, AuditOptions())
    step = max(1, len(paths) // count)
    chosen = tuple(root / path for path in paths[::step][:count])
    edited = paths[1]
    replaced = {edited: files.read(root, edited, AuditOptions()) + b"\n# edited\n"}
    return audited(root, AuditOptions(cache_dir=cache, paths=chosen, sources=replaced))


def main() -> None:
    root = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    if len(sys.argv) > 3:
        result = one(root, sys.argv[3], Path(sys.argv[4]), count)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(json.dumps(result | {"peak_mb": [round(peak / 1024), round(child / 1024)]}))
        return
    parser_s = 0.0
    with tempfile.TemporaryDirectory() as cache:
        for what in ("parse", "one process", "two processes", "warm", "some files"):
            command = [sys.executable, __file__, str(root), str(count), what, cache]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            parser_s = parser_s or result["cpu_s"]
            ratio = result["cpu_s"] / parser_s
            print(f"{what:<14} {result.pop('cpu_s'):7.2f} CPU s  {ratio:5.2f} x parser  {result}", flush=True)


if __name__ == "__main__":
    main()
