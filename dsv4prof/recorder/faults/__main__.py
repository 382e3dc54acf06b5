"""`python -m dsv4prof.recorder.faults NAME plain|ours FOLDER`: one half of a fault, in this process.

`... serve` is the list's own use: the same for every line of stdin, each in a fork.
"""

from __future__ import annotations

import sys

from dsv4prof.recorder.faults.child import main
from dsv4prof.recorder.faults.nursery import SERVE, serve

sys.exit(serve() if sys.argv[1:] == [SERVE] else main(sys.argv[1:]))
