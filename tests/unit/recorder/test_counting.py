"""Events, kernels and operators by thread are counted alike, however a file is cut into chunks."""

from __future__ import annotations

import pytest

from dsv4prof.recorder.counting import EventCounter

KINETO = b"""{ "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "say \\"cat\\": \\"kernel\\"", "pid": 5, "tid": 7,
    "ts": 1.0, "dur": 1.0
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 8, "ts": 2.0, "dur": 1.0
  },
  {
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 3.0, "dur": 1.0
  },
  {
    "ph": "X", "cat": "python_function", "name": "f", "pid": 5, "tid": 7, "ts": 4.0, "dur": 1.0
  },
  {
    "name": "process_name", "ph": "M", "ts": 0.0, "pid": 5, "tid": 0, "args": {"name": "python"}
  }
]}"""
PYTHON = b'{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":5,"tid":7,"ts":1,"dur":1}]}'


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_any_cut_gives_the_same_counts(size: int) -> None:
    counter = EventCounter()
    for at in range(0, len(KINETO), size):
        counter.feed(KINETO[at : at + size])
    counter.finish()
    assert (counter.events, counter.kernels, counter.operators) == (5, 1, {"7": 1, "8": 1})
    assert counter.work == 3


def test_the_python_exporters_form_is_counted_too() -> None:
    counter = EventCounter()
    counter.feed(PYTHON)
    assert counter.finish().operators == {"7": 1}
