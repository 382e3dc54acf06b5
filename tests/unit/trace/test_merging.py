"""The streamed merge: bounded, the same bytes however it is done, narrowed as asked, and nothing lost on the way."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from isal import igzip

from dsv4prof.errors import InputError, OutputError
from dsv4prof.trace.check import check_file
from dsv4prof.trace.clocks import Align
from dsv4prof.trace.identity import Naming
from dsv4prof.trace.merging import Merge, Options
from dsv4prof.trace.narrow import Narrowing, TimeWindow
from dsv4prof.trace.ranks import RankFile
from traces import BASE_NS, document, flow, frame, kernel, launched_rank, note, op, write


def _merge(files: list[Path], target: Path, **options: Any) -> dict[str, Any]:
    naming = options.pop("naming", Naming())
    with Merge(Options(**options)) as merging:
        plan, refused = merging.look([RankFile(str(path), naming=naming) for path in files])
        merging.write(plan, target)
    text = target.read_bytes()
    content = json.loads(gzip.decompress(text) if target.name.endswith(".gz") else text)
    return {**content, "refused": refused}


def _ranks(folder: Path, *ranks: list[dict[str, Any]]) -> list[Path]:
    return [
        write(folder / f"rank{rank}.json.gz", document(events, rank=rank, world=len(ranks)))
        for rank, events in enumerate(ranks)
    ]


def _busy(seed: int, count: int = 3000) -> list[dict[str, Any]]:
    """Nested and crossing slices, arrows with ends that have no start, equal starts in the wrong order."""
    rng = random.Random(seed)
    events: list[dict[str, Any]] = []
    for number in range(count):
        at = rng.randrange(20_000) / 2
        events.append(op(f"op{number % 7}", at, rng.choice([0, 1, 5, 50]), tid=rng.randrange(3)))
        if number % 3 == 0:
            events += [flow("s", number, at), flow("f", number + rng.randrange(2), at + 3, pid=0)]
            events.append(kernel("k", at + 3, rng.choice([1, 40]), number))
    return events


def _slices(content: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    return Counter((e["name"], e["ts"], e["dur"]) for e in content["traceEvents"] if e["ph"] == "X")


def test_processes_and_the_order_of_input_change_no_byte(tmp_path: Path) -> None:
    files = _ranks(tmp_path, _busy(1), _busy(2), _busy(3))
    targets = [tmp_path / name for name in ("one.json.gz", "two.json.gz", "back.json.gz")]
    for target, order, jobs in zip(targets, (files, files, files[::-1]), (1, 2, 1), strict=True):
        _merge(order, target, jobs=jobs)
    assert len({target.read_bytes() for target in targets}) == 1


def test_every_slice_survives_and_nothing_crosses(tmp_path: Path) -> None:
    files = _ranks(tmp_path, _busy(4), _busy(5))
    content = _merge(files, tmp_path / "m.json.gz")
    raw = [json.loads(igzip.decompress(path.read_bytes()))["traceEvents"] for path in files]
    assert sum(_slices(content).values()) == sum(e["ph"] == "X" for events in raw for e in events)
    assert check_file(tmp_path / "m.json.gz").ok
    assert any(row["lane"] > 1 for rank in content["dsv4prof"]["ranks"] for row in rank["rows"])


def test_a_parent_that_stands_behind_its_child_keeps_it(tmp_path: Path) -> None:
    files = _ranks(tmp_path, [op("child", 5, 2), op("other", 20, 1), op("parent", 5, 9)])
    content = _merge(files, tmp_path / "m.json")
    assert check_file(tmp_path / "m.json").slices_out == 3
    assert len({e["tid"] for e in content["traceEvents"] if e["ph"] == "X"}) == 1, "no lane is needed"


def test_the_python_core_writes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4prof.trace.core import core

    files = _ranks(tmp_path, _busy(6), launched_rank())
    found = []
    for choice in ("", "plain"):
        monkeypatch.setenv("DSV4PROF_CORE", choice)
        core.cache_clear()
        _merge(files, tmp_path / f"m{choice}.json.gz")
        found.append((tmp_path / f"m{choice}.json.gz").read_bytes())
    core.cache_clear()
    assert found[0] == found[1]


def test_only_some_ranks_on_the_clock_of_all(tmp_path: Path) -> None:
    files = _ranks(tmp_path, [op("a", 10, 1)], [op("b", 12, 1)], [op("c", 14, 1)])
    content = _merge(files, tmp_path / "m.json", narrowing=Narrowing(ranks=frozenset({1, 2})))
    assert _slices(content) == {("b", 2, 1): 1, ("c", 4, 1): 1}
    with pytest.raises(InputError, match="there is no rank 7 to keep"):
        _merge(files, tmp_path / "n.json", narrowing=Narrowing(ranks=frozenset({7})))


def test_a_window_keeps_whole_slices_and_the_arrows_between_them(tmp_path: Path) -> None:
    events = [op("long", 0, 100), op("early", 1, 2), op("late", 60, 2), kernel("k", 62, 3), kernel("gone", 90, 3)]
    events += [flow("s", 1, 61), flow("f", 1, 62, pid=0, tid=7), flow("s", 2, 2), flow("f", 2, 90, pid=0, tid=7)]
    files = _ranks(tmp_path, events)
    narrowing = Narrowing(window=TimeWindow(50_000, 70_000))
    content = _merge(files, tmp_path / "m.json", narrowing=narrowing)
    assert set(_slices(content)) == {("long", 0, 100), ("late", 60, 2), ("k", 62, 3)}
    assert [e["ph"] for e in content["traceEvents"] if e["ph"] in "sf"] == ["s", "f"]
    assert check_file(tmp_path / "m.json").ok


def test_steps_are_those_of_each_rank(tmp_path: Path) -> None:
    ranks = [
        [note(f"dsv4.step#{n} kind=decode requests=1 rows=1", n * 10 + shift, 9) for n in range(5)]
        + [op(f"in{n}", n * 10 + shift + 1, 2) for n in range(5)]
        for shift in (0, 3)
    ]
    content = _merge(_ranks(tmp_path, *ranks), tmp_path / "m.json", narrowing=Narrowing(steps=(2, 3)))
    assert {e["name"] for e in content["traceEvents"] if e["ph"] == "X" and e["name"].startswith("in")} == {
        "in2",
        "in3",
    }
    assert sum(e["name"] == "in3" for e in content["traceEvents"]) == 2


def test_categories_and_python_stacks_can_be_left_out(tmp_path: Path) -> None:
    files = _ranks(tmp_path, [op("a", 1, 5), frame("f.py(1): g", 0, 9), kernel("k", 2, 1)])
    without = _merge(files, tmp_path / "m.json", narrowing=Narrowing(python=False))
    assert {e["name"] for e in without["traceEvents"] if e["ph"] == "X"} == {"a", "k"}
    only = _merge(files, tmp_path / "n.json", narrowing=Narrowing(categories=frozenset({"kernel"})))
    assert {e["name"] for e in only["traceEvents"] if e["ph"] == "X"} == {"k"}


def test_times_as_in_the_files_when_that_is_asked_for(tmp_path: Path) -> None:
    files = _ranks(tmp_path, [op("a", 10, 1)], [op("b", 4, 1)])
    content = _merge(files, tmp_path / "m.json", align=Align.NONE)
    assert content["baseTimeNanoseconds"] == 4000
    assert _slices(content) == {("a", 6, 1): 1, ("b", 0, 1): 1}


def test_ranks_that_names_tell_only_by_their_groups(tmp_path: Path) -> None:
    names = ["x-TP-0-DP-1.trace.json", "x-TP-1-DP-0.trace.json", "x-TP-0-DP-0.trace.json", "x-TP-1-DP-1.trace.json"]
    files = [write(tmp_path / name, document([op(name, 1, 1)])) for name in names]
    content = _merge(files, tmp_path / "m.json")
    ranks = [(r["rank"], r["coordinates"]["dp"], r["coordinates"]["tp"]) for r in content["dsv4prof"]["ranks"]]
    assert ranks == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]
    labels = {e["args"]["name"] for e in content["traceEvents"] if e.get("name") == "process_name"}
    assert "[rank 2 TP0 DP1] python" in labels


def test_a_rank_where_the_user_says_it_is(tmp_path: Path) -> None:
    files = [write(tmp_path / f"worker-{n}-a.json", document([op("a", 1, 1)])) for n in (4, 2)]
    content = _merge(files, tmp_path / "m.json", naming=Naming.of(r"worker-(\d+)"))
    assert [r["rank"] for r in content["dsv4prof"]["ranks"]] == [2, 4]


def test_ranks_of_groups_that_left_no_file_are_missing(tmp_path: Path) -> None:
    info = {"backend": "nccl", "rank": 0, "world_size": 1, "pg_config": [{"pg_name": "0", "ranks": [0, 1, 3]}]}
    path = write(tmp_path / "rank0.json", {**document([op("a", 1, 1)]), "distributedInfo": info})
    assert _merge([path], tmp_path / "m.json")["dsv4prof"]["missing_ranks"] == [1, 3]


def test_an_unreadable_file_is_refused_and_the_rest_is_merged(tmp_path: Path) -> None:
    (good,) = _ranks(tmp_path, [op("a", 1, 1)])
    bad = write(tmp_path / "rank1.json", b"no trace")
    content = _merge([good, bad], tmp_path / "m.json")
    assert [refusal.path for refusal in content["refused"]] == [str(bad)]
    assert len(content["dsv4prof"]["ranks"]) == 1


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    files = _ranks(tmp_path, [op("a", 1, 1)])
    with pytest.raises(OutputError, match="cannot write"):
        _merge(files, tmp_path / "absent" / "m.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0.json.gz"]


def test_arrows_tie_the_ranks_of_a_collective(tmp_path: Path) -> None:
    files = _ranks(
        tmp_path,
        *(
            [kernel("ncclDevKernel_AllReduce", n * 100 + late, 50 - late, tid=9) for n in range(40)]
            for late in (0, 20, 5)
        ),
    )
    content = _merge(files, tmp_path / "m.json", arrows=True)
    arrows: dict[int, list[tuple[str, int]]] = {}
    for event in content["traceEvents"]:
        if event["ph"] in "stf":
            arrows.setdefault(event["id"], []).append((event["ph"], event["pid"]))
    assert len(arrows) == 40
    assert {tuple(sorted(points)) for points in arrows.values()} == {(("f", 2), ("s", 1), ("t", 3))}
    assert check_file(tmp_path / "m.json").ok


def test_a_window_of_renumbered_ranks_stays_with_its_rank(tmp_path: Path) -> None:
    """Their names repeat ranks: TP 0 of DP 1 is rank 2, though its file says 0."""
    info = {"distributedInfo": {"rank": 0, "world_size": 1}}
    mark = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 500}
    files = []
    for tp in range(2):
        for dp in range(2):
            events = [op(f"TP{tp} DP{dp}", 10, 1), op("late", 900, 1), mark]
            files.append(write(tmp_path / f"x-TP-{tp}-DP-{dp}.json", {**document(events), **info}))
    narrowing = Narrowing(ranks=frozenset({1, 2}), window=TimeWindow(0, 50_000))
    content = _merge(files, tmp_path / "m.json", narrowing=narrowing)
    labels = {e["pid"]: e["args"]["name"] for e in content["traceEvents"] if e.get("name") == "process_name"}
    found = {e["name"]: labels[e["pid"]] for e in content["traceEvents"] if e["ph"] == "X"}
    assert found == {"TP1 DP0": "[rank 1 TP1 DP0] python", "TP0 DP1": "[rank 2 TP0 DP1] python"}
    marks = [rank["markers"][0]["at_ns"] for rank in content["dsv4prof"]["ranks"]]
    assert marks == [BASE_NS + 500_000] * 2


def test_what_a_killed_merge_left_goes_and_what_a_live_one_uses_stays(tmp_path: Path) -> None:
    files = _ranks(tmp_path, [op("a", 1, 1)])
    (tmp_path / ".dsv4prof-merge-dead").mkdir()
    with Merge(scratch=tmp_path) as live:
        plan, _ = live.look([RankFile(str(path)) for path in files])
        with Merge(scratch=tmp_path):
            pass
        live.write(plan, tmp_path / "m.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.json", "rank0.json.gz"]
