"""One evaluation from a model and a corpus to its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.errors import EngineError
from dsv4_engine.training.corpus import Documents
from dsv4_engine.training.evaluate.acceptance import drafts_of
from dsv4_engine.training.evaluate.agreement import compare, logits_of
from dsv4_engine.training.evaluate.bits import bits_a_byte
from dsv4_engine.training.evaluate.generation import Written, generations_of, write
from dsv4_engine.training.evaluate.results import Agreement, Evaluation, KindResult
from dsv4_engine.training.evaluate.settings import FULL, Settings
from dsv4_engine.training.evaluate.subject import Subject
from dsv4_engine.training.evaluate.teacher import Reading, Tokens, read_texts
from dsv4_engine.training.evaluate.texts import Excerpt, excerpts, openings

ALL = "all"
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """What was read and written of one kind, a reading for each text."""

    kind: str
    texts: Sequence[Excerpt]
    readings: Sequence[Reading]
    written: Sequence[Written]


def evaluate(
    subject: Subject,
    held_out: Mapping[str, Documents],
    settings: Settings = FULL,
    *,
    against: Subject | None = None,
    say: Say = lambda _: None,
) -> Evaluation:
    """held_out: documents by kind, which the model has not been trained on. against: another checkpoint of the same
    model, to be compared in fp32. say: hears what is done next.

    EngineError where the held-out texts hold nothing to measure, and where the model cannot hold an excerpt.
    """
    started = time.perf_counter()
    _require_room(subject, settings)
    if against is not None:
        _require_room(against, settings)
        if against.config.vocab_size != subject.config.vocab_size:
            raise EngineError(
                f"{against.model} and {subject.model} differ in vocabulary", hint="compare checkpoints of one model"
            )
    seen: list[_Seen] = []
    for kind, documents in held_out.items():
        say(f"{kind}: {len(documents)} held-out documents")
        texts = excerpts(documents, count=settings.excerpts, length=settings.length, seed=settings.seed)
        if texts:
            readings = _read(subject, [text.tokens for text in texts], settings)
            written = _written(subject, documents, settings)
            seen.append(_Seen(kind=kind, texts=texts, readings=readings, written=written))
    if not seen:
        raise EngineError("the corpus holds no held-out text", hint="prepare it from more files")
    results = [_result(each.kind, [each], subject, settings) for each in seen]
    results.append(_result(ALL, seen, subject, settings))
    say("agreement of dtypes and checkpoints")
    agreements = _agreements(subject, against, seen, settings)
    return Evaluation(
        model=subject.name,
        parameters=subject.num_parameters,
        device=_device_name(subject.device),
        dtype=subject.dtype,
        torch=str(torch.__version__),
        seconds=time.perf_counter() - started,
        settings=settings,
        kinds=tuple(result for result in results if result is not None),
        agreements=tuple(agreements),
    )


def _require_room(subject: Subject, settings: Settings) -> None:
    limit = subject.config.max_position_embeddings
    wanted = max(settings.length, settings.prefix + settings.new_tokens)
    if wanted > limit:
        raise EngineError(f"{subject.model} holds {limit} tokens, not {wanted}", hint="evaluate shorter texts")


def _read(subject: Subject, texts: Sequence[Tokens], settings: Settings) -> list[Reading]:
    num_drafts = settings.num_drafts if subject.config.has_mtp else 0
    slots = min(settings.batch, len(texts))
    runner = subject.runner(slots=slots, context_len=settings.length + num_drafts + 1, num_drafts=num_drafts)
    readings: list[Reading] = []
    for start in range(0, len(texts), slots):
        readings += read_texts(
            runner,
            texts[start : start + slots],
            device=torch.device(subject.device),
            num_drafts=num_drafts,
            stride=settings.stride,
            seed=settings.seed + start,
        )
    return readings


def _written(subject: Subject, documents: Documents, settings: Settings) -> list[Written]:
    chosen = openings(
        documents,
        subject.alphabet,
        count=settings.prompts,
        prefix=settings.prefix,
        new_tokens=settings.new_tokens,
        seed=settings.seed,
    )
    room = subject.config.max_position_embeddings - settings.new_tokens
    chosen = [opening for opening in chosen if len(opening.prefix) <= room]
    return write(subject, chosen, settings) if chosen else []


def _result(kind: str, seen: Sequence[_Seen], subject: Subject, settings: Settings) -> KindResult | None:
    num_drafts = settings.num_drafts if subject.config.has_mtp else 0
    readings = [reading for each in seen for reading in each.readings]
    read = [(each.kind, text.document) for each in seen for text in each.texts]
    bits = bits_a_byte(
        [text.tokens for each in seen for text in each.texts],
        [reading.logprobs for reading in readings],
        subject.alphabet,
        clusters=read,
    )
    if bits is None:
        return None
    return KindResult(
        kind=kind,
        bits=bits,
        generations=generations_of(
            [one for each in seen for one in each.written],
            subject.alphabet,
            num_drafts=num_drafts,
            clusters=[(each.kind, one.opening.document) for each in seen for one in each.written],
        ),
        verified=drafts_of([reading.accept_lens for reading in readings], num_drafts=num_drafts, clusters=read),
        text=drafts_of([reading.text_lens for reading in readings], num_drafts=num_drafts, clusters=read),
    )


def _agreements(
    subject: Subject, against: Subject | None, seen: Sequence[_Seen], settings: Settings
) -> list[Agreement]:
    chosen = [text.tokens for each in seen for text in each.texts[: settings.agreement_excerpts]]
    if not chosen:
        return []
    length = max(map(len, chosen))
    pairs = [((subject, "float32"), (subject, "bfloat16"))]
    if against is not None:
        pairs.append(((against, "float32"), (subject, "float32")))
    found = []
    for pair in pairs:
        reference, other = (
            (f"{each.name} in {dtype}", logits_of(each, dtype=dtype, length=length)) for each, dtype in pair
        )
        found.append(compare(reference, other, chosen, subject.alphabet))
    return [agreement for agreement in found if agreement is not None]


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
