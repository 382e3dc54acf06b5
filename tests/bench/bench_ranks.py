"""What a merge costs by the number of ranks: CPU seconds a rank and peak memory, which should both stay where they are.

    python tests/bench/bench_ranks.py --set FOLDER
    python tests/bench/bench_ranks.py --make FOLDER --maker make_rank_set.py --base RANK.json.gz

Merges the first 1, 2, 4, ... ranks of a set. The start of the command is in every row, so a rank looks dear in the
first ones; the last column is the cost of one rank more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench_merge import chosen_set, has_jobs, measure, merge_line, parser

from dsv4prof.trace.core import core_name

COUNTS = (1, 2, 4, 8, 16, 32, 64)


def main() -> None:
    """Print a row for each number of ranks that the set has."""
    made = parser(__doc__.partition("\n")[0])
    made.add_argument("--repeat", type=int, default=1, help="the best of so many runs [1]")
    options = made.parse_args()
    files = chosen_set(options, "--ranks", str(COUNTS[-1]), "--reps", "1", "--nodes", "8")
    jobs = ["--jobs", "1"] if has_jobs() else []
    print(f"the core in use is {core_name()}")
    print(f"{'ranks':>5} {'CPU s':>8} {'CPU s/rank':>11} {'peak MB':>8} {'CPU s one more':>15}")
    before: tuple[int, float] | None = None
    with tempfile.TemporaryDirectory(prefix="bench-ranks-") as folder:
        log, out = Path(folder, "log"), Path(folder, "out.json.gz")
        for count in (count for count in COUNTS if count <= len(files)):
            runs = [measure(merge_line(files[:count], out, *jobs), log) for _ in range(options.repeat)]
            cost = min(runs, key=lambda run: run.cpu_s)
            if cost.status:
                raise SystemExit(f"{count} ranks failed:\n{log.read_text()[-2000:]}")
            more = f"{(cost.cpu_s - before[1]) / (count - before[0]):15.3f}" if before else ""
            print(f"{count:5} {cost.cpu_s:8.2f} {cost.cpu_s / count:11.3f} {cost.largest:8.0f} {more}", flush=True)
            before = (count, cost.cpu_s)


if __name__ == "__main__":
    main()
