"""What is to be said when a recording was interrupted or left nothing to report on: never more than is known."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.errors import Dsv4profError, InputError, InterruptedRunError
from dsv4prof.target.remote.facts import ServerFacts
from dsv4prof.target.remote.recording import Ended
from dsv4prof.target.remote.stopping import Stop

OUTPUT_DIR_HINT = "--output-dir DIR names a folder that both see; HERE:THERE where the server has another name for it"


def absence(facts: ServerFacts, ended: Ended, source: Path) -> str:
    """Why a rank has no trace."""
    if ended.gone:
        return "the server is gone"
    if ended.saving:
        return f"the server was still saving after {ended.stop_s:.0f} s: what it saves will appear in {source}"
    elsewhere = ", or the host that it runs on writes to a folder that is not seen here" if facts.nodes > 1 else ""
    return f"it ran no step of it in {ended.waited_s:.0f} s{elsewhere}"


def interruption(ended: Ended, source: Path, state: str, *, session: str, saved: int, ranks: int) -> Dsv4profError:
    """After Ctrl-C, SIGTERM or SIGHUP: what became of the server's profiler, and what is kept."""
    if ended.gone:
        state = "the server is gone"
    elif ended.saving:
        state = f"the server has not answered the stop yet: what it still saves will appear in {source}"
    kept = f"the traces of {saved} of {ranks} ranks are kept" if saved else "nothing was recorded"
    if not saved and ended.saving:
        kept = "nothing is there yet"
    hint = f"dsv4prof merge {session}" if saved else None
    return InterruptedRunError(f"interrupted; {state}, {kept}", hint=hint)


def nothing(url: str, facts: ServerFacts, ended: Ended, source: Path, state: str) -> Dsv4profError:
    """Not one trace came of it."""
    if ended.gone:
        return InputError(
            f"the server is gone: {url} stopped answering while it recorded, and had saved nothing",
            hint="its log has the reason; start it again",
        )
    if ended.saving:
        return InputError(
            f"{facts.name} is still saving: the trace will appear in {source}",
            hint=f"it had not answered the stop in {ended.stop_s:.0f} s; later: dsv4prof merge {source}",
        )
    if ended.stop is Stop.SAVED:
        return InputError(
            f"the server says that it saved its traces, and none is to be seen in {source}: "
            "it runs in a container or on another host",
            hint=OUTPUT_DIR_HINT,
        )
    said = [note for note in ended.notes if note.startswith(("the load was refused", "kept in"))]
    more = f" ({'; '.join(said)})" if said else ""
    return InputError(
        f"nothing was recorded: {facts.name} ran no step in {ended.waited_s:.0f} s{more}; {state}",
        hint="send it requests meanwhile, leave --load at auto, or have more --patience",
    )
