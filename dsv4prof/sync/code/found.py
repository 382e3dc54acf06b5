"""What the static detector found, before anybody judges, suppresses or lays it out."""

from __future__ import annotations

import msgspec

from dsv4prof.sync.code.values import Why


class Step(msgspec.Struct, frozen=True):
    """One function on the way from a hot root, outermost first."""

    function: str
    path: str
    line: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that makes, or may make, the host wait.

    `path` is relative to the audited root, with forward slashes. `line`..`end_line` span the expression (of a compound
    statement its header alone), `statement_line`..`statement_end` the whole statement; `column` and `end_column` are
    0-based UTF-8 offsets as in `ast`. `function` is qualified within its module (`Backend.forward.<locals>.inner`),
    "" at module level. `text` is the expression, unparsed on one line. `level` is certain, likely or possible.
    `conditional`: only on some paths through the function. `loop`: how many loops of the function enclose it.
    `hot` is the way from a hot root, empty where none reaches it. `cold`: under a test for debugging, and so never hot.
    `facts` is what an automatic fix needs: proven, never a convention.
    """

    path: str
    line: int
    end_line: int
    column: int
    end_column: int
    statement_line: int
    statement_end: int
    code: str
    form: str
    level: str
    function: str
    text: str
    reason: str
    why: Why | None = None
    times: int = 1
    conditional: bool = False
    loop: int = 0
    hot: tuple[Step, ...] = ()
    facts: dict[str, str] = {}
    cold: bool = False


class HotFunction(msgspec.Struct, frozen=True):
    """A function that a hot root reaches; lines are its first and last."""

    path: str
    function: str
    line: int
    end_line: int


class Problem(msgspec.Struct, frozen=True):
    """A file that could not be audited, or only in part, in one sentence."""

    path: str
    message: str
    line: int = 0


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found under a root, in order of path and line. `paths` are the files that were audited, in
    the form of `Found.path`: those that were asked for, as far as they could be read. `hot` are the functions of them
    that a hot root reaches, where the options ask for them."""

    root: str
    files: int
    lines: int
    functions: int
    found: list[Found]
    problems: list[Problem] = []
    notes: list[str] = []
    paths: list[str] = []
    hot: list[HotFunction] = []
