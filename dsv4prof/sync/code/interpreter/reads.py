"""Effects with the value that they read: the second read of the same value, unchanged, is waste of its own kind."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dsv4prof.sync.code.effects import Effect
from dsv4prof.sync.code.interpreter.environments import READ, Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import LIKELY

# What brings the numbers of a tensor to the host.
_READS = frozenset(
    [
        "item",
        "tolist",
        "cpu-method",
        "to-cpu",
        "cpu-numpy",
        "numpy-force",
        "scalar-conversion",
        "truth-condition",
        "truth-not",
        "truth-assert",
        "truth-conversion",
        "truth-and-or",
        "index-0dim",
        "slice-bound",
        "range-bound",
    ]
)


def emit(run: Run, node: ast.AST, receiver: ast.AST, effects: Iterable[Effect], env: Environment) -> None:
    """Notes `effects` at `node`, which reads `receiver`."""
    run.emit(node, effects, env)
    if run.sites is None:
        return
    for effect in effects:
        if effect.form in _READS and effect.level >= LIKELY and isinstance(receiver, ast.expr):
            _again(run, node, receiver, env)


def _again(run: Run, node: ast.AST, receiver: ast.expr, env: Environment) -> None:
    names = frozenset(part.id for part in ast.walk(receiver) if isinstance(part, ast.Name))
    if not names or any(isinstance(part, ast.Call) and part.args for part in ast.walk(receiver)):
        return
    key = READ + ast.unparse(receiver)
    here = node.lineno, node.col_offset  # type: ignore[attr-defined]
    first = env.get(key)
    if first is None:
        env[key] = (names, here)
        run.reads = True
    elif first[1] < here and first[1][0] != here[0]:
        reason = f"read on line {first[1][0]} already, and nothing wrote it since"
        run.emit(node, (Effect("value-read-twice", LIKELY, reason),), env)


def forget(env: Environment, names: Iterable[str]) -> None:
    """These names, or what they hold, may have changed: a read of them is news again."""
    changed = set(names)
    for key in [key for key in env if key[0] == READ and not changed.isdisjoint(env[key][0])]:
        del env[key]


def forget_shared(env: Environment, names: Iterable[str]) -> None:
    """A function that nobody knows was given `names`: it may write into them, and into whatever objects hold."""
    changed = set(names)
    for key in [k for k in env if k[0] == READ and ("." in k or not changed.isdisjoint(env[k][0]))]:
        del env[key]
