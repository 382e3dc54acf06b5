"""What an accidental sync can have protected: host memory that a copy still reads, and writes of other streams.

A sync drains the queue. While it is there, a staging buffer may be freed or overwritten after it, and another stream
may write what the current one still reads; take it away and both become races (sglang #29202, #39116 and #39547).
Nothing in Python's syntax proves that such code is safe, so its presence alone is told.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from dsv4prof.sync.code.changes.project import Project
from dsv4prof.sync.code.changes.tree import Function, Tree, called_name

# How many calls outwards are looked at: what was queued before the function ran.
_OUTWARDS = 3
# And how many inwards: a planner may keep its staging in a helper.
_INWARDS = 2
_PINS = frozenset({"pin_memory", "pin"})
_STREAMS = frozenset({"stream", "Stream", "ExternalStream"})
_BETWEEN_STREAMS = frozenset({"wait_stream", "wait_event", "record_stream"})
_RAW = frozenset({"data_ptr", "cudaMemcpyAsync", "hipMemcpyAsync", "memcpy_async", "memcpy_htod_async"})
_STREAM_OWNERS = ("torch", "cuda", "hip", "npu", "xpu", "stream", "device_module", "accelerator")


class Staging(msgspec.Struct, frozen=True):
    """One line that a sync can have protected."""

    path: str
    line: int
    function: str
    what: str


def staging_around(
    project: Project, tree: Tree, function: Function, others: Iterable[Function] = (), *, far: bool = True
) -> tuple[list[Staging], list[str]]:
    """What stands round a sync of `function`: in it, in its callers of the file and (`far`) of other files, in
    `others`, in what those call in their own files and (`far`) the ones that these import, and where the buffers that
    they use were made. Second, the names of all functions looked at.
    """
    looked: dict[str, Function] = {f"{function.path}:{function.name}": function}
    outwards = [function, *others]
    outer = project.callers if far else tree.callers
    for _ in range(_OUTWARDS):
        outwards = [caller for item in outwards for caller in outer(item) if _key(caller) not in looked]
        looked.update((_key(item), item) for item in outwards)
    looked.update((_key(item), item) for item in others)
    calling = list(looked.values())
    for depth in range(_INWARDS):
        # Further in, every file of a large project is imported by some file.
        inner = project.called_by if far and depth == 0 else _called_here(project)
        calling = [called for item in calling for called in inner(item) if _key(called) not in looked]
        looked.update((_key(item), item) for item in calling)
    found = {(staging.path, staging.line): staging for item in looked.values() for staging in _in(item)}
    buffers = {path: _buffers(project.tree(path)) for path in {item.path for item in looked.values()}}
    for item in looked.values():
        found |= {(staging.path, staging.line): staging for staging in _held_by(item, buffers[item.path])}
    return [found[key] for key in sorted(found)], sorted(item.name for item in looked.values())


def _called_here(project: Project) -> Callable[[Function], list[Function]]:
    return lambda function: project.tree(function.path).called_by(function)


def _key(function: Function) -> str:
    return f"{function.path}:{function.name}"


def _in(function: Function) -> Iterator[Staging]:
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and (what := _what(node)):
            yield Staging(function.path, node.lineno, function.name, what)


class _Buffer(NamedTuple):
    """A name that is bound to staging memory: in the function `maker`, or in the file itself (empty)."""

    maker: str
    name: str
    line: int
    what: str


def _buffers(tree: Tree) -> list[_Buffer]:
    """The attributes and globals of a file that are made of staging memory."""
    if tree.module is None:
        return []
    makers: list[tuple[str, Iterable[ast.AST]]] = [(item.name, ast.walk(item.node)) for item in tree.functions.values()]
    makers.append(("", tree.module.body))
    found = []
    for maker, nodes in makers:
        for node in nodes:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            made = [(call.lineno, what) for call in _calls(node.value) if (what := _what(call))]
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            # A local name of another method is not ours.
            names = [ast.unparse(target) for target in targets if not maker or isinstance(target, ast.Attribute)]
            found += [_Buffer(maker, name, *one) for name in names for one in made[:1]]
    return found


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (item for item in ast.walk(node) if isinstance(item, ast.Call))


def _held_by(function: Function, buffers: list[_Buffer]) -> Iterator[Staging]:
    """Where a buffer was made that the function uses: an attribute of its class, a global of its file."""
    owner = function.name.rpartition(".")[0]
    near = [item for item in buffers if not item.maker or (owner and item.maker.rpartition(".")[0] == owner)]
    if not near:
        return
    used = {
        ast.unparse(node)
        for node in ast.walk(function.node)
        if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    }
    for item in near:
        if item.name in used:
            yield Staging(function.path, item.line, item.maker or "the file", item.what)


def _what(call: ast.Call) -> str:
    name = called_name(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in _PINS or _true(keywords.get("pin_memory")):
        return "pinned staging memory"
    later = keywords.get("non_blocking") or (call.args[1] if name == "copy_" and len(call.args) > 1 else None)
    if _true(later) and name in ("to", "copy_", "cuda"):
        return "a copy that nobody waits for"
    if name in _RAW:
        return "a raw pointer or copy that torch does not know of"
    if name in _STREAMS | _BETWEEN_STREAMS and _of_torch(call.func):
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
        func.attr in _BETWEEN_STREAMS or any(word in last.lower() for word in _STREAM_OWNERS)
    )
