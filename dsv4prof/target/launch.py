"""From a spec to a session: checked, started, watched, put together, and every failure told in one sentence."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError, InterruptedRunError, RankFailedError, UsageError
from dsv4prof.model.session import Outcome, RankCoordinates, RankRecord, Session
from dsv4prof.recorder.agreement import agree_on_session, forget_launch
from dsv4prof.recorder.barrier import await_ranks
from dsv4prof.recorder.coordinates import coordinates_from
from dsv4prof.recorder.sessions import assemble, create_session, record_of
from dsv4prof.recorder.sink import write_record
from dsv4prof.target.control import StopControl, clear_stop, obey
from dsv4prof.target.engine import check, check_rank, place_of, serve_rank
from dsv4prof.target.failures import RankExit, as_rank_failed, failure_path, root_cause
from dsv4prof.target.hangs import HangNote, read_hang
from dsv4prof.target.outputs import join_parts
from dsv4prof.target.ranks import choose_port, run_ranks
from dsv4prof.target.serving import Progress
from dsv4prof.target.spec import RunSpec
from dsv4prof.target.workload import together

_OTHERS_PATIENCE_S = 60.0
_REFUSAL_PATIENCE_S = 2.0


def run(spec: RunSpec, *, progress: Progress = lambda event: None) -> tuple[Path, Session]:
    """Serve `spec` on the embedded engine, recorded when `spec.profile`; the session's folder and manifest.

    Starts `spec.world` processes, or is one of torchrun's ranks when RANK and WORLD_SIZE say so. `progress` hears what
    begins. Nothing is printed.
    Raises UsageError, InputError or OutputError for what is refused, with no folder left behind; RankFailedError when a
    rank died and InterruptedRunError after Ctrl-C, both with what was recorded kept and in the manifest.
    """
    check(spec)
    me = coordinates_from(os.environ)
    if (me.world_size or 1) > 1:
        return _run_as_rank(spec, me, progress)
    port = choose_port(spec.port)
    folder = _new_session(spec)
    exits, interrupted = run_ranks(spec, folder, port=port, progress=progress)
    refusal = next((item.failure for item in exits if item.failure is not None and item.failure.refused), None)
    if refusal is not None and not any(item.status < 0 and not item.ended_by_leader for item in exits):
        shutil.rmtree(folder)
        raise refusal.as_error()
    session = _conclude(spec, folder, exits)
    kept = _kept(folder, session)
    if interrupted and all(record.first_step is None for record in session.ranks):
        shutil.rmtree(folder)
        raise InterruptedRunError("interrupted before anything was recorded", hint="no session was left behind")
    if interrupted:
        raise InterruptedRunError("interrupted; what was recorded has been saved", hint=kept)
    if (hang := read_hang(folder)) is not None:
        raise _in_session(RankFailedError(_hung_words(hang), hint=kept), folder)
    if (cause := root_cause(exits)) is not None:
        raise _in_session(as_rank_failed(cause, session.ranks[cause.rank].reason, kept), folder)
    return folder, session


def _in_session(error: RankFailedError, folder: Path) -> RankFailedError:
    error.session = str(folder)
    return error


def _hung_words(hang: HangNote) -> str:
    """One sentence for the user: who did not move, and what is known of its process."""
    still = [each for each in hang.ranks if each.in_step] or hang.ranks
    longest = max(still, key=lambda each: (each.state.startswith("stopped"), each.still_s))
    return (
        f"the run hung: nothing moved for {hang.timeout_s:g} s; rank {longest.rank} is {longest.state}, "
        f"and all ranks were ended"
    )


def _new_session(spec: RunSpec) -> Path:
    return create_session(
        Path(spec.root),
        name=spec.name or Path(spec.model).name,
        world_size=spec.world,
        command=spec.command,
        plan=msgspec.to_builtins(spec.plan) if spec.profile else {},
        settings=spec.settings,
    )


def _conclude(spec: RunSpec, folder: Path, exits: list[RankExit]) -> Session:
    """Write down for the ranks that could not do so themselves, and put the manifest together."""
    for item in exits:
        failure_path(folder, item.rank).unlink(missing_ok=True)
        record = record_of(folder, item.rank)
        if record is None:
            lost = place_of(spec, RankCoordinates(rank=item.rank, world_size=spec.world))
            write_record(folder, RankRecord(coordinates=lost, outcome=Outcome.MISSING, reason=item.how))
        elif record.outcome is Outcome.RECORDING:
            changed = msgspec.structs.replace(record, outcome=Outcome.INCOMPLETE, reason=item.how)
            write_record(folder, changed)
    clear_stop(folder)
    for part in folder.glob(".*.part"):
        part.unlink()
    join_parts(folder)
    return assemble(folder, workload=_workload(spec, folder))


def _workload(spec: RunSpec, folder: Path) -> dict[str, Any]:
    """What was served and how fast, from the unprofiled pass of each replica's first rank."""
    records = [record_of(folder, rank) for rank in range(0, spec.world, spec.tp)]
    facts = together([record.facts for record in records if record is not None])
    return {
        "model": spec.model,
        "requests": spec.requests,
        "max_requests": spec.max_requests,
        "max_new_tokens": spec.max_new_tokens,
        "drafts": spec.num_drafts,
        "tp": spec.tp,
        "dp": spec.dp,
        "ep": spec.ep or spec.world,
        "device": spec.device,
        "dtype": spec.dtype,
        "exact_num_tokens": spec.exact_num_tokens,
        **{key: value for key, value in facts.items() if key != "gates"},
    }


def _kept(folder: Path, session: Session) -> str:
    traces = [record.trace for record in session.ranks if record.trace is not None]
    if not traces:
        return f"no trace was saved; the ranks' logs are in {folder}"
    return f"{len(traces)} of {session.world_size} traces are kept: dsv4prof merge {folder} --allow-partial"


def _run_as_rank(spec: RunSpec, me: RankCoordinates, progress: Progress) -> tuple[Path, Session]:
    """This process is one of torchrun's ranks; rank 0 waits for the others' records and leaves the manifest."""
    if spec.world != me.world_size:
        raise UsageError(
            f"torchrun started {me.world_size} ranks and {spec.world} are asked for",
            hint=f"give tp and dp whose product is {me.world_size}",
        )
    if os.environ.get("MASTER_PORT") == "0":
        raise UsageError(
            "torchrun gave its ranks port 0, where they cannot meet", hint="start it with --standalone or with a port"
        )
    me = place_of(spec, me)
    # Every rank refuses the same by itself, so none is left with a folder that another one takes away.
    check_rank(spec, me)
    folder = agree_on_session(me, Path(spec.root), lambda: _new_session(spec))
    control = StopControl(folder, me.rank)
    obey(control, signal.SIGINT, signal.SIGTERM)
    try:
        done = serve_rank(
            spec,
            me,
            folder,
            init_method="env://",
            control=control,
            threads=spec.threads or int(os.environ.get("OMP_NUM_THREADS", "1")),
            progress=progress if me.rank == 0 else lambda event: None,
        )
    except (UsageError, InputError):
        if me.rank == 0:
            _discard(folder)
        raise
    except RankFailedError as error:
        raise RankFailedError(error.message, hint=_kept(folder, assemble(folder))) from error
    if me.rank == 0:
        await_ranks(folder, spec.world, patience_s=_OTHERS_PATIENCE_S)
        join_parts(folder)
    session = assemble(folder, workload=_workload(spec, folder))
    forget_launch(folder, session)
    if not done:
        raise InterruptedRunError("interrupted; what was recorded has been saved", hint=_kept(folder, session))
    return folder, session


def _discard(folder: Path) -> None:
    """Remove a refused run's folder, also while other ranks are still writing their refusal into it."""
    deadline = time.monotonic() + _REFUSAL_PATIENCE_S
    while time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.2)
