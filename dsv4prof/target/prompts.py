"""What the requests ask: prompts from a text file, or bundled ones of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from dsv4prof.errors import InputError, MissingExtraError

SEPARATOR = "---"
_BUNDLED = (
    "Where does a speculative decoding step spend its time, and how would you prove it?",
    "A profiler that outlives its session is destroyed by a later garbage collection. Explain why that is a problem, "
    "and what a server should do about it before it serves the next request.",
    "List the phases of one step: draft, verify, accept, extend.",
    "The host waits for the device whenever it reads a value back. Name five Python expressions that do so without "
    "looking like it, say for each how to keep the value on the device, and which of them cost nothing on an idle "
    "stream.",
    "Summarise.",
    "Two ranks record one collective each. Their clocks differ by five milliseconds and drift. Describe how to put "
    "both traces on one time axis, how good the result is, and how a reader of the trace can see it.",
)


def read_prompts(path: str | None, count: int) -> list[str]:
    """`count` prompts, from the start again when there are fewer. Raises InputError for a file without any."""
    texts = list(_BUNDLED) if path is None else _read(Path(path))
    return list(islice(cycle(texts), count))


def encode_prompts(texts: Sequence[str], model: str, *, bos_token_id: int) -> list[list[int]]:
    """Token ids by the model's own `tokenizer.json`, or UTF-8 bytes after the begin token for a model without one."""
    tokenizer = Path(model) / "tokenizer.json"
    if not tokenizer.is_file():
        return [[bos_token_id, *text.encode("utf-8")] for text in texts]
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("tokenizers", "engine", purpose="encoding prompts") from error
    encoder = Tokenizer.from_file(str(tokenizer))
    return [list(encoder.encode(text).ids) for text in texts]


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the prompts in {path}: {error}", hint="give a UTF-8 text file") from error
    prompts: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == SEPARATOR:
            prompts.append([])
        else:
            prompts[-1].append(line)
    texts = [text for text in ("\n".join(prompt).strip() for prompt in prompts) if text]
    if not texts:
        raise InputError(f"{path} holds no prompt", hint=f"write prompts separated by lines of {SEPARATOR}")
    return texts
