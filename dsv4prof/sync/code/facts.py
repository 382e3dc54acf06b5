"""What a module says of itself without being run: small enough that all of a project's fit in memory and in a cache.

Expressions stand as source text; they are read again (`annotations`, `interpreter`) only when somebody asks.
"""

from __future__ import annotations

import msgspec

# How an attribute or a global got its value: what can be told without running the function that assigns it.
CONST = "const"  # `text` is a literal
ANNOTATED = "annotated"  # `text` is an annotation
PARAMETER = "parameter"  # `text` is the parameter's name
CALL = "call"  # `text` is the dotted name called
HOST_CALL = "host call"  # the same of a global, called without `device=` and without `**`
NAME = "name"  # `text` is a dotted name
EXPRESSION = "expression"  # the statement must be run
ELEMENT = "element"  # not the attribute itself: `self.name[...] = ` puts something into what it holds


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """`default` is the source of a literal, "..." of anything else, "" where there is none.

    `kind`: "" by position, "*" and "**" the rest, "k" by keyword alone.
    """

    name: str
    annotation: str = ""
    default: str = ""
    kind: str = ""


class Function(msgspec.Struct, frozen=True, array_like=True):
    """A function or method that stands in a module or class body (not one within another function).

    `owner` is the qualified name of its class. `calls` are the dotted names called in it, nested functions included.
    `tensors`: it may well handle tensors (says its text), `waits`: and do something with them that could wait.
    """

    qualname: str
    owner: str
    line: int
    end_line: int
    parameters: tuple[Parameter, ...] = ()
    returns: str = ""
    decorators: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    tensors: bool = True
    waits: bool = True
    asynchronous: bool = False
    generator: bool = False

    @property
    def name(self) -> str:
        return self.qualname.rpartition(".")[2]


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """`self.name = ...` within `function`, `name: ... = ...` in a class body, or a global."""

    name: str
    how: str
    text: str = ""
    line: int = 0
    function: str = ""


class Class(msgspec.Struct, frozen=True, array_like=True):
    """`fields` stand in the body, `attributes` are assigned to self by methods."""

    qualname: str
    line: int
    end_line: int
    bases: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    fields: tuple[Assignment, ...] = ()
    attributes: tuple[Assignment, ...] = ()


class Module(msgspec.Struct, frozen=True, array_like=True):
    """`path` is relative to the root; `name` is the path with dots. `imports` maps local to absolute dotted names.

    `mirrors` are names that the module declares to be kept on the host.
    """

    path: str
    name: str
    lines: int = 0
    imports: dict[str, str] = {}
    stars: tuple[str, ...] = ()
    variables: tuple[Assignment, ...] = ()
    functions: tuple[Function, ...] = ()
    classes: tuple[Class, ...] = ()
    body_tensors: bool = False
    mirrors: tuple[str, ...] = ()
    problem: str = ""
    problem_line: int = 0


def module_name(path: str) -> str:
    """`layers/attention/__init__.py` is `layers.attention`."""
    name = path.removesuffix(".pyi").removesuffix(".py").replace(":", "_").replace("/", ".")
    return name.removesuffix(".__init__") if name != "__init__" else ""
