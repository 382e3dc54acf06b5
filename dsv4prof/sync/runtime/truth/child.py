"""The process that measures: `python -m dsv4prof.sync.runtime.truth.child JOB OUT`.

JOB is the cases as JSON lines, with the prelude in the first. OUT gets a line a case as soon as it is measured, so
that nothing is lost with the process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from dsv4prof import errors
from dsv4prof.sync import measured
from dsv4prof.sync.runtime.truth.probe import DeviceLostError, measure
from dsv4prof.sync.runtime.truth.torch_probe import TorchProbe

LOST = 3


def run(job: Path, out: Path) -> None:
    """Measure every case of `job`. Ends the process with LOST when the device was lost on the way."""
    wanted = measured.cases(job)
    probe = TorchProbe(wanted.meta.sleep_ms or 20.0)
    with out.open("ab") as sink:

        def put(row: msgspec.Struct) -> None:
            sink.write(measured.encoded(row))
            sink.flush()

        put(measured.head(probe.meta(wanted.meta.prelude)))
        for case in wanted.cases:
            try:
                put(measure(case, wanted.meta.prelude, probe))
            except DeviceLostError as problem:
                lost = {**msgspec.structs.asdict(case), "error": f"the device was lost: {problem}"}
                put(measured.Measurement(**lost))
                # Leaving in order would wait for the device that is lost.
                os._exit(LOST)


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]), Path(sys.argv[2]))
    except errors.Dsv4profError as problem:
        print(problem.message, file=sys.stderr)
        raise SystemExit(problem.exit_code) from None
