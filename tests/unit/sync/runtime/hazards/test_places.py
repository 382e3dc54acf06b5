"""Stacks, steps and raw copies: where and what, without a device."""

from __future__ import annotations

import ctypes

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.raw_copies import raw_copies_watched
from dsv4prof.sync.runtime.hazards.replay import Place
from dsv4prof.sync.runtime.hazards.sites import Marks, Sites


def test_a_stack_is_kept_once_and_names_the_line_of_each_call():
    sites = Sites()

    def inner():
        return sites.here()

    def outer():
        return [inner() for _ in range(2)], inner()

    (first, second), third = outer()
    assert first == second != third
    frames = sites.frames()
    lines = [frame.line for frame in frames[third][:2]]
    assert [frame.function.rpartition(".")[2] for frame in frames[third][:2]] == ["inner", "outer"]
    assert lines == [inner.__code__.co_firstlineno + 1, outer.__code__.co_firstlineno + 1]
    assert frames[0] == ()


def test_steps_and_regions_come_back_from_their_numbers():
    marks = Marks()
    numbers = {(step, region): marks.number(step, region) for step in (None, 0, 7, 10**9) for region in ("", "a", "b")}
    assert len(set(numbers.values())) == len(numbers)
    for (step, region), number in numbers.items():
        mark = Marks(marks.regions)[number]
        assert (mark.step, mark.region) == (step, region)
    for each in range(5000):
        marks.number(1, f"region {each}")
    assert marks[marks.number(1, "one too many")].region == "" and len(marks.regions) <= 4096


@pytest.mark.parametrize(
    ("text", "frame", "fits"),
    [
        ("a.py:3", Frame("/x/a.py", 3, "f"), True),
        ("a.py:3", Frame("/x/ba.py", 3, "f"), False),
        ("x/a.py:3", Frame("/y/a.py", 3, "f"), False),
        ("x/a.py:f", Frame("/x/a.py", 9, "C.f"), True),
        ("a.py:C.f", Frame("/x/a.py", 9, "C.f"), True),
        ("a.py:f", Frame("/x/a.py", 9, "ff"), False),
        ("a.py:C", Frame("/x/a.py", 9, "C.f"), True),
        ("a.py:C", Frame("/x/a.py", 9, "CC.f"), False),
        ("a.py::C::f", Frame("/x/a.py", 9, "C.f"), True),
        ("a.py:f.<locals>.g", Frame("/x/a.py", 9, "f.g"), True),
        ("x.a:f", Frame("/y/x/a.py", 9, "f"), True),
        ("x/a:f", Frame("/y/x/a.py", 9, "f"), True),
        ("./a.py:3", Frame("/x/a.py", 3, "f"), True),
        ("/x/a.py:3", Frame("a.py", 3, "f"), True),
        ("/x/a.py:3", Frame("/y/x/a.py", 3, "f"), False),
        ("a.py:3:7", Frame("/x/a.py", 3, "f"), True),
        ("a.py:3-5", Frame("/x/a.py", 5, "f"), True),
        ("a.py:3-5", Frame("/x/a.py", 6, "f"), False),
    ],
)
def test_places_are_files_by_their_ends_with_a_line_or_a_function(text, frame, fits):
    assert Place.parse(text).fits(frame) is fits


@pytest.mark.parametrize("text", ["", "a.py", "a.py:", ":3", "a.py:3x", "a.py:-3"])
def test_anything_else_is_no_place(text):
    with pytest.raises(UsageError):
        Place.parse(text)


class Heard:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        if name == "known_work":
            from contextlib import nullcontext

            return nullcontext
        return lambda *args: self.calls.append((name, *args))


def test_copies_of_a_runtime_opened_by_name_are_told_and_made(monkeypatch):
    class Runtime:
        """Stands for the library: copies at once, as a device would later."""

        def __init__(self, name, *args):
            self.name = name

        def cudaMemcpyAsync(self, target, source, nbytes, kind, stream):
            ctypes.memmove(target, source, nbytes.value)
            return 0

        def cudaMemcpy(self, target, source, nbytes, kind):
            return 1

        def cudaStreamSynchronize(self, stream):
            return 0

        def cudaGetDevice(self):
            return 4

    monkeypatch.setattr(ctypes, "CDLL", Runtime)
    source, target, heard = ctypes.c_int64(7), ctypes.c_int64(0), Heard()
    to, from_ = ctypes.addressof(target), ctypes.addressof(source)
    with raw_copies_watched(heard):
        runtime = ctypes.CDLL("libcudart.so.13")
        boxes = ctypes.c_void_p(to), ctypes.c_void_p(from_), ctypes.c_size_t(8), ctypes.c_int(1), ctypes.c_void_p(96)
        assert runtime.cudaMemcpyAsync(*boxes) == 0 and target.value == 7
        assert runtime.cudaMemcpy(*boxes[:4]) == 1 and runtime.cudaGetDevice() == 4
        runtime["cudaStreamSynchronize"](ctypes.c_void_p(None))
        assert type(ctypes.CDLL("libm.so.6")) is Runtime and isinstance(ctypes.CDLL("libm.so.6"), ctypes.CDLL)
        assert type(ctypes.cdll.LoadLibrary("libcudart.so")) is type(runtime)

        class Derived(ctypes.CDLL):
            pass

        assert isinstance(Derived("libm.so.6"), Derived) and not isinstance(runtime, Derived)
    assert heard.calls == [
        ("is_memory", from_, 8, "pinned"), ("is_memory", to, 8, "device"), ("raw_copy", to, from_, 8, 96),
        ("host_waits_stream", 0),
    ]  # fmt: skip
    assert ctypes.CDLL is Runtime
