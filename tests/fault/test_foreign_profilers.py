"""Two torch profilers in one process: ours survives, theirs is refused, and nobody crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from recorded_child import assert_whole, only_session, record_of, run_child, start

FOREIGN = """
def foreign(profiler, *moves):
    for move in moves:
        try:
            getattr(profiler, move)()
        except BaseException as error:
            print(f"{move}: {type(error).__name__} {error}")
"""
REFUSED = "LifetimeError another torch profiler cannot start while dsv4prof records"


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        ("torch.profiler", ("start", "stop")),
        ("torch.profiler", ("start",)),
        ("torch.profiler", ("start", "stop", "start", "stop")),
        ("torch.autograd.profiler", ("__enter__",)),
        ("torch.autograd.profiler", ("__enter__", "__enter__")),
    ],
)
def test_a_foreign_profiler_in_the_block_is_refused_and_ours_is_saved(
    tmp_path: Path, kind: str, moves: tuple[str, ...]
) -> None:
    body = f"""{FOREIGN}
with record(PLAN, root=root):
    work()
    p = {kind}.profile()
    foreign(p, *{moves!r})
    work()
with {kind}.profile() as p:
    work()
print(len(p.key_averages()) > 0)
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert f"{moves[0]}: {REFUSED}" in out
    assert out.rstrip().endswith("True"), "afterwards everybody may profile again"
    assert_whole(only_session(tmp_path))
    assert record_of(only_session(tmp_path))["outcome"] == "complete"


def test_a_foreign_profiler_of_another_thread_is_refused_while_we_record(tmp_path: Path) -> None:
    body = f"""{FOREIGN}
with record(PLAN, root=root):
    work()
    thread = threading.Thread(target=foreign, args=(torch.profiler.profile(), "start", "stop"))
    thread.start(); thread.join()
    work()
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert f"start: {REFUSED}" in out
    assert_whole(only_session(tmp_path))


SCHEDULED = """
p = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=1))
p.start()
"""


def test_a_foreign_profiler_in_its_warm_up_is_refused_ours_and_goes_on(tmp_path: Path) -> None:
    body = f"""{FOREIGN}{SCHEDULED}
p.step()
try:
    with record(PLAN, root=root): work()
except Dsv4profError as error:
    print(error.message)
p.step(); work(); p.stop()
print(any(event.key == "aten::sum" for event in p.key_averages()))
with record(PLAN, root=root): work()
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert "in the warm-up steps of its schedule" in out
    assert out.rstrip().endswith("True")
    assert_whole(only_session(tmp_path))


def test_a_foreign_schedule_that_would_begin_in_the_block_is_refused(tmp_path: Path) -> None:
    body = f"""{FOREIGN}{SCHEDULED}
with record(PLAN, root=root):
    work()
    foreign(p, "step", "step", "stop")
    work()
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert f"step: {REFUSED}" in out
    assert_whole(only_session(tmp_path))


def test_a_recording_that_somebody_else_ended_is_reported_and_not_exported(tmp_path: Path) -> None:
    body = """
try:
    with record(PLAN, root=root) as recorder:
        work()
        torch.autograd._disable_profiler()
        work()
except Dsv4profError as error:
    print(error.message)
root = root / "second"
with record(PLAN, root=root): work()
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert "somebody else ended the recording" in out
    (first,) = [path for path in tmp_path.iterdir() if path.name != "second"]
    assert record_of(first)["outcome"] == "failed"
    assert [window["trace"] for window in record_of(first)["windows"]] == [None]
    assert_whole(only_session(tmp_path / "second"))


PREPARED = """
import gc
from dsv4prof.recorder.backends import prepared
def scheduled(**options):
    p = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1), **options)
    p.start()
    return p
def attempt(name):
    try:
        with record(PLAN, root=root / name): work()
    except Dsv4profError as error:
        print(name, "in the warm-up steps" in error.message)
    else:
        print(name, "recorded")
def finish(p):
    p.step(); work(); p.stop()
"""


def test_foreign_profilers_are_known_whenever_they_were_prepared(tmp_path: Path) -> None:
    """Before our first look and after it; also in a frozen heap, which no search sees; also those that go on and on."""
    body = f"""{FOREIGN}{PREPARED}
p = scheduled(); attempt("before"); finish(p); attempt("over")
p = scheduled(); attempt("after"); finish(p)
p = scheduled(); gc.freeze(); attempt("frozen"); gc.unfreeze(); finish(p)
p = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1), acc_events=True)
p.start(); p.step(); work(); p.step(); attempt("second round"); finish(p)
p = scheduled(); del p; gc.collect(); attempt("dropped")
original = torch.autograd.profiler.profile._prepare_trace.__wrapped__
torch.autograd.profiler.profile._prepare_trace = original
p = scheduled(); attempt("unwatched"); finish(p)
p = scheduled(); attempt("watched again"); finish(p); attempt("end")
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    found = dict(line.rsplit(" ", 1) for line in out.splitlines())
    free = {name for name, answer in found.items() if answer == "recorded"}
    assert free == {"over", "dropped", "end"}
    assert set(found.values()) == {"True", "recorded"}


def test_a_foreign_profiler_that_is_prepared_before_our_window_opens_is_seen_without_a_search(tmp_path: Path) -> None:
    body = f"""{PREPARED}
def search(*kinds): raise AssertionError("the heap was searched between two steps")
r = Recorder(RecordPlan(wait=2, active=1, windows=2), RankSink(create_session(root, name="t", world_size=1),
             RankCoordinates(rank=0)), lambda: KinetoBackend(PLAN))
r.arm()
gc.get_referrers = gc.get_objects = search
for _ in range(4): work(); r.step()
p = scheduled()
r.step()
print(r.failure.message)
finish(p)
r.wait(20)
print([window.trace for window in r.record.windows])
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert "in the warm-up steps of its schedule" in out
    assert out.endswith("['rank0.1.trace.json.gz', None]\n"), "what was recorded before stays"


STRESS = """
import faulthandler, gc, json, weakref
faulthandler.enable()
import dsv4prof.recorder.backends.forked_export as forked
if os.environ["COPIES"] == "yes":
    forked.is_worth_it = lambda export_s: True
from dsv4prof.recorder.backends.compose import make_backend
ROUNDS = int(os.environ["ROUNDS"])
root.mkdir(exist_ok=True)
CPU = [torch.profiler.ProfilerActivity.CPU]
lost = []
def record_one(stack):
    backend = make_backend(RecordPlan(with_stack=stack))
    backend.warm_up(); backend.prepare(); backend.start()
    work(60)
    backend.stop()
    return backend
def finish(backend, number):
    try:
        path = root / f"{number}.json"
        backend.export(path)
        events = json.loads(path.read_bytes())["traceEvents"]
        made = sum(event.get("name") == "aten::ones" for event in events)
        assert made == 60, f"{made} operators"
        path.unlink()
        assert not backend.notes, backend.notes
        alive = [item.label for item in backend.release() if item.alive]
        assert not alive, f"alive: {alive}"
    except BaseException as error:
        lost.append(repr(error))
def foreign(number):
    with torch.profiler.profile(activities=CPU, with_stack=number % 2 == 0) as p:
        work(20)
    if number % 3 == 0:
        p.export_chrome_trace(str(root / "foreign.json"))
    assert sum(event.key == "aten::sum" and event.count == 20 for event in p.key_averages()) == 1
threads = []
for number in range(ROUNDS):
    thread = threading.Thread(target=finish, args=(record_one(number % 2 == 1), number))
    thread.start(); threads.append(thread)
    foreign(number)
    while len(threads) > 3:
        threads.pop(0).join()
for thread in threads: thread.join()
print("lost", lost)
"""


@pytest.mark.parametrize("copies", ["yes", "no"])
@pytest.mark.parametrize("rounds", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_foreign_profilers_run_beside_the_export_and_release_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, copies: str
) -> None:
    """And ours beside those of the one before, whether saved here or in a copy of the process: only while it records
    does a profiler have to be alone.
    """
    monkeypatch.setenv("COPIES", copies)
    monkeypatch.setenv("ROUNDS", str(rounds))
    child = start(tmp_path / "files", STRESS)
    out, err = child.communicate(timeout=280)
    code = child.returncode
    assert code == 0, err
    assert out.rstrip().endswith("lost []")
