"""DSV105: the shape of a result depends on values on the device."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV105",
    name="data-dependent-shape",
    severity=Severity.WARNING,
    summary="the shape of a result depends on values on the device",
    doc=WAIT
    + "nonzero, a boolean mask as index, unique, bincount and repeat_interleave without output_size read a count "
    "back before they can allocate their result. For repeat_interleave pass output_size, but only the exact sum"
    " of the repeats, known on the host: another value leaves rows uninitialised or writes out of bounds "
    "(sglang #29202).",
    source="those functions on a device tensor; `x[mask]` where the mask is a bool tensor; an assignment through a "
    "mask whose value is a tensor. A Python number through one mask is a masked_fill and does not wait.",
    run="set_sync_debug_mode warns of most; unique(dim=) and coalesce wait inside thrust, without a warning.",
    trace="aten::nonzero, aten::_unique2, aten::bincount, or aten::item inside aten::repeat_interleave (two of them).",
    bad="def owners(counts: torch.Tensor) -> torch.Tensor:\n"
    "    ids = torch.arange(counts.shape[0], device=counts.device)\n"
    "    return torch.repeat_interleave(ids, counts)",
    good="def owners(counts: torch.Tensor, counts_list: list[int]) -> torch.Tensor:\n"
    "    ids = torch.arange(counts.shape[0], device=counts.device)\n"
    "    total = sum(counts_list)  # the list that `counts` was made from\n"
    "    return torch.repeat_interleave(ids, counts, output_size=total)",
    fix="a form with a static shape: torch.where, a product with the mask, nonzero_static, scatter_add_ for "
    "bincount; output_size for repeat_interleave",
    unsafe="an output_size that is not the exact total, for example an upper bound or a padded size: DSV201. On ROCm "
    "the check is off or silent, and the first sign is a memory access fault somewhere else",
    references=("sglang #29202",),
)
