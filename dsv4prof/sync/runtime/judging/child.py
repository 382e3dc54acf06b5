"""The process that judges: `python -m dsv4prof.sync.runtime.judging.child JOB OUT WHERE VENDOR [TORCH]`.

JOB is the cases as JSON lines, with the prelude in the first. OUT gets an empty line when the detector is ready, and
then a line a case as soon as it is judged.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dsv4prof import errors
from dsv4prof.sync import measured
from dsv4prof.sync.runtime.judging.cases import judged
from dsv4prof.sync.runtime.judging.detector import Where, detector


def run(job: Path, out: Path, where: Where, vendor: str, torch_version: str | None) -> None:
    """Judge every case of `job`."""
    wanted, this = measured.cases(job), os.getpid()
    if where == "shadow":
        import torch

        torch.set_num_threads(1)
    with out.open("ab") as sink, detector(where, vendor=vendor, torch_version=torch_version) as watching:
        sink.write(b"\n")
        for case in wanted.cases:
            # What is still in the buffer would be written twice by a case that forks.
            sink.flush()
            verdict = judged(case, wanted.meta.prelude, watching)
            if os.getpid() != this:
                os._exit(0)
            sink.write(measured.encoded(verdict))
        sink.flush()


if __name__ == "__main__":
    try:
        job, out, where, vendor, *version = sys.argv[1:]
        run(Path(job), Path(out), where, vendor, version[0] if version else None)  # type: ignore[arg-type]
    except errors.Dsv4profError as problem:
        print(problem.message, file=sys.stderr)
        raise SystemExit(problem.exit_code) from None
