"""What the text of a function tells cheaply: the names it calls, and whether tensors are likely in it at all."""

from __future__ import annotations

import re

_CALLED = re.compile(r"[A-Za-z_.][\w.]*$")
# How names begin that mean the same in every module of a project that has them.
MODALITIES = ("image_", "video_", "audio_")
_KEPT = re.compile(r"(\w+)[\"']?\s*[=:]\s*[\w.]+\((?:[^()]|\([^()]*\))*?keep_on_cpu=True")
# A number asked of a reduction: arrays and tensors alone have these methods without arguments of their own.
_REDUCED = re.compile(
    r"\b(?:int|float|bool)\(.*\.(?:max|min|sum|mean|any|all|argmax)\(|\b(?:if|while|not|assert)\s.*\.(?:any|all)\("
)
_WORD = re.compile(r"[A-Za-z_]\w*")

# Any of these in a function is reason enough to interpret it.
_TENSOR_WORDS = frozenset(
    [
        "torch",
        "cumsum",
        "unsqueeze",
        "argmax",
        "contiguous",
        "scatter_",
        "data_ptr",
        "tensor",
        "Tensor",
        "tensors",
        "item",
        "tolist",
        "cpu",
        "cuda",
        "numpy",
        "nonzero",
        "unique",
        "argwhere",
        "masked_select",
        "bincount",
        "repeat_interleave",
        "one_hot",
        "index_put_",
        "copy_",
        "copyto",
        "fill_",
        "synchronize",
        "empty_cache",
        "pin_memory",
        "non_blocking",
        "is_cuda",
        "seq_lens",
        "input_ids",
        "positions",
        "hidden_states",
        "logits",
        "out_cache_loc",
        "req_pool_indices",
        "slot_mapping",
        "block_tables",
        "block_table",
        "page_table",
        "cu_seqlens_q",
        "cu_seqlens_k",
        "cu_seqlens",
        "kv_indptr",
        "kv_indices",
        "qo_indptr",
        "topk_ids",
        "topk_weights",
        "token_ids",
        "next_token_ids",
        "query_start_loc",
        "attention_mask",
        "encoder_lens",
        "prefix_lens",
        "extend_seq_lens",
        "accept_lens",
        "logprobs",
        "probs",
        "device",
        "jnp",
        "np",
        "F",
        "barrier",
    ]
)
# And one of these makes the statements of a module, or of an `__init__`, worth it: they are many, and run once.
_WAIT_WORDS = (
    ".item(",
    ".tolist(",
    ".cpu(",
    ".cuda(",
    ".to(",
    ".numpy(",
    "nonzero",
    "unique",
    "argwhere",
    "masked_select",
    "bincount",
    "repeat_interleave",
    "synchronize",
    "empty_cache",
    "pin_memory",
    "tensor(",
    "as_tensor",
    "from_numpy",
    ".any(",
    ".all(",
    "int(torch",
    ".copy_(",
)
_NOT_CALLS = frozenset({"", "print", "len", "int", "float", "str", "bool", "isinstance", "range", "super", "getattr"})


def calls(lines: list[str], aliases: dict[str, str] | None = None) -> tuple[str, ...]:
    """The dotted names before an opening bracket, each once, in order; `.name` where the receiver is an expression.

    `aliases` are local names and the paths that they stand for.

    The text decides, not the syntax: a walk over all expressions of a large project takes longer than reading it.
    """
    found: dict[str, None] = {}
    for line in lines:
        if "(" not in line:
            continue
        pieces = line.split("(")
        if "#" in line:
            pieces = line.partition("#")[0].split("(")
        pieces.pop()
        for piece in pieces:
            match = _CALLED.search(piece[-80:])
            if match is not None:
                found[match.group()] = None
    names = [name for name in list(found)[1:] if name not in _NOT_CALLS]
    if not aliases:
        return tuple(names)
    return tuple(dict.fromkeys(_unaliased(name, aliases) for name in names))


def _unaliased(name: str, aliases: dict[str, str]) -> str:
    head, dot, rest = name.partition(".")
    path = aliases.get(head) if dot else None
    return f"{path}.{rest}" if path else name


def kept_on_host(text: str) -> tuple[str, ...]:
    """The names in `name=field("image", keep_on_cpu=True)`, which is how vLLM declares inputs that stay on the host."""
    return tuple(sorted(set(_KEPT.findall(text)))) if "keep_on_cpu=True" in text else ()


def tensors(lines: list[str]) -> bool:
    """Whether any word speaks of tensors."""
    text = "\n".join(lines)
    if "torch" in text or "ensor" in text or not _TENSOR_WORDS.isdisjoint(_WORD.findall(text)):
        return True
    return _REDUCED.search(text) is not None


def waits(lines: list[str]) -> bool:
    """Whether any word speaks of a wait."""
    text = "\n".join(lines)
    return any(word in text for word in _WAIT_WORDS)
