"""Calls: whose function it is, what the arguments are, and what comes back."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from dsv4prof.sync.code import semantics, values
from dsv4prof.sync.code.effects import Args, Outcome
from dsv4prof.sync.code.interpreter import narrow, nested, reads, sameness, waits
from dsv4prof.sync.code.interpreter.arguments import arguments
from dsv4prof.sync.code.interpreter.dispatch import Table, chain_of, evaluate
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.expressions import attribute_of
from dsv4prof.sync.code.interpreter.keyed import keyed, of_key
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import (
    ANYTHING,
    CALLABLE,
    HOST_NUMBER,
    LIKELY,
    MAPPING,
    NONE,
    OBJECT,
    ON_DEVICE,
    SEQUENCE,
    UNKNOWN,
    Value,
    Why,
    join,
)

_ADDS = frozenset({"append", "add", "insert", "appendleft"})
_ADDS_ALL = frozenset({"extend", "extendleft", "update"})
_HARMLESS = frozenset(
    [
        "int",
        "float",
        "bool",
        "len",
        "max",
        "min",
        "sum",
        "range",
        "list",
        "tuple",
        "isinstance",
        "print",
        "str",
        "getattr",
        "hasattr",
        "abs",
    ]
)
_READERS = frozenset(
    [
        "item",
        "tolist",
        "cpu",
        "numpy",
        "to",
        "sum",
        "max",
        "min",
        "any",
        "all",
        "size",
        "dim",
        "numel",
        "float",
        "int",
        "long",
        "bool",
        "append",
        "extend",
        "get",
        "view",
        "reshape",
        "flatten",
        "unsqueeze",
        "squeeze",
        "detach",
        "clone",
        "contiguous",
        "mean",
        "cumsum",
    ]
)
_SPREAD = "repeat-interleave-tensor"


def call(run: Run, node: ast.Call, env: Environment) -> Value:
    """The value of a call."""
    value = _call(run, node, env)
    _written(run, node, env)
    return value


def _written(run: Run, node: ast.Call, env: Environment) -> None:
    """What the call may have written into is news when it is read again."""
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr.endswith("_") and not func.attr.endswith("__"):
        run.epoch += 1
        if run.reads:
            reads.forget(env, (part.id for part in ast.walk(func.value) if isinstance(part, ast.Name)))
        _rename(run, func.value, env)
    name = chain_of(func)
    if name.startswith(("torch.", "np.", "F.", "math.")) or name in _HARMLESS:
        return
    if isinstance(func, ast.Attribute) and not name.startswith(("self.", "cls.")) and func.attr in _READERS:
        return
    run.epoch += 1
    for argument in node.args:
        _rename(run, argument, env)
    if not run.reads:
        return
    given = (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    reads.forget_shared(env, given)


def _rename(run: Run, node: ast.expr, env: Environment) -> None:
    """Somebody may have written into a local: the numbers that it held have no name any longer."""
    held = env.get(chain_of(node))
    if held is not None and held.same:
        sameness.forget(held.same, env)


def _call(run: Run, node: ast.Call, env: Environment) -> Value:
    func = node.func
    if isinstance(func, ast.Attribute):
        known = env.get(chain_of(func)) if run.heads else None
        if known is None:
            base = evaluate(run, func.value, env)
            if base.kinds & CALLABLE and base.ref and not base.ref.startswith("local:"):
                target = run.world.member(base.ref, func.attr, run.level)
                return _callable(run, node, target, env)
            return _method(run, node, base, func.attr, env)
        return _callable(run, node, known, env)
    return _callable(run, node, evaluate(run, func, env), env)


def _callable(run: Run, node: ast.Call, target: Value, env: Environment) -> Value:
    ref = target.ref
    if not target.kinds & CALLABLE or not ref:
        args = arguments(run, node, env)
        if target.kinds & OBJECT and ref:
            return _object(run, node, target, "__call__", args, env)
        if target.kinds & values.TENSOR or target.kinds == UNKNOWN:
            return replace(ANYTHING, params=target.params) if target.params else ANYTHING
        return ANYTHING
    if ref.startswith("local:"):
        args = arguments(run, node, env)
        if ref in run.partials:
            return _partial_call(run, node, ref, args, env)
        return nested.call(run, ref, args, env)
    if ":" in ref:
        args = arguments(run, node, env)
        run.calls.setdefault(ref, []).append(args)
        waits.entered(run, ref, env)
        if run.unused is node:
            return ANYTHING
        return run.stamped(run.world.called(ref, args, run.level), node)
    special = _SPECIAL.get(ref)
    if special is not None:
        return special(run, node, env)
    if ref == "torch.tensor" and node.args:
        narrow.listed(node.args[0], env)
    args = arguments(run, node, env)
    outcome = semantics.call(ref, args)
    if outcome is None:
        return _unknown(ref, args)
    if ref == "torch.repeat_interleave":
        outcome = _totalled(outcome, args.get(1, "repeats") or args.get(0, "input"), env)
    return _outcome(run, node, node.args[0] if node.args else node, outcome, ref, env)


def _outcome(run: Run, node: ast.Call, receiver: ast.expr, outcome: Outcome, name: str, env: Environment) -> Value:
    if outcome.effects:
        reads.emit(run, node, receiver, outcome.effects, env)
    waits.called(run, node, outcome.value, name, env)
    return run.stamped(outcome.value, node)


def _totalled(outcome: Outcome, counts: Value | None, env: Environment) -> Outcome:
    """With the host expression that is the exact sum of the repeats, where one is proven: what a fix needs."""
    total = sameness.exact_total(env, counts) if counts is not None else ""
    if not total:
        return outcome
    effects = tuple(
        replace(effect, facts={**effect.facts, "total": total}) if effect.form == _SPREAD else effect
        for effect in outcome.effects
    )
    return replace(outcome, effects=effects)


def _unknown(ref: str, args: Args) -> Value:
    """A call of a library nobody knows: fed tensors of the device, an operator gives one, as a rule."""
    fed = [value for value in (*args.positional, *args.keywords.values()) if value.may_be_on_device]
    if not fed:
        return ANYTHING
    if ref.startswith("torch.ops."):
        return values.tensor(ON_DEVICE, LIKELY, Why(f"{ref.removeprefix('torch.ops.')} was given device tensors"))
    return replace(ANYTHING, params=frozenset().union(*(value.params for value in fed)))


def _method(run: Run, node: ast.Call, base: Value, name: str, env: Environment) -> Value:
    args = arguments(run, node, env)
    if base.kinds & OBJECT and base.ref:
        return _object(run, node, base, name, args, env)
    if name == "get" and args.positional:
        held = of_key(base, args.positional[0])
        if held is not None:
            return held
    if base.kinds & SEQUENCE and (name in _ADDS or name in _ADDS_ALL):
        assert isinstance(node.func, ast.Attribute)
        _added(node.func.value, base, args, env, whole=name in _ADDS_ALL)
    if base.kinds & ~(UNKNOWN | NONE) or base.kinds & UNKNOWN:
        outcome = semantics.method(base, name, args)
        if outcome is not None and not (outcome.value is ANYTHING and not outcome.effects):
            assert isinstance(node.func, ast.Attribute)
            if name == "repeat_interleave":
                outcome = _totalled(outcome, args.get(0, "repeats"), env)
            return _outcome(run, node, node.func.value, outcome, name, env)
    waits.called(run, node, ANYTHING, name, env)
    if base.kinds & UNKNOWN and run.unused is not node:
        value = run.world.unknown_method(name, run.level)
        return replace(value, params=value.params | base.params) if base.params else value
    return ANYTHING


def _object(run: Run, node: ast.Call, base: Value, name: str, args: Args, env: Environment) -> Value:
    """A method of an object whose class is known, or the call of one."""
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    if ":" in base.ref:
        found = run.world.method(base.ref, name)
        if found:
            run.calls.setdefault(found, []).append(args)
            waits.entered(run, found, env)
            if run.unused is node:
                return ANYTHING
            return run.stamped(run.world.returns(found, run.level, args), node)
        if name != "__call__":
            held = attribute_of(run, base, name)
            if held.kinds & (CALLABLE | OBJECT) and held.ref:
                return _held(run, node, held, args, env)
        outcome = semantics.method(ANYTHING, name, args)
        if outcome is not None and outcome.effects:
            return ANYTHING
        return ANYTHING
    outcome = semantics.method(base, name, args)
    if outcome is None:
        return ANYTHING
    return _outcome(run, node, receiver, outcome, name, env)


def _held(run: Run, node: ast.Call, held: Value, args: Args, env: Environment) -> Value:
    """A call of what an attribute holds: a module, a function that was put there."""
    if held.kinds & OBJECT:
        if ":" in held.ref:
            found = run.world.method(held.ref, "__call__") if run.unused is not node else ""
            return run.world.returns(found, run.level, args) if found else ANYTHING
        outcome = semantics.method(held, "__call__", args)
        return _outcome(run, node, node.func, outcome, "", env) if outcome is not None else ANYTHING
    if held.ref.startswith("local:"):
        return nested.call(run, held.ref, args, env)
    if ":" in held.ref:
        return run.stamped(run.world.called(held.ref, args, run.level), node)
    outcome = semantics.call(held.ref, args)
    return _outcome(run, node, node, outcome, held.ref, env) if outcome is not None else _unknown(held.ref, args)


def _added(receiver: ast.expr, base: Value, args: Args, env: Environment, *, whole: bool) -> None:
    chain = chain_of(receiver)
    if not chain or not args.positional:
        return
    if base.same:
        sameness.forget(base.same, env)
    new = args.positional[-1]
    if whole:
        if new.items == ():
            return
        # What is a tensor by its name alone, and extends a list, is a list.
        new = ANYTHING if new.kinds & UNKNOWN else semantics.iterate(new).value
    held = base.element
    env[chain] = replace(
        values.sequence_of(new if held is None else join(held, new), "list"), params=base.params | new.params
    )


def _getattr(run: Run, node: ast.Call, env: Environment) -> Value:
    args = arguments(run, node, env)
    name = args.positional[1].const if len(args.positional) > 1 else None
    if not isinstance(name, str):
        return ANYTHING
    chain = chain_of(node.args[0])
    known = env.get(f"{chain}.{name}") if chain else None
    value = known if known is not None else attribute_of(run, args.positional[0], name)
    if len(args.positional) < 3:
        return value
    default = args.positional[2]
    if value.kinds == UNKNOWN:
        value = run.world.assumed(name)
    return join(value, default)


def _setattr(run: Run, node: ast.Call, env: Environment) -> Value:
    args = arguments(run, node, env)
    name = args.positional[1].const if len(args.positional) > 2 else None
    chain = chain_of(node.args[0]) if node.args else ""
    if isinstance(name, str) and chain:
        env[f"{chain}.{name}"] = args.positional[2]
        run.heads.add(chain.partition(".")[0])
    return values.constant(None)


def _super(run: Run, node: ast.Call, env: Environment) -> Value:
    for base in run.world.project.ancestry(run.owner)[1:] if run.owner else ():
        return Value(kinds=OBJECT, ref=base, strength=LIKELY)
    return ANYTHING


def _cast(run: Run, node: ast.Call, env: Environment) -> Value:
    args = arguments(run, node, env)
    value = args.positional[-1] if args.positional else ANYTHING
    if value.kinds == UNKNOWN and node.args:
        return run.world.annotations.value(ast.unparse(node.args[0]), run.module, "")
    return value


def _dict(run: Run, node: ast.Call, env: Environment) -> Value:
    args = arguments(run, node, env)
    if args.positional or args.open:
        return Value(kinds=MAPPING)
    return keyed(args.keywords)


def _first(run: Run, node: ast.Call, env: Environment) -> Value:
    args = arguments(run, node, env)
    return args.positional[0] if args.positional else ANYTHING


def _partial(run: Run, node: ast.Call, env: Environment) -> Value:
    args = arguments(run, node, env)
    if not args.positional:
        return ANYTHING
    ref = f"local:partial:{node.lineno}:{node.col_offset}"
    run.partials[ref] = args.positional[0], replace(args, positional=args.positional[1:])
    return Value(kinds=CALLABLE, ref=ref)


def _partial_call(run: Run, node: ast.Call, ref: str, args: Args, env: Environment) -> Value:
    target, first = run.partials[ref]
    whole = Args(
        (*first.positional, *args.positional),
        {**first.keywords, **args.keywords},
        first.open or args.open,
        first.hidden or args.hidden,
    )
    return _held(run, node, target, whole, env)


def _asked(run: Run, node: ast.Call, env: Environment) -> Value:
    arguments(run, node, env)
    return HOST_NUMBER


_SPECIAL = {
    "getattr": _getattr,
    "setattr": _setattr,
    "super": _super,
    "dict": _dict,
    "isinstance": _asked,
    "issubclass": _asked,
    "hasattr": _asked,
    "callable": _asked,
    "id": _asked,
    "typing.cast": _cast,
    "dataclasses.replace": _first,
    "msgspec.structs.replace": _first,
    "functools.partial": _partial,
    "contextlib.nullcontext": _asked,
}
TABLE: Table = {ast.Call: call}
