"""Finds the nodes that findings speak of, and puts their rewrites in their place."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst
from libcst.metadata import PositionProvider

from dsv4prof.sync.code.files import decode
from dsv4prof.sync.code.fixes import rewrites
from dsv4prof.sync.code.found import Found

_Place = tuple[int, int]

# A builtin as anything but the function that is called: somebody may have given its name to something else.
_ITSELF = {name: re.compile(rb"\b%b\b(?!\s*\()|\bdef\s+%b\b" % (name, name)) for name in (b"len", b"sum")}


class Mender(cst.CSTTransformer):
    """Rewrites every call or assignment at which a finding starts; nodes are left bottom-up, so nested ones compose."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, found: Sequence[Found], content: bytes) -> None:
        super().__init__()
        self.edits: list[tuple[Found, str, str, _Place, _Place]] = []
        # ast counts the bytes of UTF-8, whatever the file is written in.
        lines = decode(content).encode("utf-8", "surrogatepass").splitlines()
        self._builtin = {name.decode(): itself.search(content) is None for name, itself in _ITSELF.items()}
        self._at: dict[_Place, list[Found]] = {}
        for item in found:
            self._at.setdefault((item.line, _characters(lines, item.line, item.column)), []).append(item)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        for found in self._here(original_node):
            rewritten = None
            if "total" in found.facts and _named(original_node, "repeat_interleave"):
                if self._builtin["sum"] or "sum(" not in found.facts["total"]:
                    rewritten = rewrites.with_total(updated_node, found.facts)
            elif "list" in found.facts:
                rewritten = rewrites.as_full(updated_node, len_is_known=self._builtin["len"])
            if rewritten is not None and self._note(found, original_node, rewritten):
                return rewritten
        return updated_node

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.BaseSmallStatement:
        for found in self._here(original_node):
            if "receiver" in found.facts:
                rewritten = rewrites.as_fill(updated_node)
                if rewritten is not None and self._note(found, original_node, rewritten):
                    return rewritten
        return updated_node

    def _here(self, node: cst.CSTNode) -> list[Found]:
        span = self.get_metadata(PositionProvider, node)
        found = self._at.get((span.start.line, span.start.column), [])
        # A chain starts where its parts start: only the node that ends there too is meant.
        return [item for item in found if span.end.line >= item.end_line]

    def _note(self, found: Found, before: cst.CSTNode, after: cst.CSTNode) -> bool:
        old, new = rewrites.source_of(before), rewrites.source_of(after)
        if old == new or any(edit[0] is found for edit in self.edits):
            return False
        span = self.get_metadata(PositionProvider, before)
        place = (span.start.line, span.start.column), (span.end.line, span.end.column)
        self.edits.append((found, old, new, *place))
        return True


def _characters(lines: Sequence[bytes], line: int, column: int) -> int:
    """ast counts UTF-8 bytes, libcst characters."""
    if not 0 < line <= len(lines):
        return column
    return len(lines[line - 1][:column].decode("utf-8", "replace"))


def _named(call: cst.Call, name: str) -> bool:
    func = call.func
    return (isinstance(func, cst.Attribute) and func.attr.value == name) or (
        isinstance(func, cst.Name) and func.value == name
    )
