"""What an accidental sync can have protected: host memory that a copy still reads, and writes of other streams.

A sync drains the queue. While it is there, a staging buffer may be freed or overwritten after it, and another stream
may write what the current one still reads; take it away and both become races (sglang #29202, #39116 and #39547).
Nothing in Python's syntax proves that such code is safe, so its presence alone is told.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec

from dsv4prof.sync.code.changes.tree import Function, Tree, called_name

# How many calls outwards are looked at: what was queued before the function ran.
_OUTWARDS = 3
_PINS = frozenset({"pin_memory", "pin"})
_STREAMS = frozenset({"stream", "Stream", "wait_stream", "ExternalStream"})
_RAW = frozenset({"data_ptr", "cudaMemcpyAsync", "hipMemcpyAsync", "memcpy_async", "memcpy_htod_async"})
_STREAM_OWNERS = ("torch", "cuda", "hip", "npu", "xpu", "stream", "device_module", "accelerator")


class Staging(msgspec.Struct, frozen=True):
    """One line that a sync can have protected."""

    path: str
    line: int
    function: str
    what: str


def staging_around(tree: Tree, function: Function, others: Iterable[Function] = ()) -> tuple[list[Staging], list[str]]:
    """What stands round a sync of `function`: in it, in its callers of the file, in `others` (callers in other
    files), and in what those call directly in this file. Second, the names of all functions looked at.
    """
    looked: dict[str, Function] = {f"{function.path}:{function.name}": function}
    outwards = [function, *others]
    for _ in range(_OUTWARDS):
        outwards = [caller for item in outwards for caller in tree.callers(item) if _key(caller) not in looked]
        looked.update((_key(item), item) for item in outwards)
    looked.update((_key(item), item) for item in others)
    for item in list(looked.values()):
        looked.update((_key(called), called) for called in tree.called_by(item))
    found = {(staging.path, staging.line): staging for item in looked.values() for staging in _in(item)}
    return [found[key] for key in sorted(found)], sorted(item.name for item in looked.values())


def _key(function: Function) -> str:
    return f"{function.path}:{function.name}"


def _in(function: Function) -> Iterator[Staging]:
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and (what := _what(node)):
            yield Staging(function.path, node.lineno, function.name, what)


def _what(call: ast.Call) -> str:
    name = called_name(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in _PINS or _true(keywords.get("pin_memory")):
        return "pinned staging memory"
    if _true(keywords.get("non_blocking")) and name in ("to", "copy_", "cuda"):
        return "a copy that nobody waits for"
    if name in _RAW:
        return "a raw pointer or copy that torch does not know of"
    if name in _STREAMS and _of_torch(call.func):
        return "work on another stream"
    return ""


def _true(node: ast.expr | None) -> bool:
    """A constant False is no; a variable may be True."""
    return node is not None and not (isinstance(node, ast.Constant) and not node.value)


def _of_torch(func: ast.expr) -> bool:
    """`torch.cuda.stream(...)`, `self.stream.wait_stream(...)`: not any method that is called stream."""
    if isinstance(func, ast.Name):
        return func.id in ("Stream", "ExternalStream")
    owner = func.value if isinstance(func, ast.Attribute) else func
    last = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return isinstance(func, ast.Attribute) and (
        func.attr == "wait_stream" or any(word in last.lower() for word in _STREAM_OWNERS)
    )
