"""Two torch profilers in one process: ours survives, theirs is refused, and nobody crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from recorded_child import assert_whole, finish, only_session, record_of, start

FOREIGN = """
def foreign(profiler, *moves):
    for move in moves:
        try:
            getattr(profiler, move)()
        except BaseException as error:
            print(f"{move}: {type(error).__name__} {error}")
"""
REFUSED = "LifetimeError another torch profiler cannot start while dsv4prof records"


@pytest.mark.parametrize("moves", [("start", "stop"), ("start",), ("start", "stop", "start", "stop")])
@pytest.mark.parametrize("kind", ["torch.profiler", "torch.autograd.profiler"])
def test_a_foreign_profiler_in_the_block_is_refused_and_ours_is_saved(
    tmp_path: Path, moves: tuple[str, ...], kind: str
) -> None:
    if kind == "torch.autograd.profiler":
        moves = tuple(f"__{'enter' if move == 'start' else 'exit'}__" for move in moves if move == "start")
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
    code, out, err = finish(start(tmp_path, body))
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
    code, out, err = finish(start(tmp_path, body))
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
    code, out, err = finish(start(tmp_path, body))
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
    code, out, err = finish(start(tmp_path, body))
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
    code, out, err = finish(start(tmp_path, body))
    assert code == 0, err
    assert "somebody else ended the recording" in out
    (first,) = [path for path in tmp_path.iterdir() if path.name != "second"]
    assert record_of(first)["outcome"] == "incomplete"
    assert record_of(first)["trace"] is None
    assert_whole(only_session(tmp_path / "second"))
