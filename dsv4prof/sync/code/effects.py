"""What a call does to the host beside its value, and the arguments that decide it: the words between the interpreter,
which knows names and paths, and the semantics, which know torch."""

from __future__ import annotations

import msgspec

from dsv4prof.sync.code.values import ANYTHING, NO_PARAMS, Value, Why


class Effect(msgspec.Struct, frozen=True):
    """A form of the catalogue that happens, as sure as `level`.

    `times` is how often in one call: a number, or 0 for once an element. `reason` is the inference that decided, in a
    few words; `why` the chain by which the value came to the device; `params` the parameters that the verdict hangs on.
    `mixed`: the value is on the host on other paths. `facts` is what an automatic fix needs: proven, no convention.
    """

    form: str
    level: int
    reason: str
    why: Why | None = None
    times: int = 1
    params: frozenset[str] = NO_PARAMS
    facts: dict[str, str] = {}
    mixed: bool = False


class Args(msgspec.Struct, frozen=True):
    """The arguments of a call. `open` when *args or **kwargs may hold more than is listed, `hidden` when keywords may.

    `torch.full(shape, 0, **kwargs)` with unknown kwargs is both.
    """

    positional: tuple[Value, ...] = ()
    keywords: dict[str, Value] = {}
    open: bool = False
    hidden: bool = False

    def get(self, index: int, name: str = "") -> Value | None:
        """The argument by position (negative: by name alone) or name; None when it was not given."""
        if 0 <= index < len(self.positional):
            return self.positional[index]
        return self.keywords.get(name) if name else None


class Outcome(msgspec.Struct, frozen=True):
    """What an expression gives, and what it does on the way."""

    value: Value = ANYTHING
    effects: tuple[Effect, ...] = ()
