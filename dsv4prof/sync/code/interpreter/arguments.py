"""The arguments of a call."""

from __future__ import annotations

import ast

from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.interpreter.dispatch import evaluate
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import MAPPING, SEQUENCE, Value


def arguments(run: Run, node: ast.Call, env: Environment) -> Args:
    """The values of the arguments, each evaluated once."""
    positional: list[Value] = []
    keywords: dict[str, Value] = {}
    loose = hidden = False
    for part in node.args:
        if isinstance(part, ast.Starred):
            value = evaluate(run, part.value, env)
            if value.items is not None and value.kinds & SEQUENCE:
                positional.extend(value.items)
            else:
                loose = True
        else:
            positional.append(evaluate(run, part, env))
    for keyword in node.keywords:
        value = evaluate(run, keyword.value, env)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif value.kinds & MAPPING and value.items is not None and isinstance(value.const, tuple):
            keywords.update(zip(value.const, value.items, strict=True))
        else:
            loose = hidden = True
    return Args(tuple(positional), keywords, loose, hidden)
