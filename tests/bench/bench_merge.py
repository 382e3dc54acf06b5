"""A merge of 8 ranks against SGLang's ProfileMerger and against the floor, on the same files in one run.

    python tests/bench/bench_merge.py --set FOLDER [--wheel sglang.whl]
    python tests/bench/bench_merge.py --make FOLDER --maker make_rank_set.py --base RANK.json.gz [--maker-python PY]

Each contestant is a child: CPU seconds and the largest process's peak come from the kernel's account of the child and
of all that it waited for, the peak of the sum from looking at the processes while they run. The floor reads and writes
with isal and looks at nothing. SGLang's module is taken out of its wheel (pip downloads it unless `--wheel` names it)
into a folder that goes with the run; nothing else of it is loaded. `--without-sglang` leaves that half out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from dsv4prof.trace.core import core_name

SGLANG = "sglang==0.5.23"
_MERGER = "sglang/srt/utils/profile_merger.py"
_LOOK_S = 0.03
# What the issue asks for: CPU seconds and MB at most, and how often less than SGLang's.
_MOST_CPU_S, _MOST_MB, _CPU_RATIO, _MEMORY_RATIO = 10, 300, 8, 15

FLOOR = """
import sys
from isal import igzip
with igzip.open(sys.argv[1], "wb", compresslevel=1) as out:
    for name in sys.argv[2:]:
        with igzip.open(name, "rb") as source:
            while piece := source.read(4 << 20):
                out.write(piece)
"""
SGLANG_MERGE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("profile_merger", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.ProfileMerger(sys.argv[2], sys.argv[3]).merge_chrome_traces()
"""


@dataclass(frozen=True)
class Cost:
    """Of a child and its children. `largest` and `together` are peaks of resident memory in MB."""

    status: int
    cpu_s: float
    wall_s: float
    largest: float
    together: float


class _Watch(threading.Thread):
    """The peak of what a process and its children hold together."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.over = threading.Event()
        self._process = psutil.Process(pid)

    def run(self) -> None:
        while not self.over.wait(_LOOK_S):
            held = 0
            try:
                for process in (self._process, *self._process.children(recursive=True)):
                    held += process.memory_info().rss
            except psutil.Error:
                continue
            self.peak = max(self.peak, held)


def measure(line: Sequence[str], log: Path) -> Cost:
    """Run a child to its end."""
    began = time.perf_counter()
    with log.open("wb") as out:
        child = subprocess.Popen(line, stdout=out, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"})
    watch = _Watch(child.pid)
    watch.start()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    watch.over.set()
    watch.join()
    largest = usage.ru_maxrss / 1024
    return Cost(
        child.returncode, usage.ru_utime + usage.ru_stime, wall, largest, max(watch.peak / 2**20, largest)
    )  # fmt: skip


def merge_line(files: Sequence[Path], output: Path, *options: str) -> list[str]:
    """The command line of a merge. A set that is a part of a bigger one lacks ranks."""
    return [
        sys.executable, "-m", "dsv4prof", "merge", *map(str, files), "-o", str(output), "--force", "--allow-partial",
        *options,
    ]  # fmt: skip


def has_jobs() -> bool:
    """Whether the merge under test can use several processes."""
    line = [sys.executable, "-m", "dsv4prof", "merge", "--help"]
    return "--jobs" in subprocess.run(line, capture_output=True, text=True, check=True).stdout


def rank_files(folder: Path) -> list[Path]:
    """Those of a set, by rank. Exits when there are none."""
    files = [path for path in folder.glob("*.trace.json*") if "-TP-" in path.name]
    if not files:
        raise SystemExit(f"{folder} holds no set (*-TP-N.trace.json.gz): make one with --make, see --help")
    return sorted(files, key=lambda path: int(path.name.partition("-TP-")[2].partition(".")[0]))


def make_set(options: argparse.Namespace, *sizes: str) -> Path:
    """Make a set with the given maker, unless the folder has one."""
    if not any(options.make.glob("*-TP-*")):
        if options.maker is None or options.base is None:
            raise SystemExit("--make needs --maker (the program) and --base (the trace to repeat)")
        options.make.mkdir(parents=True, exist_ok=True)
        python = options.maker_python or sys.executable
        subprocess.run([python, str(options.maker), str(options.base), str(options.make), *sizes], check=True)
    return options.make


def parser(description: str) -> argparse.ArgumentParser:
    """The options that benches of merges share."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--set", type=Path, help="folder of a set that is there")
    made.add_argument("--make", type=Path, help="folder to make a set in, when it is empty")
    made.add_argument("--maker", type=Path, help="make_rank_set.py")
    made.add_argument("--base", type=Path, help="the trace that the maker repeats")
    made.add_argument("--maker-python", help="a Python that has the maker's packages (orjson, zlib-ng)")
    return made


def chosen_set(options: argparse.Namespace, *sizes: str) -> list[Path]:
    """The files to merge."""
    if (options.set is None) == (options.make is None):
        raise SystemExit("name a set with --set, or make one with --make: see --help")
    return rank_files(options.set if options.set is not None else make_set(options, *sizes))


def _sglang(files: Sequence[Path], scratch: Path, wheel: Path | None) -> list[str]:
    """The line that merges with SGLang's module, over links to the files in a folder that it may write to."""
    if wheel is None:
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), SGLANG]
        subprocess.run(fetch, check=True, stderr=subprocess.DEVNULL)
        wheel = next(scratch.glob("sglang-*.whl"))
    with zipfile.ZipFile(wheel) as packed:
        module = packed.extract(_MERGER, scratch)
    folder = scratch / "sglang-set"
    folder.mkdir()
    for path in files:
        (folder / path.name).symlink_to(path.resolve())
    return [sys.executable, "-c", SGLANG_MERGE, module, str(folder), files[0].name.partition("-TP-")[0]]


def main() -> None:
    """Measure, print a table, and say how far it is from what is asked for."""
    made = parser(__doc__.partition("\n")[0])
    made.add_argument("--wheel", type=Path, help=f"the wheel of {SGLANG}; default: pip downloads it")
    made.add_argument("--without-sglang", action="store_true")
    made.add_argument("--repeat", type=int, default=3, help="the best of so many runs; SGLang's runs once [3]")
    options = made.parse_args()
    files = chosen_set(options, "--ranks", "8", "--reps", "8", "--nodes", "2")
    jobs = (1, 2) if has_jobs() else (None,)
    costs: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory(prefix="bench-merge-") as folder:
        scratch = Path(folder)
        out = scratch / "out.json.gz"
        lines = {"floor": ([sys.executable, "-c", FLOOR, str(out), *map(str, files)], options.repeat)}
        for count in jobs:
            name = "dsv4prof merge" + (f" --jobs {count}" if count else "")
            lines[name] = (merge_line(files, out, *(["--jobs", str(count)] if count else [])), options.repeat)
        if not options.without_sglang:
            lines["sglang ProfileMerger"] = (_sglang(files, scratch, options.wheel), 1)
        for name, (line, repeat) in lines.items():
            log = scratch / "log"
            runs = [measure(line, log) for _ in range(repeat)]
            if any(run.status for run in runs):
                raise SystemExit(f"{name} failed:\n{log.read_text()[-2000:]}")
            costs[name] = min(runs, key=lambda run: run.cpu_s)
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files)} ranks, {size / 1e6:.1f} MB compressed; the core in use is {core_name()}")
    print(f"{'':22} {'CPU s':>8} {'wall s':>8} {'largest MB':>11} {'together MB':>12} {'x floor CPU':>12}")
    for name, cost in costs.items():
        memory, ratio = f"{cost.largest:11.0f} {cost.together:12.0f}", cost.cpu_s / costs["floor"].cpu_s
        print(f"{name:22} {cost.cpu_s:8.2f} {cost.wall_s:8.2f} {memory} {ratio:12.1f}")
    _judge(costs)


def _judge(costs: dict[str, Cost]) -> None:
    ours = [cost for name, cost in costs.items() if name.startswith("dsv4prof")]
    print(f"one process: {ours[0].cpu_s:.2f} CPU s ({_MOST_CPU_S} asked), {ours[0].largest:.0f} MB ({_MOST_MB} asked)")
    if len(ours) > 1:
        print(f"two processes: {ours[1].wall_s / ours[0].wall_s:.2f} of the wall time (0.5 asked)")
    theirs = costs.get("sglang ProfileMerger")
    if theirs is not None:
        cpu, memory = theirs.cpu_s / ours[0].cpu_s, theirs.largest / ours[0].largest
        print(f"against SGLang: {cpu:.1f} times less CPU ({_CPU_RATIO} asked), {memory:.1f} times less memory "
              f"({_MEMORY_RATIO} asked)")  # fmt: skip


if __name__ == "__main__":
    main()
