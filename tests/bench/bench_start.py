"""What a command costs before it does anything: CPU seconds against an empty Python, in one run.

    python tests/bench/bench_start.py

Prints the median of several runs of each command and its ratio to the floor (`python -c pass`); `import torch` is there
for orientation, as what a torch-free command must not cost.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median

RUNS = 7
COMMANDS = {
    "floor: python -c pass": ["-c", "pass"],
    "dsv4prof --help": ["-m", "dsv4prof", "--help"],
    "dsv4prof run --help": ["-m", "dsv4prof", "run", "--help"],
    "dsv4prof sessions list": ["-m", "dsv4prof", "sessions", "list"],
    "import torch": ["-c", "import torch"],
}


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Interleave the commands, so that a slow moment of the machine hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, arguments in COMMANDS.items():
            times[name].append(cpu_seconds(arguments))
    floor = median(times["floor: python -c pass"])
    for name, values in times.items():
        print(f"{name:24} {median(values):6.3f} CPU s   x{median(values) / floor:5.1f}")


if __name__ == "__main__":
    main()
