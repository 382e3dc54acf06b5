"""Types of elements that a device computes with and the host does not, such as `histc` of integers."""

from __future__ import annotations

from typing import Any

import torch

from dsv4prof.sync.runtime.shadow.schemas import shape_of


def computed(func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The operator on host tensors; where the host has it for wider types only, by way of those.

    Raises NotImplementedError where the host has it for no type, or where it writes into what it is given.
    """
    try:
        return func(*args, **kwargs)
    except NotImplementedError as error:
        kinds = {one.dtype for one in args if isinstance(one, torch.Tensor)} & _WIDER.keys()
        if "not implemented for" not in str(error) or len(kinds) != 1 or shape_of(func).written(args, kwargs):
            raise
        narrow = kinds.pop()
    wide = _WIDER[narrow]
    result = func(*[_cast(one, narrow, wide) for one in args], **kwargs)
    if isinstance(result, (tuple, list)):
        return type(result)([_cast(one, wide, narrow) for one in result])
    return _cast(result, wide, narrow)


def _cast(value: Any, given: torch.dtype, wanted: torch.dtype) -> Any:
    return value.to(wanted) if isinstance(value, torch.Tensor) and value.dtype is given else value


_WIDER = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2), torch.float32),
    **dict.fromkeys((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64),
}
