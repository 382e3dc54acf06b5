"""What to send to a server, how fast, and how often, as plain values."""

from __future__ import annotations

from math import isfinite
from typing import Literal

import msgspec

from dsv4prof.errors import UsageError

Dataset = Literal["random", "generated-shared-prefix", "prompts"]
DATASETS: tuple[Dataset, ...] = ("random", "generated-shared-prefix", "prompts")
_MOST = 1_000_000
_LEAST_RATE = 1e-4


RANDOM_INPUT_LEN = 256
"""Tokens of random prompts, unless told otherwise."""


class BenchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths are in tokens. Open loop: `request_rate` requests arrive a second, at random moments (Poisson); infinite:
    all at once. Closed loop: at most `max_concurrency` requests are under way. Both together bound an open loop.

    random: `num_prompts` prompts of random token ids; lengths are uniform from `range_ratio` times the given one to
    the given one (None: from 1). generated-shared-prefix: `gsp_groups` system prompts, each with
    `gsp_prompts_per_group` questions. prompts: the texts of the file `prompts`, between lines of ---, or the bundled
    ones, again from the start where there are too few; outputs have the given length, unless `range_ratio` is given.
    `vocab_size`: random token ids are below it. `seed`: equal seeds give equal requests at equal moments.
    `temperature`, `ignore_eos`: sent with every request. `warmup`: requests before the clock starts, the
    first of which tells what the server can count. `timeout_s`: of
    one request. `flush`: empty the server's prefix cache before the clock starts.
    """

    url: str
    api_key: str | None = None
    model: str | None = None
    dataset: Dataset = "random"
    num_prompts: int = 64
    input_len: int = RANDOM_INPUT_LEN
    output_len: int = 64
    range_ratio: float | None = None
    gsp_groups: int = 4
    gsp_prompts_per_group: int = 8
    gsp_system_len: int = 1024
    gsp_question_len: int = 32
    gsp_output_len: int = 32
    prompts: str | None = None
    request_rate: float = float("inf")
    max_concurrency: int | None = None
    vocab_size: int = 250
    temperature: float = 0.0
    ignore_eos: bool = True
    warmup: int = 1
    timeout_s: float = 600.0
    flush: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise UsageError(f"dataset {self.dataset!r} is unknown", hint="one of " + ", ".join(DATASETS))
        whole = ("num_prompts", "input_len", "output_len", "gsp_groups", "gsp_prompts_per_group", "gsp_system_len")
        for name in (*whole, "gsp_question_len", "gsp_output_len", "warmup"):
            if not 1 <= getattr(self, name) <= _MOST:
                raise UsageError(f"{name} is {getattr(self, name)}", hint=f"give 1 to {_MOST}")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise UsageError(f"max_concurrency is {self.max_concurrency}", hint="give 1 or more, or leave it out")
        if not self.request_rate >= _LEAST_RATE:
            raise UsageError(
                f"request_rate is {self.request_rate}", hint=f"give {_LEAST_RATE} requests a second or more, or inf"
            )
        if not 0 <= self.ratio <= 1:
            raise UsageError(f"range_ratio is {self.range_ratio}", hint="give 0 to 1; 1 makes all lengths equal")
        if not 32 <= self.vocab_size <= 1 << 24:
            raise UsageError(f"vocab_size is {self.vocab_size}", hint="give 32 or more, not over the model's")
        if not 0 <= self.temperature <= 100:
            raise UsageError(f"temperature is {self.temperature}", hint="give 0 to 100")
        if not (isfinite(self.timeout_s) and self.timeout_s > 0):
            raise UsageError(f"timeout_s is {self.timeout_s}", hint="give a number of seconds")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise UsageError("the API key has a character that HTTP cannot send")
        if self.model is not None and not self.model.isprintable():
            raise UsageError(f"the model's name {self.model!a} has a character that no name has")
        if self.dataset != "prompts" and self.prompts is not None:
            raise UsageError(f"the dataset {self.dataset} takes no file of prompts", hint="leave --dataset-name out")

    @property
    def ratio(self) -> float:
        """Shortest over longest: who gives prompts of their own wants to compare, not to mix."""
        if self.range_ratio is not None:
            return self.range_ratio
        return 1.0 if self.dataset == "prompts" else 0.0
