"""What an annotation says of a parameter, a field or a return value."""

from __future__ import annotations

from dsv4prof.sync.code.semantics.conventions import DEFAULT, Conventions, is_host_name, shape_of_name
from dsv4prof.sync.code.values import (
    ARRAY,
    CERTAIN,
    DEVICE,
    DTYPE,
    HOST,
    HOST_NUMBER,
    HOST_PLACES,
    LIKELY,
    MAPPING,
    OBJECT,
    ON_DEVICE,
    PAGEABLE,
    SEQUENCE,
    TENSOR,
    Value,
    Why,
    constant,
    sequence_of,
)

_TENSOR_CLASSES = {
    "torch.Tensor": "",
    "torch.nn.Parameter": "float",
    "torch.nn.parameter.Parameter": "float",
    "torch.FloatTensor": "float",
    "torch.DoubleTensor": "float",
    "torch.HalfTensor": "float",
    "torch.BFloat16Tensor": "float",
    "torch.LongTensor": "int",
    "torch.IntTensor": "int",
    "torch.ShortTensor": "int",
    "torch.CharTensor": "int",
    "torch.ByteTensor": "uint8",
    "torch.BoolTensor": "bool",
}
_HOST_CLASSES = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "",
    "bytes": "",
    "complex": "",
    "numbers.Number": "",
    "numbers.Integral": "int",
    "torch.SymInt": "int",
    "enum.Enum": "",
    "pathlib.Path": "",
}
_ARRAYS = frozenset({"numpy.ndarray", "numpy.typing.NDArray", "numpy.typing.ArrayLike", "numpy.array"})
_SEQUENCES = {
    "list": "list",
    "tuple": "tuple",
    "set": "set",
    "frozenset": "set",
    "range": "range",
    "typing.List": "list",
    "typing.Tuple": "tuple",
    "typing.Sequence": "",
    "typing.Iterable": "",
    "collections.abc.Sequence": "",
    "collections.abc.Iterable": "",
    "collections.deque": "list",
}
_MAPPINGS = frozenset({"dict", "typing.Dict", "typing.Mapping", "collections.abc.Mapping", "collections.defaultdict"})
# Objects of torch whose methods are known.
TORCH_OBJECTS = frozenset(
    {
        "torch.cuda.Event",
        "torch.cuda.Stream",
        "torch.cuda.CUDAGraph",
        "torch.Event",
        "torch.Stream",
        "torch.Generator",
        "torch.nn.Module",
        "torch.nn.ModuleList",
        "torch.distributed.ProcessGroup",
        "logging.Logger",
    }
)


def from_annotation(dotted: str, name: str, conventions: Conventions = DEFAULT) -> Value | None:
    """The value of `name` annotated with the resolved name `dotted`; None when the annotation says nothing known.

    A tensor without a host mark lives on the device, `likely`: that is what annotations mean in serving code.
    """
    if dotted in _TENSOR_CLASSES:
        return _tensor(dotted, name, conventions)
    if dotted in _HOST_CLASSES:
        return Value(kinds=HOST, strength=CERTAIN, dtype=_HOST_CLASSES[dotted])
    if dotted in ("None", "types.NoneType"):
        return constant(None)
    if dotted in _ARRAYS:
        return Value(kinds=ARRAY, strength=CERTAIN)
    if dotted in _SEQUENCES:
        element = HOST_NUMBER if is_host_name(name, conventions) else None
        return Value(kinds=SEQUENCE, ref=_SEQUENCES[dotted], element=element, strength=LIKELY)
    if dotted in _MAPPINGS:
        return Value(kinds=MAPPING, strength=LIKELY)
    if dotted == "torch.device":
        host = is_host_name(name, conventions) or name.startswith("cpu_")
        return Value(kinds=DEVICE, places=PAGEABLE if host else ON_DEVICE, strength=LIKELY)
    if dotted == "torch.dtype":
        return Value(kinds=DTYPE, strength=CERTAIN)
    if dotted == "torch.Size":
        return sequence_of(HOST_NUMBER, "tuple")
    if dotted in TORCH_OBJECTS:
        return Value(kinds=OBJECT, ref=dotted, strength=CERTAIN)
    if dotted.startswith("torch.cuda.") and dotted.endswith("Tensor"):
        return Value(kinds=TENSOR, places=ON_DEVICE, strength=CERTAIN, why=Why(f"{name} is annotated {dotted}"))
    return None


def _tensor(dotted: str, name: str, conventions: Conventions) -> Value:
    dtype, ndim = shape_of_name(name)
    host = is_host_name(name, conventions)
    text = f"{name}, annotated {dotted.removeprefix('torch.')}"
    return Value(
        kinds=TENSOR,
        places=HOST_PLACES if host else ON_DEVICE,
        strength=LIKELY,
        dtype=_TENSOR_CLASSES[dotted] or dtype,
        ndim=ndim,
        why=Why(f"{text}, is a host mirror by its name" if host else f"{text}, is taken to live on the device"),
    )
