"""Released or kept, and proved: what is gone is gone at this point, and what is kept is never destroyed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from dsv4prof.recorder import release
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.kept import keep_forever
from dsv4prof.recorder.release import held_bytes, held_profilers, release_with_proof

HELD: list[Any] = []


class Thing:
    """Stands for a profiler."""


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    HELD.clear()
    yield
    gc.unfreeze()
    gc.enable()
    HELD.clear()


def dropped(thing: Thing) -> list[Remains]:
    return [Remains("thing", weakref.ref(thing))]


def test_what_nobody_holds_is_freed_and_the_place_is_noted() -> None:
    things = [Thing()]
    things[0].itself = things[0]  # type: ignore[attr-defined]
    proof = release_with_proof(lambda: dropped(things.pop()), place="between two steps")
    assert (proof.freed, proof.kept, proof.holders, proof.place) == (True, False, [], "between two steps")
    assert proof.collected_objects > 0
    assert proof.collect_ns > 0


@pytest.mark.parametrize("collector", ["enabled", "disabled"])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_holder_of_before_the_freeze_is_named_and_the_heap_is_frozen_again(collector: str, frozen: bool) -> None:
    """A frozen heap is invisible to the collector and to objgraph: thawed for the search, and frozen again."""
    pytest.importorskip("objgraph")
    things = [Thing()]
    HELD.append({"kept": things[0]})
    if collector == "disabled":
        gc.disable()
    if frozen:
        gc.freeze()
    proof = release_with_proof(lambda: dropped(things.pop()))
    assert gc.isenabled() == (collector == "enabled")
    assert (gc.get_freeze_count() > 10_000) == frozen
    assert not proof.freed
    (holder,) = proof.holders
    assert holder.startswith("thing: module ")
    assert "dict['HELD'] -> list[0] -> dict['kept'] -> Thing" in holder
    assert (proof.frozen_objects > 0) == frozen
    assert (proof.note or "").endswith("thawed for the search and frozen again") == frozen


def test_a_thing_that_was_frozen_and_that_nobody_holds_is_freed_when_its_cycle_is_broken() -> None:
    things = [Thing()]
    gc.freeze()
    proof = release_with_proof(lambda: dropped(things.pop()))
    assert proof.freed
    assert proof.note is None, "nobody had to be sought"
    assert gc.get_freeze_count() > 10_000


def test_what_is_kept_is_neither_collected_nor_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("no pause for what is kept on purpose")

    thing = Thing()
    monkeypatch.setattr(release, "find_holders", never)
    monkeypatch.setattr(release.gc, "collect", never)
    before = held_bytes()
    proof = release_with_proof(lambda: dropped(thing), keep=True, held_bytes=4096)
    assert (proof.kept, proof.freed, proof.holders, proof.held_bytes) == (True, False, [], 4096)
    assert (proof.collect_ns, proof.collected_objects) == (0, 0)
    assert held_bytes() == before + 4096


def test_where_nothing_was_recorded_nothing_is_kept() -> None:
    before = held_bytes()
    proof = release_with_proof(list, keep=True, held_bytes=4096)
    assert (proof.kept, proof.freed, proof.held_bytes) == (False, True, 0)
    assert held_bytes() == before


def test_a_kept_thing_outlives_everybody() -> None:
    thing = Thing()
    ref = weakref.ref(thing)
    keep_forever(thing)
    del thing
    gc.collect()
    assert ref() is not None


KEEPS = """
import atexit, gc, os, sys, weakref
import torch
from pathlib import Path
from dsv4prof.recorder.backends.compose import make_backend
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.release import held_bytes, held_profilers, release_with_proof
torch.set_num_threads(1)
plan = RecordPlan(with_stack=False, release=sys.argv[1])
keep = plan.release == "keep"
refs = []
class Canary:
    # Goes with what holds it, also when the interpreter empties its modules after all atexit functions.
    def __del__(self, write=os.write):
        write(1, b"destroyed\\n")
def window(path):
    backend = make_backend(plan)
    backend.warm_up(); backend.prepare(); backend.start()
    torch.ones(4).sum().item()
    backend.stop(); backend.export(Path(path))
    backend._profiler.profiler.canary = Canary()
    refs.extend([weakref.ref(backend._profiler), weakref.ref(backend._profiler.profiler.kineto_results)])
    return release_with_proof(lambda: backend.release(keep=keep), keep=keep, held_bytes=1000)
atexit.register(lambda: os.write(1, b"at exit: %d alive\\n" % sum(ref() is not None for ref in refs)))
unused = make_backend(plan)
unused.prepare()
gone = release_with_proof(lambda: unused.release(keep=keep), keep=keep, held_bytes=1000)
proofs = [window(sys.argv[2] + name) for name in ("a", "b")]
gc.collect()
kept, freed = [proof.kept for proof in proofs], [proof.freed for proof in proofs]
print(gone.kept, kept, freed, held_profilers(), held_bytes(), flush=True)
"""


def child(how: str, folder: Any) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", KEEPS, how, f"{folder}/"],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kept_profilers_are_alive_at_the_end_of_the_process_which_exits_well(tmp_path: Any) -> None:
    """What never recorded is not kept: it has no results, and would look like somebody else's prepared profiler."""
    pytest.importorskip("torch")
    assert child("keep", tmp_path) == [
        "False [True, True] [False, False] 2 2000",
        "at exit: 4 alive",
    ]


def test_collected_profilers_are_not(tmp_path: Any) -> None:
    """The other way, so that the test above proves something."""
    pytest.importorskip("torch")
    assert child("collect", tmp_path) == [
        "destroyed",
        "destroyed",
        "False [False, False] [True, True] 0 0",
        "at exit: 0 alive",
    ]


def test_this_process_keeps_no_profiler() -> None:
    assert held_profilers() == 0
