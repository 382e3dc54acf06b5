"""Held-out text read by the model as it is, and in between single speculative steps from where the text stands.

The engine's caches are addressed by position and need no undo, so a step that is only tried costs its own rows: the
text is fed on, and its rows take the place of those that the step left.
"""

# dsv4prof: allow-file[DSV102,DSV103,DSV108] measures a model offline, never in a serving step
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from dsv4_engine.check.batches import rows_batch
from dsv4_engine.phase import Phase
from dsv4_engine.runner import ModelRunner, TargetOutput
from dsv4_engine.sampling.greedy import greedy
from dsv4_engine.spec.accept import accept_chain

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Of one text of L tokens. logprobs: (L - 1,) float64, natural log of each next token's probability.

    positions: where a step was tried, the last token of its context. accept_lens: tokens that the step gains, as in the
    serving engine: the target's own next token is the newest one, and drafts after it count while they are what the
    target chooses. text_lens: 1 + the drafts, made after the text itself, that are what the text goes on with.
    """

    logprobs: npt.NDArray[np.float64]
    positions: tuple[int, ...]
    accept_lens: tuple[int, ...]
    text_lens: tuple[int, ...]


@dataclass(kw_only=True, eq=False)
class _Reader:
    """Where one text stands. streams: (1, hc, D), the target's at the last row that was read."""

    slot: int
    tokens: Tokens
    chunk: int
    read: int = 0
    streams: torch.Tensor | None = None
    logprobs: list[torch.Tensor] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    accept_lens: list[torch.Tensor] = field(default_factory=list)
    text_lens: list[torch.Tensor] = field(default_factory=list)

    def may_try(self, num_drafts: int) -> bool:
        """Whether the text has a row before the newest token, and goes on for as long as the drafts do."""
        return self.read >= 2 and self.read + num_drafts <= len(self.tokens)

    def result(self) -> Reading:
        return Reading(
            logprobs=torch.cat(self.logprobs).double().cpu().numpy()[: len(self.tokens) - 1],
            positions=tuple(self.positions),
            accept_lens=_numbers(self.accept_lens),
            text_lens=_numbers(self.text_lens),
        )


def _numbers(scalars: Sequence[torch.Tensor]) -> tuple[int, ...]:
    return tuple(torch.stack(list(scalars)).tolist()) if scalars else ()


def read_texts(
    runner: ModelRunner,
    texts: Sequence[Tokens],
    *,
    device: torch.device,
    num_drafts: int = 0,
    stride: int = 16,
    seed: int = 0,
) -> list[Reading]:
    """Texts of 2 tokens or more, one a slot of the runner, read together.

    With drafts a step is tried each `stride` tokens, the first one after 2 to stride + 1 tokens, drawn, so that
    positions meet every place in a compression window.
    """
    firsts = np.random.default_rng(seed).integers(2, stride + 2, len(texts)).tolist()
    readers = [
        _Reader(slot=slot, tokens=tokens, chunk=first)
        for slot, (tokens, first) in enumerate(zip(texts, firsts, strict=True), 1)
    ]
    reading = _Reading(runner, device, num_drafts)
    while active := [reader for reader in readers if reader.read < len(reader.tokens)]:
        reading.advance(active)
        for reader in active:
            reader.chunk = stride
    return [reader.result() for reader in readers]


class _Reading:
    """One round of all texts after another."""

    def __init__(self, runner: ModelRunner, device: torch.device, num_drafts: int) -> None:
        self._runner, self._device, self._num_drafts = runner, device, num_drafts

    @torch.inference_mode()
    def advance(self, readers: Sequence[_Reader]) -> None:
        """Read a chunk of each text; try a step at the end of those that can."""
        chunks = [reader.tokens[reader.read : reader.read + reader.chunk] for reader in readers]
        starts = [reader.read for reader in readers]
        batch = rows_batch([reader.slot for reader in readers], starts, _lists(chunks), Phase.PREFILL, self._device)
        output = self._runner.forward_target(batch, logits_rows=None)
        sizes = [len(chunk) for chunk in chunks]
        nexts = [_after(reader.tokens, start, size) for reader, start, size in zip(readers, starts, sizes, strict=True)]
        truth = self._uploaded(np.concatenate(nexts))
        logprobs = output.logits.log_softmax(-1).gather(-1, truth[:, None])[:, 0]
        parts = zip(readers, logprobs.split(sizes), output.streams.split(sizes), strict=True)
        tried: list[int] = []
        streams_of: list[torch.Tensor] = []
        for index, (reader, chunk_logprobs, streams) in enumerate(parts):
            reader.logprobs.append(chunk_logprobs)
            before, reader.streams = reader.streams, streams[-1:]
            reader.read += len(chunk_logprobs)
            if self._num_drafts and reader.may_try(self._num_drafts):
                tried.append(index)
                streams_of.append(streams if before is None else torch.cat((before, streams)))
        if tried:
            ends = self._uploaded((np.cumsum(sizes) - 1)[tried])
            self._try([readers[index] for index in tried], streams_of, greedy(output.logits[ends]))

    def _try(self, readers: Sequence[_Reader], streams: Sequence[torch.Tensor], newest: torch.Tensor) -> None:
        """streams: of each text's target, from the row before its chunk. newest: (B,), what the target chose."""
        slots, lengths = [reader.slot for reader in readers], [reader.read for reader in readers]
        counts = [len(each) for each in streams]
        starts = [length - count for length, count in zip(lengths, counts, strict=True)]
        # Row p of the MTP layer takes the token after p: the text's own, and at the end what the target chose.
        ids = [_after(reader.tokens, start, size) for reader, start, size in zip(readers, starts, counts, strict=True)]
        batch = rows_batch(slots, starts, _lists(ids), Phase.PREFILL, self._device)
        last = self._uploaded(np.cumsum(counts) - 1)
        batch = replace(batch, input_ids=batch.input_ids.index_copy(0, last, newest))
        asked = torch.cat((last, last - 1))
        guess = self._runner.forward_mtp(batch, torch.cat(list(streams)), logits_rows=asked)
        after_choice, after_text = greedy(guess.logits).chunk(2)
        drafts = self._chain(slots, lengths, after_choice, guess.streams[last])
        predicted = greedy(self._verify(slots, lengths, torch.cat((newest[:, None], drafts), 1)).logits)
        accepted = accept_chain(drafts, predicted.view(len(slots), -1))
        # Made from one row earlier, where the newest token is the text's: overwrites the MTP layer's row of the choice.
        drafts = self._chain(slots, [length - 1 for length in lengths], after_text, guess.streams[last - 1])
        truth = np.stack([reader.tokens[reader.read :][: self._num_drafts] for reader in readers])
        matched = accept_chain(drafts, self._uploaded(np.pad(truth, ((0, 0), (0, 1)))))
        for reader, gained, right in zip(readers, accepted, matched, strict=True):
            reader.positions.append(reader.read - 1)
            reader.accept_lens.append(gained)
            reader.text_lens.append(right)

    def _chain(
        self, slots: Sequence[int], starts: Sequence[int], first: torch.Tensor, streams: torch.Tensor
    ) -> torch.Tensor:
        """(B, n): the first drafts and those that the MTP layer makes of its own streams, from position `start` on."""
        drafts = [first]
        for offset in range(self._num_drafts - 1):
            places = [start + offset for start in starts]
            batch = rows_batch(slots, places, [[0]] * len(slots), Phase.DRAFT, self._device)
            output = self._runner.forward_mtp(replace(batch, input_ids=drafts[-1]), streams, logits_rows=None)
            drafts.append(greedy(output.logits))
            streams = output.streams
        return torch.stack(drafts, dim=1)

    def _verify(self, slots: Sequence[int], starts: Sequence[int], windows: torch.Tensor) -> TargetOutput:
        ids = [[0] * windows.shape[1]] * len(slots)
        batch = rows_batch(slots, starts, ids, Phase.TARGET_VERIFY, self._device)
        return self._runner.forward_target(replace(batch, input_ids=windows.flatten()), logits_rows=None)

    def _uploaded(self, values: Tokens) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self._device)


def _lists(arrays: Sequence[Tokens]) -> list[list[int]]:
    return [array.tolist() for array in arrays]


def _after(tokens: Tokens, start: int, count: int) -> Tokens:
    """The token after each of `count` from `start` on; zero after the last one of the text."""
    part = tokens[start + 1 : start + 1 + count]
    return np.pad(part, (0, count - len(part)))
