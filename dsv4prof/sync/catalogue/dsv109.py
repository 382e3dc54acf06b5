"""DSV109: a device tensor is formatted as text."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form
from dsv4prof.sync.catalogue.shows import SCALAR, TO_HOST, free, waits

_CODE = "DSV109"
_ITEM = ("aten::item", "aten::_local_scalar_dense")
_COPY = ("aten::to", "aten::_to_copy", "aten::copy_")
_LAZY = Fix("log the shape, or pass the tensor as a %s argument and behind a level check", "caller must prove")

FORMS: tuple[Form, ...] = (
    waits(
        SCALAR,
        _CODE,
        "format-fstring",
        "a device tensor in an f-string or str.format",
        ('f"{t}"', 'f"{t:.3f}"', '"{}".format(t)', "format(t)"),
        "formatted whether or not the log level is on; one element is one read, more are about 15",
        event=_ITEM,
        measured=("logging_disabled_fstring", "fstring_0d", "fstring_spec", "fstring_vec", "format_method"),
        fix=_LAZY,
    ),
    waits(
        TO_HOST,
        _CODE,
        "format-percent",
        "a device tensor in %-formatting",
        ('"%s" % t',),
        "always",
        times=15,
        event=_COPY,
        measured=("percent_fmt", "format_spec_int"),
        fix=_LAZY,
    ),
    waits(
        TO_HOST,
        _CODE,
        "format-str",
        "str or repr of a device tensor",
        ("str(t)", "repr(t)", 'f"{t!r}"'),
        "always",
        times=15,
        event=_COPY,
        measured=(
            "str_t",
            "repr_t",
            "exception_text",
            "join_map_str",
            "repr_list_of_t",
            "repr_dict_of_t",
            "dataclass_repr",
        ),
        fix=_LAZY,
    ),
    waits(
        TO_HOST,
        _CODE,
        "format-print",
        "print of a device tensor",
        ("print(t)",),
        "always",
        times=15,
        event=_COPY,
        measured=("print_t",),
        fix=Fix("print shapes, or outside the step", "caller must prove"),
    ),
    waits(
        TO_HOST,
        _CODE,
        "format-logging",
        "a device tensor as an argument of a log call",
        ('logger.warning("%s", t)', 'logger.info("%s", t)'),
        "the record is emitted: the level is on",
        times=15,
        event=_COPY,
        measured=("logging_enabled",),
        fix=Fix("log shapes, or a host value", "caller must prove"),
    ),
    free(
        _CODE,
        "format-metadata",
        "facts about a tensor formatted",
        ('f"{t.shape} {t.dtype} {t.device}"', 'f"{t.numel()}"'),
        "always",
        measured=("fstring_shape", "fstring_numel", "print_shape", "logging_enabled_fstring_shape"),
    ),
    free(
        _CODE,
        "format-logging-off",
        "an argument of a log call whose level is off",
        ('logger.debug("%s", t)',),
        "the level is off, so that nothing is formatted",
        measured=("logging_disabled_args",),
    ),
)
