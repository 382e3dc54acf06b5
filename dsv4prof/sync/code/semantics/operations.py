"""Operators on tensors, as methods and as functions: one table for both."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.checks import CHECKS, backward
from dsv4prof.sync.code.semantics.copies import as_type, cpu, cuda, to, transfer
from dsv4prof.sync.code.semantics.copy_into import copy_, numpy, pin_memory
from dsv4prof.sync.code.semantics.devices import same_memory
from dsv4prof.sync.code.semantics.dynamic import DYNAMIC
from dsv4prof.sync.code.semantics.factories import like, new_sized
from dsv4prof.sync.code.semantics.from_data import new_tensor
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.reads import item, tolist
from dsv4prof.sync.code.semantics.reductions import REDUCTIONS
from dsv4prof.sync.code.semantics.shapes import SHAPES, Handler, elementwise
from dsv4prof.sync.code.semantics.sizes import number_effects
from dsv4prof.sync.code.semantics.storing import index_put
from dsv4prof.sync.code.values import TENSOR, Value, constant


def _type_as(receiver: Value, args: Args) -> Outcome:
    """`x.type_as(y)`: y's element type and memory."""
    other = args.get(0, "other")
    if other is None or not other.kinds & TENSOR:
        return Outcome(receiver)
    return transfer(receiver, same_memory(other), other.dtype, 1, form=forms.TO_CPU_LIKE)


def _in_place(receiver: Value, args: Args) -> Outcome:
    """`x.add_(y)`: the tensor itself, with other numbers."""
    return Outcome(replace(receiver, kinds=TENSOR, same="", total=""))


def _storage(receiver: Value, args: Args) -> Outcome:
    """The memory of a tensor, which is copied as a tensor is."""
    return Outcome(replace(receiver, kinds=TENSOR))


def _nothing(receiver: Value, args: Args) -> Outcome:
    return Outcome(constant(None))


OPERATIONS: dict[str, Handler] = {
    **SHAPES,
    **REDUCTIONS,
    **DYNAMIC,
    **CHECKS,
    "item": item,
    "__index__": item,
    "__int__": item,
    "__float__": item,
    "tolist": tolist,
    "to": to,
    "cpu": cpu,
    **dict.fromkeys(listed("cuda hip npu xpu musa"), cuda),
    "type": as_type,
    "backward": backward,
    "untyped_storage": _storage,
    "storage": _storage,
    "type_as": _type_as,
    "numpy": numpy,
    "copy_": copy_,
    "pin_memory": pin_memory,
    "index_put_": index_put,
    "index_put": index_put,
    "new_tensor": new_tensor,
    **dict.fromkeys(listed("new_zeros new_ones new_empty new_full new_empty_strided"), new_sized),
    **dict.fromkeys(
        listed("zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_like"), like
    ),
    **dict.fromkeys(listed("record_stream register_hook retain_grad set_ __setstate__"), _nothing),
}

# Methods that NumPy's arrays have as well: they show that a receiver is a tensor or an array.
SHARED = listed(
    "item tolist sum max min mean std var any all argmax argmin argsort cumsum cumprod prod reshape transpose flatten "
    "ravel squeeze nonzero take clip dot swapaxes diagonal searchsorted trace round conj astype fill"
)
# Methods that other objects have too, and that show nothing: containers, strings, modules, processes, data frames.
ANYBODYS = listed(
    "add update pop index count sort split copy remove get items keys values format join replace extend append "
    "insert find apply map select size dim type view where unique mode equal set_ roll clone numel view_as chunk "
    "to float half double bfloat16 int bool long sub mul div abs log exp pow tile diff rename dist norm mod "
    "repeat expand sign sin cos flip t T eq ne lt le gt ge __call__ __len__ __hash__ storage backward fill "
    "register_hook normal cross select_ round get_device square bincount byte char short pad inverse stack cat "
    "interpolate dropout one_hot softmax requires_grad_ share_memory_ hip npu xpu to_dense values_ permute std"
)


def operate(name: str, receiver: Value, args: Args) -> Outcome | None:
    """The operator `name` of a tensor, with the arguments behind it."""
    handler = OPERATIONS.get(name)
    if handler is None:
        handler = _in_place if name.endswith("_") and not name.startswith("_") else elementwise
    outcome = handler(receiver, args)
    if outcome is None:
        return None
    numbers = number_effects(name, args) if args.positional or args.keywords else ()
    if numbers:
        outcome = Outcome(outcome.value, outcome.effects + numbers)
    return outcome
