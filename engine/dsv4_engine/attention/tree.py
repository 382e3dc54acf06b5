"""All tensors of nested metadata at once: what a captured graph needs to fill its own copy for each replay.

Looked into are dataclasses, mappings, tuples and lists. Every other value is a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch

from dsv4_engine.errors import EngineError

Tree = TypeVar("Tree")

_POISON = 1 << 30
"""No address, length or token, and yet an int32."""


def tensors(tree: object) -> dict[str, torch.Tensor]:
    """Tensors by path, for example `core.page_table`."""
    return {path: leaf for path, leaf in _leaves(tree, "") if isinstance(leaf, torch.Tensor)}


def _leaves(tree: object, path: str) -> Iterator[tuple[str, object]]:
    children = _children(tree)
    if children is None:
        yield path, tree
        return
    for name, value in children:
        yield from _leaves(value, f"{path}.{name}" if path else name)


def _children(tree: object) -> list[tuple[str, object]] | None:
    """Named parts, or None of a leaf."""
    if isinstance(tree, Mapping):
        return [(str(key), value) for key, value in tree.items()]
    if isinstance(tree, tuple | list):
        return [(str(index), value) for index, value in enumerate(tree)]
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(each.name, getattr(tree, each.name)) for each in fields(tree)]
    return None


def clone(tree: Tree) -> Tree:
    """The same with tensors of its own."""
    return _rebuilt(tree)


def _rebuilt(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    if isinstance(tree, Mapping):
        return {key: _rebuilt(value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(_rebuilt(value) for value in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{each.name: _rebuilt(getattr(tree, each.name)) for each in fields(tree)})
    return tree


def copy_(target: Tree, source: Tree) -> None:
    """Overwrite the tensors of `target` with those of `source`; EngineError unless all else of them is alike.

    That includes shapes and dtypes, as a captured object with rows left over from another step would compute them, and
    leaves that are no tensors, as a captured graph has taken their values for good.
    """
    into, out = dict(_leaves(target, "")), dict(_leaves(source, ""))
    if into.keys() != out.keys():
        odd = sorted(into.keys() ^ out.keys())
        raise EngineError(f"only one of two metadata objects has {', '.join(odd)}", hint="capture this shape too")
    for name, leaf in into.items():
        if _kind(leaf) != _kind(out[name]):
            raise EngineError(
                f"metadata {name} is {_kind(out[name])}, and its target {_kind(leaf)}",
                hint="prepare both for the same rows and the same max_seq_len",
            )
    for name, leaf in into.items():
        if isinstance(leaf, torch.Tensor):
            leaf.copy_(out[name])


def _kind(leaf: object) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
    return repr(leaf)


def fill_(tree: object, poison: int = _POISON) -> None:
    """Overwrite integers with `poison`, floating and complex numbers with NaN, and truth values with True."""
    for tensor in tensors(tree).values():
        number = tensor.is_floating_point() or tensor.is_complex()
        tensor.fill_(float("nan") if number else True if tensor.dtype == torch.bool else poison)
