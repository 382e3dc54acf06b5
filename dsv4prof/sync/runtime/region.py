"""Which line called an operator: torch's profiler records only where a function begins, not where in it a call was
made.

A dispatch mode sees every aten call together with Python's own stack, but costs several times the operator itself, so
it is entered for named regions of a step that nobody times.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from dsv4prof.errors import MissingExtraError
from dsv4prof.model.session import CallSite

_PLAIN = (bool, int, float, str, type(None))
_Key = tuple[str, str, str, CodeType | None, int, tuple[tuple[str, str], ...]]


class RegionCalls:
    """Collects the aten calls made inside `with calls.region(name):`, counted by calling line and keywords.

    The mode sees operators that Python dispatches, not what a kernel calls inside: of `repeat_interleave` it shows the
    call, and a trace shows the host reads beneath it. Raises MissingExtraError without torch.
    """

    def __init__(self) -> None:
        try:
            from torch.utils._python_dispatch import TorchDispatchMode
        except ImportError as error:
            raise MissingExtraError("torch", "engine", purpose="the pass over a region") from error
        self._counts: Counter[_Key] = Counter()
        self._open: list[str] = []
        self._mode_type = _watching(TorchDispatchMode, self._note)

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Record every aten call of this thread in the block under `name`; of nested regions the innermost counts."""
        self._open.append(name)
        try:
            # A second mode on the stack would see every call again.
            with self._mode_type() if len(self._open) == 1 else nullcontext():
                yield
        finally:
            self._open.pop()

    def call_sites(self) -> list[CallSite]:
        """What was seen, most calls first, then in order of file and line."""
        sites = [
            CallSite(
                region=region,
                op=op,
                overload=overload,
                file=code.co_filename if code is not None else "",
                line=line,
                function=code.co_name if code is not None else "",
                calls=calls,
                keywords=dict(keywords),
            )
            for (region, op, overload, code, line, keywords), calls in self._counts.items()
        ]
        return sorted(sites, key=lambda site: (site.region, -site.calls, site.file, site.line, site.op))

    def _note(self, func: Any, kwargs: dict[str, Any]) -> None:
        code, line = _caller()
        keywords = tuple(sorted((key, _text(value)) for key, value in kwargs.items() if _is_plain(value)))
        self._counts[(self._open[-1], func._schema.name, func._overloadname, code, line, keywords)] += 1


def _watching(base: Any, note: Callable[[Any, dict[str, Any]], None]) -> Any:
    """A dispatch mode that notes each call and lets it pass; made here, because its base class needs torch."""

    class Watching(base):
        def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
            keywords = kwargs or {}
            note(func, keywords)
            return func(*args, **keywords)

    return Watching


def _caller() -> tuple[CodeType | None, int]:
    """The innermost frame that belongs neither to torch nor to this module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _is_inner(frame.f_code.co_filename):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None, 0


@lru_cache(maxsize=4096)
def _is_inner(file: str) -> bool:
    if file == __file__ or file.startswith("<"):
        return True
    import torch

    return file.startswith(os.path.join(os.path.dirname(torch.__file__), ""))  # noqa: PTH118, PTH120


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN) or type(value).__module__ == "torch"


def _text(value: object) -> str:
    """A keyword as text; of a tensor only what the host knows, because formatting its values would read it back."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"Tensor{tuple(shape)}"
    return str(value)
