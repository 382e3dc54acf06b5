"""Python's builtins over values."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.indexing import contents
from dsv4prof.sync.code.semantics.indices import slice_value
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.mathematics import MATHEMATICS, Handler
from dsv4prof.sync.code.semantics.reads import by_name_alone, converted, format_value, reading, truth, truth_of_elements
from dsv4prof.sync.code.semantics.tell import HOST_RESULT, derived, device_within, effect, on_device
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    CALLABLE,
    CERTAIN,
    HOST,
    HOST_NUMBER,
    MAPPING,
    NONE,
    NOTHING,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    bounded,
    constant,
    join_all,
    mapping_of,
    sequence,
    sequence_of,
)


def _convert(what: str, dtype: str) -> Handler:
    def convert(args: Args) -> Outcome | None:
        if not args.positional:
            return HOST_RESULT
        outcome = converted(args.positional[0], forms.SCALAR_CONVERSION, what)
        value = outcome.value
        const = value.const
        if const is not NOTHING and dtype == "int" and type(const) in (bool, float):
            value = replace(value, const=int(const) if abs(const) < 1e18 else NOTHING)
        elif type(const) is str or dtype == "float":
            value = replace(value, const=NOTHING)
        return Outcome(replace(value, dtype=dtype), outcome.effects)

    return convert


def _bool(args: Args) -> Outcome:
    effects = truth(args.positional[0], "conversion") if args.positional else ()
    return Outcome(Value(kinds=HOST, strength=CERTAIN, dtype="bool"), effects)


def _text(form: str) -> Handler:
    def text(args: Args) -> Outcome:
        effects: tuple[Effect, ...] = ()
        for value in args.positional:
            effects += format_value(value, form)
        return Outcome(HOST_NUMBER if form != forms.FORMAT_PRINT else constant(None), effects)

    return text


def _range(args: Args) -> Outcome:
    effects: tuple[Effect, ...] = ()
    for value in args.positional:
        if value.kinds & TENSOR and not by_name_alone(value):
            effects += reading(forms.RANGE_BOUND, value, "range asks a device tensor for its number")
    element = Value(kinds=HOST, strength=CERTAIN, dtype="int")
    return Outcome(Value(kinds=SEQUENCE, ref="range", element=element, strength=CERTAIN), effects)


def _index(form: str, what: str) -> Handler:
    def index(args: Args) -> Outcome | None:
        return converted(args.positional[0], form, what) if args.positional else HOST_RESULT

    return index


def _sum(args: Args) -> Outcome | None:
    """sum(t), sum(list of tensors): adds on the device, and reads nothing. sum(list of numbers): a total."""
    if not args.positional:
        return None
    value = args.positional[0]
    if value.kinds & TENSOR:
        element = contents(value)
        return Outcome(derived(element, ndim=element.ndim))
    if value.kinds & (SEQUENCE | MAPPING):
        element = contents(value)
        if element.kinds & TENSOR:
            return Outcome(derived(element, ndim=element.ndim))
        if element.kinds == UNKNOWN:
            return Outcome(Value(kinds=UNKNOWN, total=value.same, params=value.params))
        return Outcome(replace(HOST_NUMBER, total=value.same, params=value.params))
    return Outcome(replace(HOST_NUMBER, total=value.same) if value.kinds & ARRAY else ANYTHING)


def _extreme(what: str) -> Handler:
    def extreme(args: Args) -> Outcome | None:
        values = args.positional
        if len(values) == 1:
            effects = _compared(values[0], what)
            largest = contents(values[0])
            return Outcome(bounded(largest, values[0]) if largest.kinds == HOST else largest, effects)
        effects = truth_of_elements(sequence(values), what) if len(values) > 1 else ()
        return Outcome(join_all(list(values)), effects)

    return extreme


def _compared(value: Value, what: str) -> tuple[Effect, ...]:
    """Elements compared one by one: of a tensor, or of a list of device tensors."""
    if value.items is not None and len(value.items) < 2 and not value.kinds & TENSOR:
        return ()
    if value.kinds & TENSOR and value.ndim == 0:
        return ()
    return truth_of_elements(value, what)


def _all(what: str) -> Handler:
    def every_one(args: Args) -> Outcome | None:
        return Outcome(HOST_NUMBER, truth_of_elements(args.positional[0], what)) if args.positional else None

    return every_one


def _sorted(args: Args) -> Outcome | None:
    if not args.positional:
        return None
    value = args.positional[0]
    effects = () if "key" in args.keywords else _compared(value, "sorted()")
    return Outcome(_listed(value, "list"), effects)


def _listed(value: Value, ref: str) -> Value:
    if value.kinds & SEQUENCE and value.items is not None:
        return sequence(value.items, ref)
    same = value.same if value.kinds & (SEQUENCE | ARRAY) else ""
    return replace(sequence_of(contents(value), ref, same=same), strength=max(value.strength, POSSIBLE))


def _container(ref: str) -> Handler:
    def container(args: Args) -> Outcome | None:
        if not args.positional:
            return Outcome(sequence((), ref))
        return Outcome(_listed(args.positional[0], ref))

    return container


def _dict(args: Args) -> Outcome:
    values = list(args.keywords.values())
    if args.positional and args.positional[0].kinds & MAPPING:
        values.append(args.positional[0].element or ANYTHING)
    elif args.positional:
        values.append(ANYTHING)
    return Outcome(mapping_of(join_all(values)) if values else Value(kinds=MAPPING, strength=CERTAIN))


def _zip(args: Args) -> Outcome:
    return Outcome(sequence_of(sequence(tuple(contents(value) for value in args.positional)), "generator"))


def _enumerate(args: Args) -> Outcome | None:
    if not args.positional:
        return None
    return Outcome(sequence_of(sequence((HOST_NUMBER, contents(args.positional[0]))), "generator"))


def _reversed(args: Args) -> Outcome | None:
    if not args.positional:
        return None
    value = args.positional[0]
    return Outcome(sequence(value.items[::-1], "list") if value.items is not None else _listed(value, "list"))


def _map(args: Args) -> Outcome | None:
    """map(int, t): a read for each element."""
    if len(args.positional) < 2:
        return None
    function, over = args.positional[0], args.positional[1]
    if function.kinds != CALLABLE:
        return Outcome(sequence_of(ANYTHING, "generator"))
    element = contents(over)
    if function.ref in ("int", "float", "bool", "complex"):
        if on_device(element) and not by_name_alone(element):
            reason = f"{function.ref}() reads each element of a device tensor"
            read = effect(forms.ITEM_PER_ELEMENT, element, reason, times=0)
            return Outcome(sequence_of(HOST_NUMBER, "generator"), (read,))
        return Outcome(sequence_of(HOST_NUMBER, "generator", same=over.same))
    if function.ref in ("str", "repr", "len"):
        found = function.ref != "len" and device_within(element)
        effects = (effect(forms.FORMAT_STR, found, "text of each element", times=0),) if found else ()
        return Outcome(sequence_of(HOST_NUMBER, "generator"), effects)
    return Outcome(sequence_of(ANYTHING, "generator"))


def _filter(args: Args) -> Outcome | None:
    if len(args.positional) < 2:
        return None
    function, over = args.positional[0], args.positional[1]
    effects = truth_of_elements(over, "filter()") if function.kinds == NONE else ()
    return Outcome(sequence_of(contents(over), "generator"), effects)


def _host(args: Args) -> Outcome:
    return HOST_RESULT


def _len(args: Args) -> Outcome:
    """How many: of lengths never their sum, unless all are one and the same number."""
    counted = args.positional[0] if args.positional else ANYTHING
    return Outcome(bounded(HOST_NUMBER, counted)) if counted.same else HOST_RESULT


def _unknown(args: Args) -> Outcome:
    return Outcome(ANYTHING)


def _deepcopy(args: Args) -> Outcome | None:
    """copy.copy, copy.deepcopy: a clone where it was."""
    return Outcome(args.positional[0]) if args.positional else None


def _next(args: Args) -> Outcome | None:
    return Outcome(contents(args.positional[0])) if args.positional else None


_HOST_RESULTS = listed(
    "isinstance issubclass callable hash id hasattr ord type.__name__ input open memoryview time.time dir "
    "time.perf_counter time.monotonic os.getenv os.environ.get random.random random.randint random.choice uuid.uuid4"
)


def _slice(args: Args) -> Outcome | None:
    """`slice(stop)`, `slice(start, stop, step)`: reads nothing before it is used."""
    bounds = args.positional
    if len(bounds) == 1:
        return Outcome(slice_value(None, bounds[0], None))
    if not 1 < len(bounds) < 4:
        return None
    return Outcome(slice_value(bounds[0], bounds[1], bounds[2] if len(bounds) == 3 else None))


def _exception(args: Args) -> Outcome:
    """`ValueError(x)`: its text is that of what it was given."""
    return Outcome(sequence(args.positional, "exception"))


_EXCEPTIONS = listed("Exception ValueError RuntimeError TypeError KeyError AssertionError IndexError")
BUILTINS: dict[str, Handler] = {
    "int": _convert("int()", "int"),
    "float": _convert("float()", "float"),
    "complex": _convert("complex()", ""),
    "bool": _bool,
    "str": _text(forms.FORMAT_STR),
    "repr": _text(forms.FORMAT_STR),
    "ascii": _text(forms.FORMAT_STR),
    "format": _text(forms.FORMAT_FSTRING),
    "print": _text(forms.FORMAT_PRINT),
    "pprint.pprint": _text(forms.FORMAT_PRINT),
    "range": _range,
    "sum": _sum,
    "len": _len,
    "max": _extreme("max()"),
    "min": _extreme("min()"),
    "any": _all("any()"),
    "all": _all("all()"),
    "sorted": _sorted,
    "list": _container("list"),
    "tuple": _container("tuple"),
    "set": _container("set"),
    "frozenset": _container("set"),
    "iter": _container("generator"),
    "dict": _dict,
    "zip": _zip,
    "itertools.zip_longest": _zip,
    "enumerate": _enumerate,
    "reversed": _reversed,
    "map": _map,
    "filter": _filter,
    "next": _next,
    "operator.truth": _bool,
    "slice": _slice,
    "bytearray": _index(forms.OPERATOR_INDEX, "bytearray()"),
    "bytes": _index(forms.OPERATOR_INDEX, "bytes()"),
    "chr": _index(forms.OPERATOR_INDEX, "chr()"),
    "hex": _index(forms.OPERATOR_INDEX, "hex()"),
    "bin": _index(forms.OPERATOR_INDEX, "bin()"),
    "oct": _index(forms.OPERATOR_INDEX, "oct()"),
    "operator.index": _index(forms.OPERATOR_INDEX, "operator.index()"),
    "copy.copy": _deepcopy,
    "copy.deepcopy": _deepcopy,
    **MATHEMATICS,
    **dict.fromkeys(_EXCEPTIONS, _exception),
    **dict.fromkeys(_HOST_RESULTS, _host),
}
