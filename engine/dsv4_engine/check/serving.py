"""The serving loop against the golden tokens: plain, and with MTP, whose accept lengths must be the set's as well."""

from __future__ import annotations

import torch

from dsv4_engine.check.golden import GoldenSet
from dsv4_engine.check.ledger import Ledger
from dsv4_engine.engine import Engine
from dsv4_engine.options import MAX_DRAFTS, EngineOptions
from dsv4_engine.parallel.group import TensorParallelGroup
from dsv4_engine.request import RequestResult

_ROUNDING = 1e-9
_SPEC_QUANTITIES = ("accept lengths", "spec tokens", "mean accept")


def check_serving(golden: GoldenSet, group: TensorParallelGroup, ledger: Ledger) -> None:
    """All prompts through the engine, in chunks and batches, once without and once with drafts."""
    plain = _serve(golden, group, num_drafts=0)
    _check_tokens("plain tokens", golden, plain, ledger)
    drafts = golden.num_drafts
    if not golden.config.has_mtp or not 1 <= drafts <= MAX_DRAFTS:
        why = f"the set drafts {drafts} tokens" if golden.config.has_mtp else "the model has no MTP layer"
        for quantity in ("mtp tokens", *_SPEC_QUANTITIES):
            ledger.absent(quantity, why)
        return
    speculative = _serve(golden, group, num_drafts=drafts)
    _check_tokens("mtp tokens", golden, speculative, ledger)
    _check_spec(golden, speculative, ledger)


def _serve(golden: GoldenSet, group: TensorParallelGroup, *, num_drafts: int) -> dict[str, RequestResult]:
    options = EngineOptions(
        model=str(golden.folder), num_drafts=num_drafts, context_len=golden.context_len, exact_num_tokens=True
    )
    engine = Engine(options, group=group)
    ids = {
        prompt.name: engine.add(prompt.ids, max_new_tokens=prompt.num_output, ignore_eos=True)
        for prompt in golden.prompts
        if prompt.num_output
    }
    while engine.has_work:
        engine.step()
    assert engine.num_free_slots == options.max_requests, "a finished request kept its cache slot"
    return {name: engine.result(request) for name, request in ids.items()}


def _check_tokens(quantity: str, golden: GoldenSet, served: dict[str, RequestResult], ledger: Ledger) -> None:
    for prompt in golden.prompts:
        tokens = served[prompt.name].tokens if prompt.name in served else ()
        ledger.exact(quantity, prompt.name, torch.tensor(tokens, dtype=torch.int64), prompt.get("greedy"))


def _check_spec(golden: GoldenSet, served: dict[str, RequestResult], ledger: Ledger) -> None:
    if golden.spec is None:
        for quantity in _SPEC_QUANTITIES:
            ledger.absent(quantity, "the manifest has no spec")
        return
    pooled: list[int] = []
    for run in golden.spec:
        if run.prompt not in served:
            ledger.mismatch("accept lengths", run.prompt, "the set has no such prompt")
            continue
        ours = served[run.prompt]
        pooled += ours.accept_lens
        _exact(ledger, "accept lengths", run.prompt, ours.accept_lens, run.accept_lens)
        _exact(ledger, "spec tokens", run.prompt, ours.tokens, run.tokens)
        ledger.lines.append(f"accept lengths {run.prompt}: {' '.join(map(str, ours.accept_lens))}")
        if ours.accept_lens != run.accept_lens:
            ledger.lines.append(f"      in the set {run.prompt}: {' '.join(map(str, run.accept_lens))}")
    if golden.mean_accept is None:
        ledger.absent("mean accept", "the manifest has no mean_accept")
    elif pooled:
        mean = sum(pooled) / len(pooled)
        both = torch.tensor([mean, golden.mean_accept], dtype=torch.float64)
        ledger.close("mean accept", "all", both[0], both[1], _ROUNDING)
        ledger.lines.append(f"mean accept length {mean:.4f} over {len(pooled)} verifies, {golden.num_drafts} drafts")


def _exact(ledger: Ledger, quantity: str, where: str, ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    ledger.exact(quantity, where, torch.tensor(ours, dtype=torch.int64), torch.tensor(theirs, dtype=torch.int64))
