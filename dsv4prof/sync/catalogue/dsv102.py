"""DSV102: a device tensor becomes a Python list."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form
from dsv4prof.sync.catalogue.shows import TO_HOST, free, waits

_CODE = "DSV102"

FORMS: tuple[Form, ...] = (
    waits(
        TO_HOST,
        _CODE,
        "tolist",
        "tolist of a device tensor",
        ("t.tolist()",),
        "t has elements; one copy for the whole tensor, also for one of no dimension",
        event=("aten::_to_copy", "aten::copy_"),
        source="tensor_list.cpp: the tensor is moved to the CPU first",
        measured=(
            "tolist",
            "accept_len_tolist",
            "split_tolist",
            "tolist_0d",
            "tolist_2d",
            "greedy_next_tolist",
            "sum_of_tolist",
            "dist_a2a_dev_splits",
            "str_join_item",
            "array_protocol_list",
        ),
        fix=Fix("build the list on the host, where its values come from", "caller must prove"),
    ),
    free(
        _CODE,
        "tolist-of-host",
        "tolist of host memory",
        ("cpu.tolist()", "array.tolist()", "t[:0].tolist()"),
        "a CPU tensor, a NumPy array, or a tensor without elements",
        measured=("tolist_cpu", "tolist_numpy", "tolist_empty"),
    ),
)
