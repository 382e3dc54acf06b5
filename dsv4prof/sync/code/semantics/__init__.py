"""What torch, NumPy and Python's own operators do with values, and which of them make the host wait.

Pure functions over `values.Value`: no syntax, no names of the program under audit, no torch. An answer None says that
nothing is known of the call; the interpreter then takes ANYTHING.

    call(dotted, args)                       torch.cumsum(x, 0), int(n), np.asarray(x), math.sqrt(s), torch.cuda.Event()
    method(receiver, name, args)             x.item(), event.synchronize(), logger.info("%s", x), net(x) as "__call__"
    attribute(receiver, name)                 x.shape, x.device, x.T
    named(dotted)                             torch.float32, torch.bool, math.pi
    subscript(receiver, index)                x[...] read
    store_subscript(receiver, index, value, augmented)
    slice_value(lower, upper, step)           the index a:b:c (an absent bound is None)
    binary, compare, unary, truth             operators; `truth` is `if x`, `not x`, `x and y`, `assert x`
    iterate, unpack                           for e in x; a, b = x
    format_value(value)                       f"{x}", str(x), "%s" % x
    from_annotation(dotted, name)             the value of a parameter or field `name: torch.Tensor`
    assumed(name), is_host_name(name)         what a name alone suggests
"""

from __future__ import annotations

from dsv4prof.sync.code.semantics.annotations import from_annotation
from dsv4prof.sync.code.semantics.attributes import attribute
from dsv4prof.sync.code.semantics.calls import call, named
from dsv4prof.sync.code.semantics.conventions import Conventions, assumed, is_host_name
from dsv4prof.sync.code.semantics.indexing import subscript
from dsv4prof.sync.code.semantics.indices import slice_value
from dsv4prof.sync.code.semantics.methods import method
from dsv4prof.sync.code.semantics.operators import binary, compare, format_value, iterate, truth, unary, unpack
from dsv4prof.sync.code.semantics.storing import store_subscript

__all__ = [
    "Conventions",
    "assumed",
    "attribute",
    "binary",
    "call",
    "compare",
    "format_value",
    "from_annotation",
    "is_host_name",
    "iterate",
    "method",
    "named",
    "slice_value",
    "store_subscript",
    "subscript",
    "truth",
    "unary",
    "unpack",
]
