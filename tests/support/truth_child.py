"""A child of the truth harness without a device, `python truth_child.py JOB OUT`: a case does what its call says."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from dsv4prof.sync import measured

job, out = Path(sys.argv[1]), Path(sys.argv[2])
wanted = measured.cases(job)
with out.open("ab") as sink:

    def put(row: object) -> None:
        sink.write(measured.encoded(row))
        sink.flush()

    if any(case.call == "no start" for case in wanted.cases):
        print("torch is too old", file=sys.stderr)
        sys.exit(1)
    put(measured.head(measured.Meta(prelude=wanted.meta.prelude, torch="2.11.0", cuda="13.0", device="Fake 9000")))
    for case in wanted.cases:
        if case.call == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if case.call == "hang":
            time.sleep(600)
        if case.call == "cut":
            sink.write(b'{"id": "cu')
            sink.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        values = {"id": case.id, "call": case.call}
        if case.call == "lose":
            put(measured.Measurement(**values, error="the device was lost: assert"))
            os._exit(3)
        put(measured.Measurement(**values, syncs=case.call == "waits"))
