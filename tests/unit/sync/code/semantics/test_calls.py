"""Functions by their dotted name."""

from __future__ import annotations

import pytest

from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.semantics import attribute, call, method, named
from dsv4prof.sync.code.values import (
    ARRAY,
    CALLABLE,
    HOST,
    LIKELY,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    Value,
    sequence,
    tensor,
)
from sync_values import KNOWN, arguments, told, value


def sized(count: int) -> Value:
    return Value(kinds=TENSOR, places=ON_DEVICE, strength=2, dtype="int", ndim=1, numel=count)


INT = Value(kinds=CALLABLE, ref="int")
ON_DEVICE_LIST = sequence((KNOWN["x"],), "list")
HOST_LIST = sequence((KNOWN["cpu"],), "list")
PAIR = sequence((KNOWN["t"], KNOWN["t"]), "list")


@pytest.mark.parametrize(
    ("dotted", "positional", "keywords", "forms"),
    [
        ("int", ("t",), {}, ["scalar-conversion"]),
        ("float", ("x",), {}, ["scalar-conversion"]),
        ("bool", ("t",), {}, ["truth-conversion"]),
        ("range", ("t",), {}, ["range-bound"]),
        ("max", ("x",), {}, ["builtin-over-tensor"]),
        ("min", ("t", 3), {}, ["builtin-over-tensor"]),
        ("any", ("x",), {}, ["builtin-over-tensor"]),
        ("all", ("tensors",), {}, ["builtin-over-tensor"]),
        ("sorted", ("tensors",), {}, ["builtin-over-tensor"]),
        ("map", (INT, "x"), {}, ["item-per-element"]),
        ("str", ("t",), {}, ["format-str"]),
        ("print", ("text", "x"), {}, ["format-print"]),
        ("math.sqrt", ("t",), {}, ["math-function"]),
        ("operator.index", ("t",), {}, ["operator-index"]),
        ("torch.zeros", ("t",), {"device": "device"}, ["factory-size"]),
        ("torch.empty", (("t", 4),), {"device": "device"}, ["factory-size"]),
        ("torch.arange", ("t",), {}, ["arange-bound"]),
        ("torch.linspace", ("t", 1.0, 5), {}, ["linspace-bound"]),
        ("torch.full", ((4,), "t"), {"device": "device"}, ["fill-value-parameter"]),
        ("torch.full_like", ("x", "t"), {}, ["fill-value-parameter"]),
        ("torch.add", ("x", "y"), {"alpha": "t"}, ["scalar-parameter"]),
        ("torch.topk", ("x", "t"), {}, ["count-parameter"]),
        ("torch.narrow", ("x", 0, "t", 2), {}, ["narrow-bound"]),
        ("torch.reshape", ("x", ("t", -1)), {}, ["view-size"]),
        ("torch.tensor", ("numbers",), {"device": "device"}, ["tensor-from-host"]),
        ("torch.tensor", (5,), {"device": "cuda"}, ["tensor-from-host"]),
        ("torch.tensor", ("unknown",), {"device": "unknown"}, ["tensor-from-host"]),
        ("torch.as_tensor", ("array",), {"device": "device"}, ["as-tensor-from-host"]),
        ("torch.as_tensor", ("x",), {"device": "host"}, ["as-tensor-cpu"]),
        ("torch.tensor", (PAIR,), {}, ["tensor-of-tensors"]),
        ("torch.where", ("mask",), {}, ["where-condition-only"]),
        ("torch.where", ("mask", "x", "cpu_scalar"), {}, ["where-host-tensor"]),
        ("torch.nonzero", ("mask",), {"as_tuple": True}, ["nonzero-as-tuple"]),
        ("torch.nonzero", ("unknown",), {}, ["nonzero"]),
        ("torch.unique", ("index",), {}, ["unique"]),
        ("torch.unique", ("m",), {"dim": 0}, ["unique-dim"]),
        ("torch.bincount", ("index",), {"minlength": 8}, ["bincount"]),
        ("torch.histc", ("x",), {"bins": 8}, ["histc-auto-range"]),
        ("torch.masked_select", ("x", "mask"), {}, ["masked-select"]),
        ("torch.isin", (sized(4096), sized(4096)), {}, ["isin"]),
        ("torch.isin", (sized(4096), sized(2)), {}, []),
        ("torch.isin", ("index", "x"), {}, []),
        ("torch.searchsorted", ("x", "y"), {"sorter": "index"}, ["searchsorted-sorter"]),
        ("torch.nn.functional.one_hot", ("index",), {}, ["one-hot-auto"]),
        ("torch.equal", ("x", "y"), {}, ["torch-equal"]),
        ("torch.allclose", ("x", "y"), {}, ["allclose"]),
        ("torch.linalg.inv", ("m",), {}, ["linalg-check"]),
        ("torch.linalg.svd", ("m",), {}, ["linalg-convergence"]),
        ("torch.normal", ("x", "y"), {}, ["normal-tensor-std"]),
        ("torch.normal", (0.0, "y"), {}, ["normal-tensor-std"]),
        ("torch.save", ("x", "unknown"), {}, ["serialize"]),
        ("pickle.dumps", ("tensors",), {}, ["serialize"]),
        ("torch.cuda.synchronize", (), {}, ["cuda-synchronize"]),
        ("torch.npu.synchronize", (), {}, ["cuda-synchronize"]),
        ("torch.distributed.barrier", (), {}, ["dist-barrier"]),
        ("torch.distributed.all_gather_object", ("list", "n"), {}, ["dist-object-collective"]),
        ("torch.distributions.Categorical", (), {"probs": "m"}, ["distribution-validation"]),
        ("torch.ops.aten.nonzero.default", ("mask",), {}, ["nonzero"]),
        ("torch.segment_reduce", ("x", "sum"), {"lengths": "index"}, ["segment-reduce-check"]),
        (
            "torch._foreach_copy_",
            (ON_DEVICE_LIST, HOST_LIST),
            {},
            ["copy-from-host"],
        ),
        ("torch.cuda.graph", ("unknown",), {}, ["graph-capture"]),
        ("torch.cumsum", ("m", "t"), {}, ["count-parameter"]),
        ("bytearray", ("t",), {}, ["operator-index"]),
        # Look-alikes.
        ("torch.segment_reduce", ("x", "sum"), {"lengths": "index", "unsafe": True}, []),
        ("torch._foreach_copy_", (ON_DEVICE_LIST, ON_DEVICE_LIST), {}, []),
        ("torch.distributed.barrier", (), {"async_op": True}, []),
        ("slice", ("t",), {}, []),
        ("int", ("n",), {}, []),
        ("int", ("unknown",), {}, []),
        ("len", ("x",), {}, []),
        ("isinstance", ("x", "unknown"), {}, []),
        ("sum", ("x",), {}, []),
        ("sum", ("tensors",), {}, []),
        ("abs", ("t",), {}, []),
        ("list", ("x",), {}, []),
        ("zip", ("x", "x"), {}, []),
        ("enumerate", ("x",), {}, []),
        ("max", ("list",), {}, []),
        ("max", ("n", "unknown"), {}, []),
        ("hash", ("x",), {}, []),
        ("range", ("n",), {}, []),
        ("map", (INT, "list"), {}, []),
        ("copy.deepcopy", ("x",), {}, []),
        ("torch.zeros", ("n",), {"device": "device"}, []),
        ("torch.arange", (4,), {"device": "device"}, []),
        ("torch.full", ((4,), 3.0), {"device": "device"}, []),
        ("torch.scalar_tensor", (3.0,), {"device": "device"}, []),
        ("torch.zeros_like", ("x",), {}, []),
        ("torch.tensor", ("numbers",), {}, []),
        ("torch.tensor", ("x",), {}, []),
        ("torch.as_tensor", ("x",), {"device": "device"}, []),
        ("torch.tensor", (sequence((), "list"),), {"device": "device"}, []),
        ("torch.tensor", ("numbers",), {"device": "host"}, []),
        ("torch.from_numpy", ("array",), {}, []),
        ("torch.where", ("mask", "x", 0.0), {}, []),
        ("torch.where", ("cpu_mask",), {}, []),
        ("torch.nonzero", ("cpu_mask",), {}, []),
        ("torch.nonzero_static", ("mask",), {"size": 16}, []),
        ("torch.histc", ("x",), {"bins": 8, "min": -3, "max": 3}, []),
        ("torch.isin", ("index", 3), {}, []),
        ("torch.searchsorted", ("x", "y"), {}, []),
        ("torch.nn.functional.one_hot", ("index", 8), {}, []),
        ("torch.nn.functional.pad", ("x", (1, 0)), {}, []),
        ("torch.linalg.inv_ex", ("m",), {}, []),
        ("torch.linalg.cholesky", ("cpu",), {}, []),
        ("torch.cat", ("tensors",), {}, []),
        ("torch.clamp", ("x",), {"min": "t"}, []),
        ("torch.lerp", ("x", "y", "t"), {}, []),
        ("torch.multinomial", ("x", 5), {}, []),
        ("torch.normal", ("x", 1.0), {}, []),
        ("torch.cuda.current_stream", (), {}, []),
        ("torch.cuda.mem_get_info", (), {}, []),
        ("torch.distributed.all_reduce", ("x",), {}, []),
        ("torch.distributed.all_gather_object", ("list", "n"), {"group": "cpu"}, []),
        ("torch.distributions.Categorical", (), {"probs": "m", "validate_args": False}, []),
        ("numpy.asarray", ("list",), {}, []),
        ("math.prod", ("list",), {}, []),
    ],
)
def test_call(dotted: str, positional: tuple[object, ...], keywords: dict[str, object], forms: list[str]) -> None:
    assert told(call(dotted, arguments(*positional, **keywords))) == forms


@pytest.mark.parametrize(
    ("repeats", "size", "forms"),
    [
        ("index", {}, ["repeat-interleave-tensor"]),
        ("t", {}, ["repeat-interleave-tensor"]),
        ("any_place", {}, ["repeat-interleave-tensor"]),
        ("index", {"output_size": None}, ["repeat-interleave-tensor"]),
        ("index", {"output_size": "t"}, ["repeat-interleave-output-size-tensor"]),
        ("index", {"output_size": Value(kinds=2 | 4, strength=2)}, ["repeat-interleave-tensor"]),
        ("index", {"output_size": "n"}, []),
        ("index", {"output_size": "unknown"}, []),
        ("n", {}, []),
        (2, {}, []),
        ("cpu_index", {}, []),
        ("unknown", {}, []),
    ],
)
def test_repeat_interleave(repeats: object, size: dict[str, object], forms: list[str]) -> None:
    outcome = call("torch.repeat_interleave", arguments("x", repeats, **size))
    assert told(outcome) == forms
    assert outcome is not None and outcome.value.places == ON_DEVICE


def test_repeat_interleave_of_counts_alone() -> None:
    assert told(call("torch.repeat_interleave", arguments("index"))) == ["repeat-interleave-tensor"]
    assert told(call("torch.repeat_interleave", arguments("index", output_size="n"))) == []


def test_an_exact_total_is_no_hazard_and_any_other_is_possible() -> None:
    counts = tensor(ON_DEVICE, LIKELY, ndim=1, same="lens@1")
    lens = Value(kinds=SEQUENCE, ref="list", element=KNOWN["n"], same="lens@1")
    total = call("sum", arguments(lens))
    assert total is not None and total.value.total == "lens@1"
    exact = call("torch.repeat_interleave", arguments("x", counts, output_size=total.value))
    other = call("torch.repeat_interleave", arguments("x", counts, output_size="n"))
    assert exact is not None and exact.effects == ()
    assert other is not None
    assert [(effect.form, effect.level) for effect in other.effects] == [("output-size-not-exact", POSSIBLE)]


def test_where_results_live() -> None:
    cases = [
        ("torch.zeros", ("n",), {}, PAGEABLE),
        ("torch.zeros", ("n",), {"device": None}, PAGEABLE),
        ("torch.zeros", ("n",), {"device": "cuda"}, ON_DEVICE),
        ("torch.zeros", ("n",), {"device": "unknown"}, ON_DEVICE),
        ("torch.zeros", ("n",), {"pin_memory": True}, PINNED),
        ("torch.zeros_like", ("x",), {"device": "host"}, PAGEABLE),
        ("torch.zeros_like", ("cpu",), {}, PAGEABLE),
        ("torch.cumsum", ("cpu", 0), {}, PAGEABLE),
        ("torch.some_new_operator", ("x", "n"), {}, ON_DEVICE),
        ("torch.sum", ("unknown",), {}, ON_DEVICE),
        ("torch.normal", (0.0, 1.0), {"size": (1,), "device": "host"}, PAGEABLE),
        ("torch.add", ("x", "cpu_scalar"), {}, ON_DEVICE),
        ("torch.cat", (sequence((KNOWN["cpu"], KNOWN["cpu"]), "list"),), {}, PAGEABLE),
        ("torch.LongTensor", ("numbers",), {}, PAGEABLE),
        ("torch.cuda.FloatTensor", (4,), {}, ON_DEVICE),
    ]
    for dotted, positional, keywords, place in cases:
        outcome = call(dotted, arguments(*positional, **keywords))
        assert outcome is not None and outcome.value.kinds == TENSOR, dotted
        assert outcome.value.places == place, (dotted, positional, keywords)


def test_dimensions_and_types() -> None:
    cases = [
        ("torch.zeros", (3, 4), 2, ""),
        ("torch.zeros", ((3, 4, 5),), 3, ""),
        ("torch.arange", (5,), 1, "int"),
        ("torch.sum", ("m",), 0, "float"),
        ("torch.sum", ("m", 0), 1, "float"),
        ("torch.eq", ("m", 1), 2, "bool"),
        ("torch.stack", (PAIR,), 1, "int"),
        ("torch.isnan", ("x",), 1, "bool"),
        ("torch.tensor", (3.0,), 0, "float"),
        ("torch.tensor", ("numbers",), 1, "int"),
        ("torch.argmax", ("m", -1), 1, "int"),
    ]
    for dotted, positional, ndim, dtype in cases:
        outcome = call(dotted, arguments(*positional))
        assert outcome is not None and (outcome.value.ndim, outcome.value.dtype) == (ndim, dtype), dotted


def test_a_device_may_hide_among_keywords() -> None:
    hidden = call("torch.zeros", Args((KNOWN["n"],), open=True, hidden=True))
    starred = call("torch.zeros", Args((), open=True))
    assert hidden is not None and hidden.value.places == ON_DEVICE
    assert starred is not None and starred.value.places == PAGEABLE


def test_a_parameter_of_a_module_moves_with_it_unless_it_was_made_on_purpose_on_the_host() -> None:
    plain = call("torch.zeros", arguments("n"))
    chosen = call("torch.zeros", arguments("n", device="host"))
    assert plain is not None and chosen is not None
    moved, stays = (call("torch.nn.Parameter", arguments(made.value)) for made in (plain, chosen))
    assert moved is not None and (moved.value.places, moved.value.strength) == (ON_DEVICE, LIKELY)
    assert stays is not None and stays.value.places == PAGEABLE


def test_an_optimizer_reads_a_rate_on_the_device() -> None:
    slow = call("torch.optim.AdamW", arguments("unknown", lr="t"))
    fused = call("torch.optim.AdamW", arguments("unknown", lr="t", fused=True))
    usual = call("torch.optim.AdamW", arguments("unknown", lr="n"))
    for made, forms in ((slow, ["optimizer-step-device-lr"]), (fused, []), (usual, [])):
        assert made is not None
        assert told(method(made.value, "step", arguments())) == forms


def test_a_pair_is_a_pair() -> None:
    for dotted in ("torch.max", "torch.topk", "torch.sort", "torch.kthvalue"):
        outcome = call(dotted, arguments("m", 1))
        assert outcome is not None and outcome.value.items is not None and len(outcome.value.items) == 2, dotted
        assert attribute(outcome.value, "indices") == outcome.value.items[1]


def test_a_list_of_numbers_may_be_filled_in_instead() -> None:
    (effect,) = call("torch.tensor", arguments("list", device="device")).effects  # type: ignore[union-attr]
    assert effect.facts == {"list": "fill"}
    (effect,) = call("torch.tensor", arguments("unknown", device="device")).effects  # type: ignore[union-attr]
    assert effect.facts == {}


def test_unknown_calls_are_left_to_the_interpreter() -> None:
    assert call("somewhere.else", arguments("x")) is None
    assert call("torch.compiler.is_compiling", arguments()) is None


def test_names_that_are_no_calls() -> None:
    assert named("torch.bool") == Value(kinds=1024, dtype="bool", strength=2)
    assert named("torch.nonzero") is None


def test_numpy_stays_on_the_host() -> None:
    outcome = call("numpy.cumsum", arguments("array"))
    assert outcome is not None and outcome.value.kinds == ARRAY
    number = call("len", arguments("x"))
    assert number is not None and number.value.kinds == HOST
    assert value("n").kinds == HOST
