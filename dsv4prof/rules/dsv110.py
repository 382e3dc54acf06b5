"""DSV110: a device value is used as a size or a bound."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV110",
    name="device-value-as-size",
    severity=Severity.WARNING,
    summary="a device value is used as a size, a bound or a count",
    doc=WAIT + "Slices, ranges, views and factory functions need a number on the host, so they read the tensor back; "
    "nothing in the line says so.",
    source="a device tensor as a slice bound, in range(), as a size of a factory or a view, or as an int parameter.",
    run="set_sync_debug_mode warns; a dispatch mode sees aten::_local_scalar_dense and no aten::item caller of yours.",
    trace="aten::item before aten::slice, aten::arange or a factory, then as DSV101.",
    bad="def cut(hidden: torch.Tensor, num_tokens: torch.Tensor) -> torch.Tensor:\n"
    "    return hidden[: num_tokens.sum()]",
    good="def cut(hidden: torch.Tensor, num_tokens: int) -> torch.Tensor:\n"
    "    return hidden[:num_tokens]  # known where the batch was built",
    fix="a number known on the host; or the full width and a mask: torch.arange(n, device=dev) < count",
    unsafe="an upper bound keeps rows that the exact number would cut: whatever reads them must mask them",
)
