"""An evaluation as Markdown, for a model card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dsv4_engine.training.evaluate.results import Agreement, Drafts, Evaluation, KindResult
from dsv4_engine.training.evaluate.statistics import Estimate


def card(evaluation: Evaluation) -> str:
    """Tables with a sentence above each that says how its numbers were made."""
    e, s = evaluation, evaluation.settings
    parts = [
        f"Measured by the serving engine on {e.device} in {e.dtype} (torch {e.torch}, {e.seconds:.0f} s), on held-out "
        f"documents, with {s.num_drafts} drafts a step. In brackets: 95 % intervals over documents.",
        "### Held-out text\n\n"
        f"Bits a byte of up to {s.excerpts} excerpts a kind, of up to {s.length} tokens each. End tokens count, "
        "markers of a conversation do not. gzip and lzma (level 9, with their headers): each excerpt alone, and all of "
        "them in one file.",
        _table(("kind", "bytes", "model", "gzip", "gzip, whole", "lzma", "lzma, whole"), map(_bits_row, e.kinds)),
    ]
    parts += _drafts_part(
        e.kinds,
        "### Drafts in greedy text",
        f"Steps of {s.prompts} greedy continuations a kind, of up to {s.new_tokens} tokens.",
        lambda kind: kind.generations.drafts if kind.generations else None,
    )
    parts += _drafts_part(
        e.kinds,
        "### Drafts in held-out text, judged by the model",
        f"One step from each of many places in held-out text, every {s.stride} tokens.",
        lambda kind: kind.verified,
    )
    parts += _drafts_part(
        e.kinds,
        "### Drafts in held-out text, judged by the text",
        "The same places; a draft is right if it is the byte that follows in the text.",
        lambda kind: kind.text,
    )
    written = [row for kind in e.kinds if (row := _written_row(kind)) is not None]
    if written:
        titles = (
            "kind",
            "texts",
            "ended",
            "held-out",
            "4-grams",
            "held-out",
            "word 4-grams",
            "held-out",
            "tokens a step",
        )
        parts += [
            "### Greedy text\n\n"
            "Ended: the share of texts that end within as many tokens, the model's and the documents'. "
            "4-grams: share of different ones in the text, next to that of the document's own continuation of the same "
            "length. Tokens a step: 1 without drafts, so this is also how many times fewer steps the target makes.",
            _table(titles, written),
        ]
    if e.agreements:
        columns = ("reference", "other", "same argmax", "KL, bits", "logits, mean", "logits, max", "bits a byte")
        parts += [
            "### Agreement\n\nLogits over each kind's first excerpts, differences after each row's mean is taken off.",
            _table(columns, map(_agreement_row, e.agreements)),
        ]
    return "\n\n".join(parts) + "\n"


def _drafts_part(
    kinds: Sequence[KindResult], title: str, how: str, chosen: Callable[[KindResult], Drafts | None]
) -> list[str]:
    rows = [(kind.kind, drafts) for kind in kinds if (drafts := chosen(kind)) is not None]
    if not rows:
        return []
    count = len(rows[0][1].accepted)
    columns = ("kind", "steps", "tokens a step", *(f"draft {k + 1}" for k in range(count)))
    legend = "A draft's share: it and those before it were accepted; after the slash, given that those before it were."
    cells = [(kind, str(drafts.length.samples), _estimate(drafts.length, 2), *_shares(drafts)) for kind, drafts in rows]
    return [f"{title}\n\n{how} {legend}", _table(columns, cells)]


def _shares(drafts: Drafts) -> list[str]:
    cells = []
    for accepted, given in zip(drafts.accepted, drafts.given_previous, strict=True):
        after = "" if given is None else f" / {given.value:.1%}"
        cells.append(f"{_percent(accepted)}{after}")
    return cells


def _bits_row(kind: KindResult) -> tuple[str, ...]:
    b = kind.bits
    others = (b.gzip_each, b.gzip_whole, b.lzma_each, b.lzma_whole)
    return kind.kind, f"{b.bytes}", _estimate(b.model, 3), *(f"{value:.2f}" for value in others)


def _written_row(kind: KindResult) -> tuple[str, ...] | None:
    g = kind.generations
    if g is None:
        return None
    grams = (g.distinct_tokens, g.held_out_tokens, g.distinct_words, g.held_out_words)
    return (
        kind.kind,
        str(g.prompts),
        _percent(g.ended),
        f"{g.held_out_ended:.0%}",
        *(f"{share:.1%}" for share in grams),
        f"{g.tokens_per_step:.2f}",
    )


def _agreement_row(a: Agreement) -> tuple[str, ...]:
    return (
        a.reference,
        a.other,
        _percent(a.argmax),
        f"{a.divergence:.2e}",
        f"{a.mean_difference:.2e}",
        f"{a.max_difference:.2e}",
        f"{a.reference_bits:.4f} → {a.other_bits:.4f}",
    )


def _estimate(estimate: Estimate, digits: int) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def _percent(share: Estimate) -> str:
    interval = "" if share.low is None or share.high is None else f" [{100 * share.low:.1f}, {100 * share.high:.1f}]"
    return f"{share.value:.1%}{interval}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
