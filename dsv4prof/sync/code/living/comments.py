"""Comments that allow a sync: whose they are, what they allow, and on which lines of code they speak.

Read from tokens, because a line that looks like a comment may lie in a string. A comment speaks of the logical line it
stands in (any of its physical lines; of a compound statement that is the header, not the body), or, alone on its line,
of the next logical line. `allow-file` speaks of all lines.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

Kind = Literal["allow", "gpu-sync-ok", "noqa"]

# A file without these holds no remark: looked for in bytes, because there are thousands of files.
_ALWAYS = (b"dsv4prof:", b"gpu-sync-ok", b"gpu_sync_allowed")
_NOQA_MARKS = (b"noqa", b"NOQA", b"NoQA")
# Of a noqa without one of our codes only those beside a finding matter; it is never unused.
_NOQA_OF_OURS = re.compile(rb"noqa\s*:[^\n]*DSV", re.IGNORECASE)
_BLANKET = re.compile(rb"noqa(?!\s*:)", re.IGNORECASE)
_OURS = re.compile(r"dsv4prof:\s*(.*)", re.DOTALL)
_ALLOW = re.compile(r"allow(-file)?\s*\[([^\]]*)\]\s*(.*)", re.DOTALL)
_WHOLE_FILE = (1, 1 << 60)
_PROTECTS = re.compile(r"protects=(\S*)\s*(.*)", re.DOTALL)
_VLLM = re.compile(r"gpu-sync-ok\s*:?\s*(.*)", re.DOTALL)
# The list of a noqa goes on as long as words look like codes; what follows is prose.
_NOQA = re.compile(r"noqa(?:\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*))?(?P<colon>\s*:)?", re.IGNORECASE)
_CODE = re.compile(r"DSV[0-9]{3}")
# Several remarks in one comment: `# dsv4prof: ...`. An issue's number has no blank after its sign.
_NEXT_REMARK = re.compile(r"\s+#+\s+|^#+\s*")
_NO_CODE = frozenset({tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """One remark. `codes` empty: every rule. `fault` says why it allows nothing.

    `line`, `column` and `end_column` (1-based, characters, the end one after) are the comment's place,
    `first`..`last` the lines of code that it speaks of; 0 where no code follows.
    """

    kind: Kind
    codes: tuple[str, ...] = ()
    reason: str = ""
    protects: str = ""
    fault: str = ""
    text: str = ""
    line: int
    column: int
    end_column: int
    first: int = 0
    last: int = 0

    def covers(self, code: str, line: int) -> bool:
        """Whether a finding of `code` whose expression starts on `line` is allowed."""
        if self.fault or not self.first <= line <= self.last:
            return False
        if not self.codes:
            return True
        return any(code == named or (self.kind == "noqa" and code.startswith(named)) for named in self.codes)

    @property
    def can_be_unused(self) -> bool:
        """A blanket noqa and other tools' remarks have purposes of their own."""
        return self.kind != "gpu-sync-ok" and bool(self.codes)


def worth_reading(data: bytes, spans: Iterable[tuple[int, int]] = ()) -> bool:
    """Whether a file's remarks can matter to findings on lines `spans` (first, last), or be unused: cheap."""
    if any(mark in data for mark in _ALWAYS):
        return True
    if not any(mark in data for mark in _NOQA_MARKS):
        return False
    if _NOQA_OF_OURS.search(data):
        return True
    near = list(spans)
    if not near:
        return False
    lines = {data.count(b"\n", 0, match.start()) + 1 for match in _BLANKET.finditer(data)}
    return any(first <= line <= last for line in lines for first, last in near)


def read_allowances(text: str) -> list[Allowance]:
    """Every remark of a file, in order. A file that ends in a broken token gives what stands before it."""
    found: list[Allowance] = []
    for token, alone, first, last in _comments(text.replace("\r\n", "\n").replace("\r", "\n")):
        for remark in _NEXT_REMARK.split(token.string):
            read = _remark(remark.strip(), token.start[0], token.start[1] + 1, token.end[1] + 1)
            if read is None:
                continue
            # A noqa alone on its line means nothing to any tool.
            nowhere = (alone and read.kind == "noqa") or read.last
            found.append(read if nowhere else msgspec.structs.replace(read, first=first, last=last))
    return found


def _comments(text: str) -> Iterator[tuple[tokenize.TokenInfo, bool, int, int]]:
    """Each comment, whether it stands alone before its code, and the first and last line of that code."""
    waiting: list[tuple[tokenize.TokenInfo, bool]] = []
    start = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                waiting.append((token, not start))
            elif token.type == tokenize.NEWLINE:
                yield from ((comment, alone, start, token.end[0]) for comment, alone in waiting)
                waiting, start = [], 0
            elif token.type not in _NO_CODE and not start:
                start = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        # The audit itself says that the file is broken.
        return
    yield from ((comment, alone, 0, 0) for comment, alone in waiting)


def _remark(text: str, line: int, column: int, end_column: int) -> Allowance | None:
    place: dict[str, Any] = {"line": line, "column": column, "end_column": end_column}
    if ours := _OURS.match(text):
        return _allow(ours[1].strip(), text, place)
    if vllm := _VLLM.match(text):
        reason = vllm[1].strip()
        return Allowance(kind="gpu-sync-ok", reason=reason, text=text, **place)
    noqa = _NOQA.match(text)
    if noqa is None:
        return None
    if noqa["codes"] is None:
        # `noqa:` with something that is no code: other tools disagree on it, so it allows nothing.
        return None if noqa["colon"] else Allowance(kind="noqa", text=text, **place)
    codes = tuple(code.upper() for code in re.split(r"[\s,]+", noqa["codes"]) if code.upper().startswith("DSV"))
    return Allowance(kind="noqa", codes=codes, text=text, **place) if codes else None


def _allow(body: str, text: str, place: dict[str, Any]) -> Allowance:
    matched = _ALLOW.match(body)
    if matched is None:
        named = re.search(r"DSV[0-9]{3}", body.upper())
        fault = f"is not understood: write allow[{named[0] if named else 'DSV105'}] and a reason"
        return Allowance(kind="allow", fault=fault, text=text, **place)
    codes = tuple(code.upper() for code in re.split(r"[\s,]+", matched[2].strip()) if code)
    reason, protects, fault = matched[3].strip(), "", ""
    if matched[1]:
        place |= dict(zip(("first", "last"), _WHOLE_FILE, strict=True))
    if protected := _PROTECTS.match(reason):
        protects, reason = protected[1], protected[2].strip()
        fault = "names nothing after protects=" if not protects else ""
        if matched[1]:
            fault = "allows a whole file and cannot say what one sync protects"
    wrong = [code for code in codes if not _CODE.fullmatch(code)]
    if not codes:
        fault = "names no rule: write allow[DSV105] and a reason"
    elif wrong:
        word = next(word for word in re.split(r"[\s,]+", matched[2].strip()) if word.upper() == wrong[0])
        fault = f"names {word!r}, which is no code of a rule, such as DSV105"
    elif not fault and not any(character.isalnum() for character in reason):
        fault = "gives no reason, so it allows nothing"
    return Allowance(kind="allow", codes=codes, reason=reason, protects=protects, fault=fault, text=text, **place)
