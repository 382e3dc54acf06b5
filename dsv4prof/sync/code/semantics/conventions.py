"""What a name alone suggests, in serving code: a convention of the field, never a fact.

Where the source says where a value came from, that wins over its name both ways: `lens_cpu` that was bound to a device
tensor is a device tensor, and `m = mask.cpu()` is a host copy. A name decides only for parameters and attributes of
which nothing else is known, and what it decides is `likely` for host marks and `possible` for everything else.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    DEVICE,
    DTYPE,
    HOST,
    HOST_NUMBER,
    HOST_PLACES,
    LIKELY,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
)


class Conventions(msgspec.Struct, frozen=True):
    """`mirrors`: shell patterns of further names that hold host values (`*_shadow`)."""

    mirrors: tuple[str, ...] = ()


DEFAULT = Conventions()

_HOST_WORDS = listed("cpu host np numpy list lst pylist pinned pin nparray ndarray")
_DEVICE_WORDS = listed("gpu cuda hip device dev npu xpu musa")
_ARRAY_WORDS = listed("np numpy nparray ndarray")
_LIST_WORDS = listed("list lst pylist")
_PINNED_WORDS = listed("pinned pin")

# A first word that makes the name a question or a switch.
_FLAG_STARTS = listed(
    "is are has have use uses enable enabled disable disabled should need needs can allow do skip with without no"
)
_FLAG_NAMES = listed("pin_memory non_blocking cpu_offload causal training strict inplace")

_NUMBER_STARTS = listed("num max min n total nb")
_NUMBER_ENDS = listed(
    "size sizes_sum len dim dims count rank num steps heads layers id width height capacity limit stride offset "
    "eps alpha beta ratio factor scale_factor interval bits bytes depth"
)
_NUMBER_NAMES = listed(
    "bs batch_size topk top_k page_size block_size world_size tp_size dp_size ep_size rank n head_dim hidden_size "
    "vocab_size seqlen seq_len layer_id num draft_token_num speculative_num_steps speculative_num_draft_tokens"
)
# Counts of these are made on the device, one a request: `num_accepted_tokens` is as often a tensor as a number.
_COUNTED_ON_DEVICE = listed("accept accepted accepts per rejected correct valid padded drafts topk")

_VECTOR_ENDS = listed("lens lengths seqlens indptr offsets")
_TENSOR_ENDS = listed(
    "lens lengths seqlens indptr indices loc locs mask masks positions logits scores probs logprobs embeds states "
    "weights offsets mapping table tables ids hidden embeddings activations"
)
_INTEGER_ENDS = listed("lens lengths seqlens indptr indices loc locs positions offsets mapping table tables ids tokens")
# Names that nobody gives to anything but a tensor in serving code.
_SURE_ENDS = listed("indptr")
_SURE_NAMES = listed(
    "logits next_token_logits hidden_states out_cache_loc slot_mapping query_start_loc cache_seqlens block_tables "
    "page_table kv_indices topk_ids topk_weights req_to_token attention_mask input_embeds"
)
_TENSOR_NAMES = listed("logits hidden_states positions input_ids query key value attention_mask temperatures residual")


def _words(name: str) -> list[str]:
    return [word for word in name.lower().split("_") if word]


@lru_cache(maxsize=65536)
def is_host_name(name: str, conventions: Conventions = DEFAULT) -> bool:
    """Whether the name marks its value as one in host memory: `lens_cpu`, `host_lens`, `lens_np`, `pin_lens`."""
    if any(fnmatchcase(name, pattern) for pattern in conventions.mirrors):
        return True
    if name in _FLAG_NAMES:
        return False
    words = _words(name)
    if not words or words[0] in _FLAG_STARTS:
        return False
    # `cpu_to_gpu`, `host_device`: both sides are named, so the name decides nothing.
    return not _HOST_WORDS.isdisjoint(words) and _DEVICE_WORDS.isdisjoint(words)


@lru_cache(maxsize=65536)
def assumed(name: str, conventions: Conventions = DEFAULT) -> Value:
    """What may be assumed of an untyped parameter or an attribute of an unknown object; ANYTHING for most names."""
    words = _words(name)
    if not words:
        return ANYTHING
    if words[-1] in ("device", "dev") and "id" not in words:
        return _device(is_host_name(name, conventions) or "cpu" in words or "host" in words)
    if words[-1] == "dtype":
        return Value(kinds=DTYPE, strength=LIKELY)
    if name in _FLAG_NAMES or words[0] in _FLAG_STARTS:
        return Value(kinds=UNKNOWN | HOST, strength=LIKELY)
    if is_host_name(name, conventions):
        return _host(name, words)
    if words[-1] in ("gpu", "cuda"):
        return _tensor(name, words)
    if _is_number(name, words):
        return Value(kinds=UNKNOWN | HOST, strength=LIKELY)
    if name in _TENSOR_NAMES or words[-1] in _TENSOR_ENDS or "seqlens" in words or words[0] == "cu":
        return _tensor(name, words)
    return ANYTHING


def shape_of_name(name: str) -> tuple[str, int | None]:
    """The dtype and the number of dimensions that a name suggests, ("", None) for none."""
    words = _words(name)
    last = words[-1] if words else ""
    if last in _HOST_WORDS and len(words) > 1:
        last = words[-2]
    if last in ("mask", "masks"):
        return "bool", None
    vector = (
        last in _VECTOR_ENDS or "seqlens" in words or (words and words[0] == "cu") or words[-2:] == ["start", "loc"]
    )
    if vector:
        return "int", 1
    return ("int" if last in _INTEGER_ENDS else ""), None


def _is_number(name: str, words: list[str]) -> bool:
    if name in _NUMBER_NAMES:
        return True
    if not _COUNTED_ON_DEVICE.isdisjoint(words):
        return False
    if words[-1] in _NUMBER_ENDS:
        return True
    return words[0] in _NUMBER_STARTS and len(words) > 1 and words[-1] not in _VECTOR_ENDS | {"indices", "mask"}


def _device(host: bool) -> Value:
    return Value(kinds=DEVICE, places=PAGEABLE if host else ON_DEVICE, strength=LIKELY)


def _host(name: str, words: list[str]) -> Value:
    why = Why(f"the name {name} marks a host value")
    dtype, ndim = shape_of_name(name)
    if not _LIST_WORDS.isdisjoint(words):
        return Value(kinds=UNKNOWN | SEQUENCE, element=HOST_NUMBER, strength=LIKELY, why=why, ref="list")
    if not _ARRAY_WORDS.isdisjoint(words):
        return Value(kinds=UNKNOWN | ARRAY, strength=LIKELY, why=why, dtype=dtype)
    places = PINNED if not _PINNED_WORDS.isdisjoint(words) else HOST_PLACES
    return Value(
        kinds=UNKNOWN | TENSOR, places=places, strength=LIKELY, why=why, dtype=dtype, ndim=ndim, element=HOST_NUMBER
    )


def _tensor(name: str, words: list[str]) -> Value:
    dtype, ndim = shape_of_name(name)
    sure = words[-1] in _SURE_ENDS or name in _SURE_NAMES or words[:2] == ["cu", "seqlens"]
    return Value(
        kinds=UNKNOWN | TENSOR,
        places=ON_DEVICE,
        strength=LIKELY if sure else POSSIBLE,
        dtype=dtype,
        ndim=ndim,
        why=Why(f"{name} is a device tensor by convention"),
    )
