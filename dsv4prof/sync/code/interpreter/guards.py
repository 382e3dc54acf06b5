"""What a test tells about values on either side of it: the reason why most calls that look like waits are none."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from dsv4prof.sync.code import semantics, values
from dsv4prof.sync.code.interpreter import reads
from dsv4prof.sync.code.interpreter.dispatch import chain_of, evaluate, names_in, quietly
from dsv4prof.sync.code.interpreter.environments import COLD, HOST_ONLY, TEST, Environment, joined
from dsv4prof.sync.code.interpreter.narrow import narrowed, on_host, without
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import NONE, NOTHING, ON_DEVICE, UNKNOWN, Value

Sides = tuple[Environment | None, Environment | None]

# Switches by which serving code asks for its platform.
_TELLING = frozenset({ast.Is, ast.IsNot, ast.In, ast.NotIn})
_HOST_SWITCHES = frozenset({"is_cpu", "_is_cpu", "is_cpu_only", "use_cpu", "_use_cpu", "cpu_only"})
_DEVICE_SWITCHES = frozenset({"is_cuda", "_is_cuda", "is_cuda_alike", "_is_cuda_alike", "torch.cuda.is_available"})
_DEVICE_TYPES = frozenset({"cuda", "hip", "gpu", "xpu", "npu", "musa"})


def branch(run: Run, node: ast.expr, env: Environment, context: str = "condition") -> Sides:
    """The environments where the test holds and where it does not; None where that side is never taken.

    The truth of a tensor is asked for here, in `context`: condition, assert, not, and-or. The two sides, and `env`, may
    be one dict: copy before writing.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yes, no = branch(run, node.operand, env, "not")
        return no, yes
    if isinstance(node, ast.BoolOp):
        return _several(run, node, env)
    yes, no = decided(run, node, evaluate(run, node, env), env, context)
    if yes is not None and _debugs(node):
        yes = _with(run, yes, COLD, True)
    return yes, no


def _debugs(node: ast.expr) -> bool:
    """`if os.environ.get("X_DEBUG")`, `if envs.X_DEBUG.get()`, `if self.debug`, `if logger.isEnabledFor(DEBUG)`."""
    known: bool | None = getattr(node, "debugs", None)
    if known is None:
        known = any(
            "debug" in (getattr(part, "attr", None) or getattr(part, "id", None) or _text(part)).lower()
            for part in ast.walk(node)
        )
        node.debugs = known  # type: ignore[attr-defined]
    return known


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def decided(run: Run, node: ast.expr, value: Value, env: Environment, context: str = "and-or") -> Sides:
    """As `branch`, of a test whose value is known already."""
    if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return branch(run, node, env)
    effects = semantics.truth(value, context)
    if effects:
        reads.emit(run, node, node, effects, env)
    return refined(run, node, value, env)


def _several(run: Run, node: ast.BoolOp, env: Environment) -> Sides:
    either = isinstance(node.op, ast.Or)
    current: Environment | None = env
    ends: Environment | None = None
    outer = run.conditions
    for part in node.values:
        if current is None:
            break
        yes, no = branch(run, part, current, "and-or")
        current, left = (no, yes) if either else (yes, no)
        ends = left if ends is None else (ends if left is None else joined(ends, left))
        run.conditions = outer + 1
    run.conditions = outer
    return (ends, current) if either else (current, ends)


def refined(run: Run, node: ast.expr, value: Value, env: Environment) -> Sides:
    """What the outcome of one test without `and`, `or`, `not` tells."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _comparison(run, node, env)
    if isinstance(node, ast.Call):
        return _call(run, node, env)
    if isinstance(node, ast.Constant):
        return (env, None) if node.value else (None, env)
    if isinstance(node, ast.Name | ast.Attribute):
        return _named(run, node, value, env)
    if isinstance(node, ast.NamedExpr):
        return refined(run, node.target, value, env)
    return env, env


def _named(run: Run, node: ast.Name | ast.Attribute, value: Value, env: Environment) -> Sides:
    chain = chain_of(node)
    if not chain:
        return env, env
    held = env.get(TEST + chain)
    if held is not None and all(env.get(key) is seen for key, seen in held[1].items()):
        sites, run.sites = run.sites, None
        once = dict(env)
        del once[TEST + chain]
        try:
            return branch(run, held[0], once)
        finally:
            run.sites = sites
    last = chain.rpartition(".")[2]
    if last == "TYPE_CHECKING":
        return None, env
    if last == "is_cpu" and isinstance(node, ast.Attribute) and value.kinds & ~UNKNOWN:
        return _placed(run, node.value, env, host=True)
    if last == "is_cuda" and isinstance(node, ast.Attribute):
        return _placed(run, node.value, env, host=False)
    switched = _switch(run, chain, env)
    if switched is not None:
        return switched
    if chain in env and value.kinds == NONE and "." not in chain:
        return None, env
    if value.kinds & NONE:
        return _with(run, env, chain, without(run, value, NONE, last)), env
    return env, env


def _switch(run: Run, chain: str, env: Environment) -> Sides | None:
    last = chain.rpartition(".")[2]
    if last in _HOST_SWITCHES:
        return _with(run, env, HOST_ONLY, True), env
    if chain in _DEVICE_SWITCHES or last in _DEVICE_SWITCHES:
        return env, env
    return None


def _call(run: Run, node: ast.Call, env: Environment) -> Sides:
    name = chain_of(node.func)
    last = name.rpartition(".")[2]
    if last == "isinstance" and len(node.args) == 2:
        return _instance(run, node.args[0], node.args[1], env)
    if last == "is_tensor" and node.args:
        return _kinds(run, node.args[0], values.TENSOR, "", env)
    if last == "is_pinned" and isinstance(node.func, ast.Attribute):
        return _placed(run, node.func.value, env, host=True)
    if last == "bool" and len(node.args) == 1:
        return refined(run, node.args[0], quietly(run, node.args[0], env), env)
    return _switch(run, name, env) or (env, env) if name else (env, env)


def _comparison(run: Run, node: ast.Compare, env: Environment) -> Sides:
    left, sign, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(left, ast.NamedExpr):
        left = left.target
    if isinstance(sign, ast.Is | ast.Eq | ast.IsNot | ast.NotEq):
        turned = isinstance(sign, ast.IsNot | ast.NotEq)
        if isinstance(right, ast.Constant) and right.value is None:
            sides = _none(run, left, env)
        elif isinstance(right, ast.Constant) and isinstance(right.value, bool):
            yes, no = refined(run, left, quietly(run, left, env), env)
            sides = (yes, no) if right.value else (no, yes)
        elif isinstance(left, ast.Call) and chain_of(left.func) == "type" and left.args:
            sides = _instance(run, left.args[0], right, env)
            sides = sides[0], env
        else:
            sides = _device(run, left, _device_words(run, right, env), env)
        return (sides[1], sides[0]) if turned else sides
    if isinstance(sign, ast.In | ast.NotIn):
        sides = _device(run, left, _device_words(run, right, env), env)
        return (sides[1], sides[0]) if isinstance(sign, ast.NotIn) else sides
    return env, env


def _none(run: Run, node: ast.expr, env: Environment) -> Sides:
    chain = chain_of(node)
    if not chain:
        return env, env
    value = quietly(run, node, env)
    if value.kinds == NONE and chain in env and "." not in chain:
        return env, None
    if value.kinds == NONE:
        known = run.world.assumed(chain.rpartition(".")[2])
    else:
        known = without(run, value, NONE, chain.rpartition(".")[2])
    nothing = replace(values.constant(None), params=value.params) if value.params else values.constant(None)
    return _with(run, env, chain, nothing), _with(run, env, chain, known)


def _device_words(run: Run, node: ast.expr, env: Environment) -> set[str]:
    """The device types that a string, a display of strings or torch.device(...) speaks of."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    found: set[str] = set()
    for part in parts:
        if isinstance(part, ast.Call) and chain_of(part.func).rpartition(".")[2] == "device" and part.args:
            part = part.args[0]
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            found.add(part.value.partition(":")[0])
        else:
            return set()
    return found


def _device(run: Run, node: ast.expr, words: set[str], env: Environment) -> Sides:
    """`x.device.type == words`, `x.device == words`, `device == words`."""
    if not words or not (words & _DEVICE_TYPES or "cpu" in words):
        return env, env
    if isinstance(node, ast.Attribute) and node.attr == "type":
        node = node.value
    if isinstance(node, ast.Call) and chain_of(node.func) == "str" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Attribute) and node.attr == "device":
        owner = quietly(run, node.value, env)
        if owner.kinds & values.TENSOR or (owner.kinds & UNKNOWN and not owner.kinds & values.OBJECT):
            yes, no = _placed(run, node.value, env, host=words == {"cpu"})
            return (yes, no) if words == {"cpu"} or words <= _DEVICE_TYPES else (env, env)
    chain = chain_of(node).rpartition(".")[2]
    if words == {"cpu"} and ("device" in chain or "platform" in chain):
        return _with(run, env, HOST_ONLY, True), env
    return env, env


def _placed(run: Run, node: ast.expr, env: Environment, *, host: bool) -> Sides:
    """The tensor `node` is on the host (`host`), or on the device, where the test holds."""
    chain = chain_of(node)
    if not chain:
        return env, env
    value = quietly(run, node, env)
    there = _with(run, env, chain, on_host(value, "tested to be on the host"))
    if value.kinds & values.TENSOR and value.places:
        kept = value.places & ON_DEVICE or ON_DEVICE
        away = _with(run, env, chain, replace(value, places=kept))
    else:
        away = env
    return (there, away) if host else (away, there)


def _instance(run: Run, node: ast.expr, classes: ast.expr, env: Environment) -> Sides:
    parts = classes.elts if isinstance(classes, ast.Tuple) else [classes]
    kinds, ref = 0, ""
    for part in parts:
        while isinstance(part, ast.BinOp):
            part = part.right
        made = quietly(run, part, env)
        kind = values.OBJECT
        if ":" not in made.ref:
            told = semantics.from_annotation(made.ref, "") if made.ref else None
            kind = told.kinds if told is not None else values.OBJECT
        else:
            instance = run.world.annotations.instance(made.ref)
            kind = instance.kinds
        if kind == values.OBJECT:
            ref = made.ref
        kinds |= kind
    return _kinds(run, node, kinds, ref, env)


def _kinds(run: Run, node: ast.expr, kinds: int, ref: str, env: Environment) -> Sides:
    chain = chain_of(node)
    if not chain or not kinds:
        return env, env
    value = quietly(run, node, env)
    last = chain.rpartition(".")[2]
    yes = _with(run, env, chain, narrowed(run, value, kinds, ref, last))
    return yes, _with(run, env, chain, without(run, value, kinds & ~values.OBJECT, last))


def remember(run: Run, name: str, node: ast.expr, env: Environment) -> None:
    """`name = node` where node is a test: a later `if name` tells what the test told."""
    if not _tells(node):
        return
    seen = {part: env.get(part) for part in names_in(node)}
    if name not in seen:
        env[TEST + name] = (node, seen)
        run.tests = True


def _tells(node: ast.expr) -> bool:
    """Whether the outcome of a test can tell anything about a value."""
    kind = node.__class__
    if kind is ast.Compare:
        assert isinstance(node, ast.Compare)
        right = node.comparators[0]
        told = isinstance(right, ast.Constant | ast.Tuple | ast.Set | ast.List | ast.Call | ast.Name)
        return told and (node.ops[0].__class__ in _TELLING or isinstance(node.left, ast.Attribute))
    if kind is ast.BoolOp:
        assert isinstance(node, ast.BoolOp)
        return any(_tells(part) or part.__class__ in (ast.Name, ast.Attribute) for part in node.values)
    if kind is ast.UnaryOp:
        assert isinstance(node, ast.UnaryOp)
        return isinstance(node.op, ast.Not) and _tells(node.operand)
    if kind is ast.Call:
        assert isinstance(node, ast.Call)
        return chain_of(node.func).rpartition(".")[2] in ("isinstance", "is_tensor", "bool")
    return isinstance(node, ast.Attribute) and node.attr in ("is_cuda", "is_cpu")


def _with(run: Run, env: Environment, key: str, value: object) -> Environment:
    if env.get(key, NOTHING) is value:
        return env
    if "." in key:
        run.heads.add(key.partition(".")[0])
    changed = dict(env)
    changed[key] = value
    return changed
