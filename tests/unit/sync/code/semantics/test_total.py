"""Nothing that a program may write makes the semantics raise: every operator, over every kind of value."""

from __future__ import annotations

import itertools

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import (
    attribute,
    binary,
    call,
    compare,
    format_value,
    iterate,
    method,
    slice_value,
    store_subscript,
    subscript,
    truth,
    unary,
    unpack,
)
from dsv4prof.sync.code.semantics.builtin import BUILTINS
from dsv4prof.sync.code.semantics.calls import _SPECIAL
from dsv4prof.sync.code.semantics.checks import LINALG
from dsv4prof.sync.code.semantics.factories import FACTORIES
from dsv4prof.sync.code.semantics.from_data import FROM_DATA
from dsv4prof.sync.code.semantics.operations import OPERATIONS
from dsv4prof.sync.code.values import CALLABLE, MAPPING, OBJECT, Value, join, mapping_of, sequence
from sync_values import KNOWN

ODD = [
    *KNOWN.values(),
    join(KNOWN["x"], KNOWN["cpu"]),
    join(KNOWN["x"], KNOWN["n"]),
    join(KNOWN["none"], KNOWN["tensors"]),
    join(KNOWN["list"], KNOWN["any_place"]),
    sequence(()),
    sequence((KNOWN["x"], KNOWN["n"])),
    slice_value(None, KNOWN["t"], None),
    Value(kinds=0),
    Value(kinds=MAPPING),
    mapping_of(KNOWN["x"]),
    Value(kinds=CALLABLE, ref="int"),
    Value(kinds=OBJECT, ref="torch.nn.Linear"),
    Value(kinds=OBJECT),
]
SOME = ODD[::3]


OTHERS = (
    "torch.LongTensor torch.cuda.FloatTensor torch.cuda.Event torch.cuda.graph torch.device torch.distributed.barrier "
    "torch.distributions.Normal torch.optim.SGD torch.ops.aten.add math.prod numpy.asarray numpy.zeros numpy.float32 "
    "numpy.where logging.info pickle.dumps torch.save torch.nn.Linear torch.einsum"
)


def sound(outcome: Outcome | None) -> None:
    assert outcome is None or (isinstance(outcome.value, Value) and all(isinstance(e, Effect) for e in outcome.effects))


def argument_lists() -> list[Args]:
    lists = [Args(), Args(open=True, hidden=True)]
    lists += [Args((one,)) for one in ODD]
    lists += [Args((one, other)) for one, other in itertools.product(SOME, SOME)]
    lists += [Args((one, other, one, other)) for one, other in itertools.pairwise(SOME)]
    keywords = ("dim", "device", "dtype", "output_size", "size", "repeats", "lengths", "lr", "group")
    return lists + [Args((one,), dict.fromkeys(keywords, one)) for one in SOME]


def test_every_function() -> None:
    names = [f"torch.{name}" for name in (*FACTORIES, *FROM_DATA, *OPERATIONS, *_SPECIAL)]
    names += [f"torch.linalg.{name}" for name in LINALG] + [*BUILTINS]
    names += OTHERS.split()
    lists = argument_lists()
    for name in names:
        for args in lists:
            sound(call(name, args))


def test_every_method() -> None:
    names = [
        *OPERATIONS,
        "synchronize",
        "info",
        "step",
        "get",
        "items",
        "pop",
        "index",
        "sort",
        "__call__",
        "load_state_dict",
    ]
    short = argument_lists()[:50:3]
    for receiver, name in itertools.product(ODD, names):
        for args in short:
            sound(method(receiver, name, args))


def test_every_index() -> None:
    for receiver, index in itertools.product(ODD, ODD):
        sound(subscript(receiver, index))
        sound(subscript(receiver, sequence((index, KNOWN["n"]))))
        for value in SOME:
            sound(store_subscript(receiver, index, value))
            sound(store_subscript(receiver, index, value, augmented=True))


def test_every_operator() -> None:
    for left, right in itertools.product(ODD, ODD):
        for op in ("+", "-", "*", "/", "//", "%", "**", "@", "<<", ">>", "&", "|", "^"):
            sound(binary(op, left, right))
        for op in ("==", "<", "in", "not in", "is", "is not"):
            sound(compare(op, left, right))
    for value in ODD:
        for op in ("-", "+", "~", "not"):
            sound(unary(op, value))
        sound(iterate(value))
        sound(unpack(value, 2))
        assert all(isinstance(effect, Effect) for effect in (*truth(value), *format_value(value)))
        for name in ("shape", "device", "dtype", "T", "grad", "values", "index", "type", "anything"):
            found = attribute(value, name)
            assert found is None or isinstance(found, Value)
