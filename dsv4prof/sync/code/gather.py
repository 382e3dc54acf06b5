"""Syntax to facts: one walk over the statements of a module, none over its expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dsv4prof.sync.code import facts, words
from dsv4prof.sync.code.facts import Assignment, Class, Function, Module, Parameter

# Statements that hold blocks in which a definition or an assignment is still one of the scope around.
_BLOCKS: dict[type, tuple[str, ...]] = {
    ast.If: ("orelse", "body"),
    ast.For: ("orelse", "body"),
    ast.AsyncFor: ("orelse", "body"),
    ast.While: ("orelse", "body"),
    ast.With: ("body",),
    ast.AsyncWith: ("body",),
    ast.Try: ("finalbody", "orelse", "handlers", "body"),
    ast.ExceptHandler: ("body",),
    ast.Match: ("cases",),
    ast.match_case: ("body",),
}
if hasattr(ast, "TryStar"):
    _BLOCKS[ast.TryStar] = _BLOCKS[ast.Try]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def gather(path: str, tree: ast.Module, text: str, name: str | None = None, above: tuple[str, ...] = ()) -> Module:
    """The facts of one module. `name` when it does not follow from the path; `above` are the folders over the root."""
    return _Gatherer(path, text, name, above).module(tree)


def dotted(node: ast.AST) -> str:
    """`a.b.c` of names and attributes, "" of anything else."""
    if node.__class__ is ast.Name:
        return node.id
    parts: list[str] = []
    while node.__class__ is ast.Attribute:
        parts.append(node.attr)
        node = node.value
    if not parts or node.__class__ is not ast.Name:
        return ""
    parts.append(node.id)
    parts.reverse()
    return ".".join(parts)


def blocks(body: list[ast.stmt]) -> list[ast.stmt]:
    """Every statement of a scope in order, those within ifs, loops, try and with included; no definition is entered."""
    found: list[ast.stmt] = []
    stack = body[::-1]
    while stack:
        statement = stack.pop()
        found.append(statement)
        inner = _BLOCKS.get(statement.__class__)
        if inner is not None:
            for name in inner:
                stack.extend(getattr(statement, name)[::-1])
    return found


def imported(
    path: str, module: str, node: ast.Import | ast.ImportFrom, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Local and absolute dotted name of everything that an import binds; `*` and the module for a star."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name if alias.asname else top
        return
    base = node.module or ""
    if node.level:
        package = module.split(".") if module else []
        if not path.endswith("__init__.py"):
            package = package[:-1]
        left = len(package) - node.level + 1
        # Beyond the root the names of the folders above continue.
        package = package[:left] if left > 0 or not above else list(above[: len(above) + left])
        base = ".".join([*package, *([base] if base else [])])
    for alias in node.names:
        if alias.name == "*":
            yield "*", base
        else:
            yield alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name


class _Gatherer:
    def __init__(self, path: str, text: str, name: str | None, above: tuple[str, ...]) -> None:
        self.path = path
        self.name = facts.module_name(path) if name is None else name
        self.above = above
        self.lines = text.split("\n")
        self.ascii = text.isascii()
        self.functions: list[Function] = []
        self.classes: list[Class] = []

    def module(self, tree: ast.Module) -> Module:
        imports: dict[str, str] = {}
        stars: list[str] = []
        variables: list[Assignment] = []
        for statement in blocks(tree.body):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for local, name in imported(self.path, self.name, statement, self.above):
                    if local == "*":
                        stars.append(name)
                    else:
                        imports[local] = name
            elif isinstance(statement, _DEFINITIONS):
                self.definition(statement, "")
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                variables.extend(self.named(statement, ""))
        body = [s for s in tree.body if not isinstance(s, (*_DEFINITIONS, ast.Import, ast.ImportFrom))]
        return Module(
            path=self.path,
            name=self.name,
            lines=len(self.lines) - (1 if self.lines and not self.lines[-1] else 0),
            imports=imports,
            stars=tuple(stars),
            variables=tuple(variables),
            functions=tuple(self.functions),
            classes=tuple(self.classes),
            mirrors=words.kept_on_host("\n".join(self.lines)),
            body_tensors=any(words.waits(self.lines[s.lineno - 1 : s.end_lineno]) for s in body),
        )

    def definition(self, node: ast.stmt, owner: str) -> Iterable[Assignment]:
        """Takes the definition in; what a method assigns to its object's attributes."""
        if isinstance(node, ast.ClassDef):
            self.class_(node, owner)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            statements = blocks(node.body)
            function = self.function(node, owner, statements)
            self.functions.append(function)
            return self.attributes(node, statements, function.qualname) if owner else ()
        return ()

    def class_(self, node: ast.ClassDef, outer: str) -> None:
        qualname = f"{outer}.{node.name}" if outer else node.name
        fields: list[Assignment] = []
        attributes: list[Assignment] = []
        for statement in blocks(node.body):
            if isinstance(statement, _DEFINITIONS):
                attributes.extend(self.definition(statement, qualname))
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                fields.extend(self.named(statement, ""))
        self.classes.append(
            Class(
                qualname=qualname,
                line=node.lineno,
                end_line=node.end_lineno or node.lineno,
                bases=tuple(filter(None, (_base(base) for base in node.bases))),
                decorators=tuple(filter(None, (_decorator(d) for d in node.decorator_list))),
                fields=tuple(fields),
                attributes=tuple(attributes),
            )
        )

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, statements: list[ast.stmt]
    ) -> Function:
        end = node.end_lineno or node.lineno
        start = node.lineno
        skip = _docstring_end(node)
        chosen = (
            self.lines[start - 1 : end] if not skip else self.lines[start - 1 : skip[0] - 1] + self.lines[skip[1] : end]
        )
        tensors = words.tensors(chosen)
        generator = any(
            isinstance(s, ast.Expr | ast.Assign) and isinstance(s.value, ast.Yield | ast.YieldFrom) for s in statements
        )
        return Function(
            qualname=f"{owner}.{node.name}" if owner else node.name,
            owner=owner,
            line=start,
            end_line=end,
            parameters=self.parameters(node.args),
            returns=self.source(node.returns) if node.returns else "",
            decorators=tuple(filter(None, (_decorator(d) for d in node.decorator_list))),
            calls=words.calls(chosen, _aliases(statements)),
            tensors=tensors,
            waits=tensors and (node.name != "__init__" or words.waits(chosen)),
            asynchronous=isinstance(node, ast.AsyncFunctionDef),
            generator=generator,
        )

    def parameters(self, args: ast.arguments) -> tuple[Parameter, ...]:
        made: list[Parameter] = []
        positional = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        for arg, default in zip(positional, defaults, strict=True):
            made.append(self.parameter(arg, default, ""))
        if args.vararg:
            made.append(self.parameter(args.vararg, None, "*"))
        for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            made.append(self.parameter(arg, default, "k"))
        if args.kwarg:
            made.append(self.parameter(args.kwarg, None, "**"))
        return tuple(made)

    def parameter(self, arg: ast.arg, default: ast.expr | None, kind: str) -> Parameter:
        shown = "" if default is None else (_literal(default) or "...")
        return Parameter(arg.arg, self.source(arg.annotation) if arg.annotation else "", shown, kind)

    def attributes(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, statements: list[ast.stmt], qualname: str
    ) -> Iterator[Assignment]:
        arguments = [*node.args.posonlyargs, *node.args.args]
        if not arguments:
            return
        receiver = arguments[0].arg
        parameters = {arg.arg for arg in (*arguments, *node.args.kwonlyargs)}
        for statement in statements:
            targets: list[ast.expr]
            if statement.__class__ is ast.Assign:
                targets = statement.targets
            elif statement.__class__ is ast.AnnAssign:
                targets = [statement.target]
            else:
                continue
            for target in targets:
                for part in target.elts if isinstance(target, ast.Tuple | ast.List) else (target,):
                    if isinstance(part, ast.Subscript) and part is target:
                        held = dotted(part.value)
                        if held.count(".") == 1 and held.startswith(receiver + "."):
                            yield Assignment(held[len(receiver) + 1 :], facts.ELEMENT, "", statement.lineno, qualname)
                        continue
                    if not isinstance(part, ast.Attribute) or not isinstance(part.value, ast.Name):
                        continue
                    if part.value.id == receiver:
                        yield self.assignment(part.attr, statement, part is target, parameters, qualname)

    def assignment(
        self, name: str, statement: ast.Assign | ast.AnnAssign, whole: bool, parameters: set[str], function: str
    ) -> Assignment:
        line = statement.lineno
        if isinstance(statement, ast.AnnAssign):
            return Assignment(name, facts.ANNOTATED, self.source(statement.annotation), line, function)
        how, text = _how(statement.value, parameters) if whole else (facts.EXPRESSION, "")
        return Assignment(name, how, text, line, function)

    def named(self, statement: ast.Assign | ast.AnnAssign, function: str) -> Iterator[Assignment]:
        if isinstance(statement, ast.AnnAssign):
            if isinstance(statement.target, ast.Name):
                yield Assignment(
                    statement.target.id,
                    facts.ANNOTATED,
                    self.source(statement.annotation),
                    statement.lineno,
                    "" if statement.value is None else (_literal(statement.value) or "..."),
                )
            return
        for target in statement.targets:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else (target,):
                if isinstance(part, ast.Name):
                    how, text = _how(statement.value, set()) if part is target else (facts.EXPRESSION, "")
                    if how == facts.CALL and not function and not _may_name_a_device(statement.value):
                        how = facts.HOST_CALL
                    if how == facts.EXPRESSION and part is target:
                        text = self.source(statement.value) if statement.value.end_lineno == statement.lineno else ""
                    yield Assignment(part.id, how, text, statement.lineno, function)

    def source(self, node: ast.expr) -> str:
        if self.ascii and node.lineno == node.end_lineno:
            return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset]
        return ast.unparse(node)


def _aliases(statements: list[ast.stmt]) -> dict[str, str]:
    """`run = self.execution`: what a local name stands for, as far as it is bound to one path only."""
    found: dict[str, str] = {}
    for statement in statements:
        if statement.__class__ is ast.Assign and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            if target.__class__ is ast.Name and value.__class__ is ast.Attribute:
                path = dotted(value)
                if path and found.setdefault(target.id, path) != path:
                    found[target.id] = ""
    return found


def _how(value: ast.expr, parameters: set[str]) -> tuple[str, str]:
    literal = _literal(value)
    if literal:
        return facts.CONST, literal
    if isinstance(value, ast.Name) and value.id in parameters:
        return facts.PARAMETER, value.id
    if isinstance(value, ast.Name | ast.Attribute):
        name = dotted(value)
        return (facts.NAME, name) if name else (facts.EXPRESSION, "")
    if isinstance(value, ast.Call):
        name = dotted(value.func)
        return (facts.CALL, name) if name else (facts.EXPRESSION, "")
    return facts.EXPRESSION, ""


def _may_name_a_device(call: ast.expr) -> bool:
    return isinstance(call, ast.Call) and any(keyword.arg in (None, "device") for keyword in call.keywords)


def _literal(node: ast.expr) -> str:
    """None, numbers, booleans as written; a string as '' (nobody needs its text)."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        node = node.operand
    if not isinstance(node, ast.Constant):
        return ""
    return "''" if isinstance(node.value, str | bytes) else repr(node.value)


def _base(node: ast.expr) -> str:
    return dotted(node.value if isinstance(node, ast.Subscript) else node)


def _decorator(node: ast.expr) -> str:
    return dotted(node.func if isinstance(node, ast.Call) else node)


def _docstring_end(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int] | None:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first.lineno, first.end_lineno or first.lineno
    return None
