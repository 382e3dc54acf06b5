"""What a word names after a death: a file, a session, or the folder of a watched command, which is no session."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.api.finding import LATEST, find_readable
from dsv4prof.errors import InputError, UsageError
from dsv4prof.faultrecord.layout import SUFFIX


def find_record(wanted: str, root: Path) -> Path:
    """The file or folder; of `latest` the folder under `root` whose fault record was written last.

    Where no folder has one, `latest` is the newest session. Raises InputError when there is none, UsageError when
    several fit the beginning of a name.
    """
    path = Path(wanted)
    if wanted and path.exists():
        return path
    folders = _recorded(root)
    if wanted == LATEST and folders:
        return folders[-1]
    fits = [folder for folder in folders if wanted and folder.name.startswith(wanted)]
    exact = [folder for folder in fits if folder.name == wanted]
    if exact or len(fits) == 1:
        return (exact or fits)[0]
    if len(fits) > 1:
        names = ", ".join(folder.name for folder in fits[:4])
        raise UsageError(f"{wanted!r} fits {len(fits)} folders: {names}", hint="give more of the name")
    if _names_a_file(path):
        raise InputError(f"there is no file or session {wanted!r}", hint="name a log, a *.faultring file or a session")
    return find_readable(root, wanted)


def _names_a_file(path: Path) -> bool:
    return len(path.parts) != 1 or bool(path.suffix)


def _recorded(root: Path) -> list[Path]:
    """The folders with a fault record, the one that was written last at the end."""
    written: dict[Path, int] = {}
    for ring in root.glob(f"*/*{SUFFIX}"):
        try:
            written[ring.parent] = max(written.get(ring.parent, 0), ring.stat().st_mtime_ns)
        except FileNotFoundError:
            # Somebody removes sessions meanwhile.
            continue
    return sorted(written, key=lambda folder: (written[folder], folder.name))
