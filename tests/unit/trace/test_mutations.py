"""A trace with one odd value in it is read without it or refused in a sentence, and never ends in another error."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv4prof.analysis.graphs import analyze_graphs
from dsv4prof.analysis.mtp import analyze_mtp
from dsv4prof.analysis.phases import analyze_phases
from dsv4prof.analysis.quality import analyze_quality
from dsv4prof.errors import InputError
from dsv4prof.sync.trace import host_reads
from dsv4prof.trace.check import check_file
from dsv4prof.trace.index import TraceIndex
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.losses import losses
from dsv4prof.trace.merge import load_readable, merge
from traces import (
    BASE_NS,
    Event,
    call,
    document,
    flow,
    frame,
    kernel,
    launched_rank,
    merge_again,
    note,
    op,
    write,
    write_chrome_json,
    x,
)

_DIGITS = "7" * 5000
_ODD = [
    "null", "true", "0", "1", "-1", "1.0", "1.5", "[]", "{}", '""', '"a"', '".(3): f"', '["a"]', '{"a": 1}',
    "1e400", "1e9999999", '"1e9999999"', "1e-9999999", "NaN", "-Infinity", '"nan"', "1" + "0" * 20, "-1" + "0" * 30,
    _DIGITS, f'"{_DIGITS}"', "[" * 2000 + "]" * 2000, "[" * 150 + "]" * 150, '{"a":' * 2000 + "1" + "}" * 2000,
    f'"dsv4.step#{_DIGITS} kind=decode requests={_DIGITS}"', f'"dsv4.accepted requests={_DIGITS} tokens=1"',
    f'"ProfilerStep#{_DIGITS}"', f'"step[DECODE bs={_DIGITS}]"', f'"a.py({_DIGITS}): f"', '"(1): f"',
    f'"execute_context_{_DIGITS}(1)_generation_{_DIGITS}(4)"', f'"rank{_DIGITS}"', '"\\ud83d"', '"\\udead\\ud83d"',
]  # fmt: skip
_HOLE = "a hole for an odd value"


def _events() -> list[Event]:
    return [
        *launched_rank(1000, 100),
        note("dsv4.step#0 kind=decode requests=2 rows=8", 90, 400, pid=1000, tid=1000),
        note("dsv4.phase target_verify requests=2 graph=eager", 95, 300, pid=1000, tid=1000),
        note("dsv4.accepted requests=2 tokens=3", 390, 0, pid=1000, tid=1000),
        note("dsv4.span build", 120, 200, pid=1000, tid=1000),
        note("ProfilerStep#3", 600, 100, pid=1000, tid=1000),
        note("step[DECODE bs=15]", 710, 50, pid=1000, tid=1000),
        note("execute_context_0(0)_generation_4(4)", 770, 20, pid=1000, tid=1000),
        frame("engine/metadata.py(70): build", 121, 190, pid=1000, tid=1000),
        op("aten::item", 130, 60, pid=1000, tid=1000, **{"External id": 4, "Concrete Inputs": ["", "[1, 2]"]}),
        call("hipMemcpyWithStream", 135, 50, 2, pid=1000, tid=1000),
        x("cuStreamSynchronize", "cuda_driver", 140, 40, pid=1000, tid=1000, correlation="3"),
        kernel("Memcpy DtoH (Device -> Host)", 140, 40, 2, cat="gpu_memcpy"),
        kernel("Memset", 185, 1, 5, cat="gpu_memset"),
        kernel("overlapping", 120, 40, 6),
        kernel("build", 120, 60, 0, cat="gpu_user_annotation"),
        flow("s", 6, 131, pid=1000, tid=1000),
        flow("f", 6, 120, pid=0, tid=7),
        {"ph": "i", "s": "t", "cat": "memory", "name": "[memory]", "pid": 1000, "tid": 1000, "ts": 131, "args": {}},
        {"ph": "C", "name": "power", "pid": 0, "tid": 0, "ts": 140, "args": {"W": 300, "limit": 500.5}},
        {"ph": "b", "id": "0x1", "cat": "request", "name": "r", "pid": 1000, "tid": 1000, "ts": 100},
        {"ph": "e", "id": "0x1", "cat": "request", "name": "r", "pid": 1000, "tid": 1000, "ts": 200},
        {"ph": "B", "name": "pair", "cat": "cpu_op", "pid": 1000, "tid": 8, "ts": 100, "args": {"a": 1}},
        {"ph": "E", "name": "pair", "cat": "cpu_op", "pid": 1000, "tid": 8, "ts": 200},
    ]


def _document() -> dict[str, Any]:
    return document(
        _events(),
        rank=0,
        world=2,
        host_name="node",
        deviceProperties=[{"id": 0, "name": "MI300X"}],
        displayTimeUnit="ms",
        traceName="/tmp/trace.json",
    )


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value in a document."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def _mutants(count: int) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(29202)
    size = sum(1 for _ in _places(_document()))
    for _ in range(count):
        content = _document()
        container, key = list(_places(content))[chance.randrange(size)]
        odd = chance.choice(_ODD)
        container[key] = _HOLE
        text = json.dumps(content, indent=chance.choice([None, 1]))
        yield f"{key} = {odd[:60]}", text.replace(f'"{_HOLE}"', odd).encode()


def _everything(path: Path, folder: Path) -> None:
    other = write(folder / "rank1.json", document(launched_rank(), rank=1, world=2))
    traces, errors = load_readable([path, other])
    assert len(traces) + len(errors) == 2
    trace = merge(traces)
    first = write_chrome_json(trace, folder / "first.json")
    assert check_file(first).ok
    second = merge_again(first, folder / "second.json")
    assert first.read_bytes() == second.read_bytes()
    index = TraceIndex(trace)
    host_reads(index)
    for analyze in (analyze_phases, analyze_mtp, analyze_graphs, analyze_quality):
        analyze(index)


def test_the_trace_without_a_mutation_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", _document())
    trace = load_rank(path)
    assert losses(trace) == []
    assert (len(trace.slices), len(trace.counters), len(trace.asyncs), len(trace.flows)) == (19, 1, 2, 4)
    assert trace.base_ns == BASE_NS
    _everything(path, tmp_path)


def test_one_odd_value_never_ends_in_an_internal_error(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    for what, text in _mutants(200):
        path.write_bytes(text)
        try:
            _everything(path, tmp_path)
        except InputError:
            continue
        except BaseException as error:
            raise AssertionError(what) from error


@pytest.mark.parametrize("odd", ["null", "[]", "true", "0", '"a"'])
def test_arguments_that_are_no_object_cost_no_event(tmp_path: Path, odd: str) -> None:
    text = json.dumps(document([call("hipLaunchKernel", 1, 2, 5), kernel("k", 3, 1, 5)]))
    trace = load_rank(write(tmp_path / "rank0.json", text.replace('{"correlation": 5}', odd, 1).encode()))
    assert [event.args is None for event in trace.slices] == [True, False]
    assert bool(losses(trace)) is (odd != "null")
