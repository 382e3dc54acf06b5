"""Copies of a C++ object's table of virtual functions, with some functions replaced by Python's.

A torch without CUDA keeps objects that stand for it and refuse everything; a few answers of theirs are enough for
tensors that say `cuda`. Nothing is written into the library's own tables.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_WORD = ctypes.sizeof(ctypes.c_void_p)
# Two words before the functions say which class it is; no table here has more functions than this.
_BEFORE, _FUNCTIONS = 2, 128
# C++ may still hold what was taken out again, so nothing made here is ever given back.
_kept: list[Any] = []


def library(name: str) -> ctypes.CDLL:
    """One of torch's own libraries. Raises OSError."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))


def places(header: str, owner: str) -> dict[str, int]:
    """Where each virtual function of a class lies in its table, from the header that torch ships.

    Empty where the header or the class is not there.
    """
    try:
        text = (Path(torch.__file__).parent / "include" / header).read_text()
    except OSError:
        return {}
    body = re.search(rf"^(?:struct|class) (?:\w+_API )?{owner} \{{$(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    found: dict[str, int] = {}
    place = 0
    for name in re.findall(r"^\s*virtual [^(;]*?(~?\w+)\(", body.group(1) if body else "", re.MULTILINE):
        found[name] = place
        # A destructor has two: one of them frees the object as well.
        place += 2 if name.startswith("~") else 1
    return found


def function_at(instance: int, place: int, kind: Any) -> Any:
    """A virtual function of an object, to be called with the object's address."""
    table = ctypes.cast(instance, ctypes.POINTER(ctypes.c_void_p))[0]
    return ctypes.cast(ctypes.cast(table or 0, ctypes.POINTER(ctypes.c_void_p))[place] or 0, kind)


def table_with(instance: int, replaced: Mapping[int, Any]) -> int:
    """The address of a table as the object's, with ctypes functions in the given places."""
    table = ctypes.cast(instance, ctypes.POINTER(ctypes.c_void_p))[0] or 0
    whole = ctypes.string_at(table - _BEFORE * _WORD, (_BEFORE + _FUNCTIONS) * _WORD)
    own = (ctypes.c_void_p * (_BEFORE + _FUNCTIONS)).from_buffer_copy(whole)
    for place, function in replaced.items():
        own[_BEFORE + place] = ctypes.cast(function, ctypes.c_void_p).value
    _kept.append((own, dict(replaced)))
    return ctypes.addressof(own) + _BEFORE * _WORD


def instance_of(table: int) -> int:
    """The address of a new object without fields that has this table."""
    made = (ctypes.c_void_p * 1)(table)
    _kept.append(made)
    return ctypes.addressof(made)


def machine_code(code: bytes) -> ctypes.c_void_p:
    """The address of a function of these instructions. Raises OSError where memory cannot be made executable."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    _kept.append(page)
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
