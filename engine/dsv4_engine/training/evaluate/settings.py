"""How much of a corpus an evaluation looks at."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_engine.errors import EngineError
from dsv4_engine.options import MAX_DRAFTS


@dataclass(frozen=True, kw_only=True)
class Settings:
    """excerpts, length: held-out texts a kind, and their tokens at most. stride: tokens from one try of a speculative
    step to the next. prompts, prefix, new_tokens: greedy generations a kind, the tokens they begin with at most, and
    the tokens they may add. agreement_excerpts: texts a kind on which checkpoints and dtypes are compared. batch: texts
    computed at once. Equal settings and seed look at the same texts. EngineError on a value that cannot be.
    """

    excerpts: int = 16
    length: int = 1024
    stride: int = 16
    prompts: int = 8
    prefix: int = 128
    new_tokens: int = 256
    agreement_excerpts: int = 3
    num_drafts: int = 3
    batch: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"excerpts": 1, "length": 2, "stride": self.num_drafts + 1, "prompts": 1, "prefix": 1, "new_tokens": 2}
        for name, minimum in (least | {"agreement_excerpts": 0, "batch": 1, "seed": 0}).items():
            if getattr(self, name) < minimum:
                raise EngineError(f"{name} is {getattr(self, name)}", hint=f"choose at least {minimum}")
        if not 1 <= self.num_drafts <= MAX_DRAFTS:
            raise EngineError(f"num_drafts is {self.num_drafts}", hint=f"choose 1 to {MAX_DRAFTS}")


FULL = Settings()
QUICK = Settings(excerpts=4, stride=32, prompts=4, new_tokens=128, agreement_excerpts=1)
