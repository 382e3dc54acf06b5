"""Host copies on their way: where one starts, and what waits for it.

A read of any device tensor waits for all that its stream was given before, so for a copy of the same stream as well. A
copy that was started on another stream (`with torch.cuda.stream(s)`) has arrived only when that one was waited for.
"""

from __future__ import annotations

import ast

from msgspec.structs import replace

from dsv4prof.sync.code.interpreter.dispatch import chain_of, quietly
from dsv4prof.sync.code.interpreter.environments import Environment, settle
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import TENSOR, Value

# A loop that asks an event whether it is done waits as well.
_WAITS = ("synchronize", "wait", "query")
# One stream waits for the other: whoever waits for the first has waited for both.
_CHAINS = frozenset({"wait_stream", "wait_event"})


def called(run: Run, node: ast.Call, value: Value, name: str, env: Environment) -> None:
    """A call of torch, or of something unknown, by its name: it may start a copy, or wait."""
    if name.lower().endswith(_WAITS):
        settle(env)
    elif name in _CHAINS:
        run.aside = False
    elif value.pending:
        run.pending = True
        run.aside = run.aside or run.streams > 0
        if name == "copy_" and isinstance(node.func, ast.Attribute):
            _into(run, node.func.value, env)


def entered(run: Run, ref: str, env: Environment) -> None:
    """A function of the project was called that waits by what it calls itself."""
    if not run.pending:
        return
    function = run.world.project.function(ref)
    if function is not None and any(name.lower().endswith(_WAITS) for name in function.calls):
        settle(env)


def is_stream(node: ast.expr) -> bool:
    """`torch.cuda.stream(...)` as a context."""
    return isinstance(node, ast.Call) and chain_of(node.func).rpartition(".")[2] in ("stream", "StreamContext")


def _into(run: Run, receiver: ast.expr, env: Environment) -> None:
    """`memory[:n].copy_(x, non_blocking=True)`: what is on its way is the memory that the name holds."""
    while not chain_of(receiver):
        if isinstance(receiver, ast.Subscript):
            receiver = receiver.value
        elif isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute):
            receiver = receiver.func.value
        else:
            return
    held = quietly(run, receiver, env)
    if not held.kinds & TENSOR or held.pending:
        return
    chain = chain_of(receiver)
    env[chain] = replace(held, pending=True)
    if "." in chain:
        run.heads.add(chain.partition(".")[0])
