"""The draft-verify loops of another implementation: the engine must gain the same tokens in the same verifies."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal

import torch

from dsv4_engine.check.bounds import close_call
from dsv4_engine.check.forwards import prompt_bounds
from dsv4_engine.check.golden import GoldenSet
from dsv4_engine.check.ledger import Ledger
from dsv4_engine.check.manifest import SpecRun
from dsv4_engine.check.rank import CheckRank
from dsv4_engine.check.serving import serve
from dsv4_engine.options import MAX_DRAFTS
from dsv4_engine.request import RequestResult

_QUANTITIES = ("accept lengths", "spec tokens", "mean accept")


def check_spec(golden: GoldenSet, rank: CheckRank, ledger: Ledger) -> None:
    """Accept lengths, tokens and mean of every loop in the manifest."""
    spec = golden.manifest.spec
    if not golden.config.has_mtp or spec is None:
        why = "the manifest has no spec" if golden.config.has_mtp else "the model has no MTP layer"
        for quantity in _QUANTITIES:
            ledger.absent(quantity, why)
        if spec is not None:
            ledger.mismatch("accept lengths", "manifest", "has loops, but the config has no MTP layer to draft with")
        return
    known = {prompt.name for prompt in golden.prompts}
    runs = [run for run in spec if _can_run(run, known, ledger)]
    if not runs:
        return
    num_drafts, results = _first_fit(golden, rank, runs)
    logits = {prompt.name: prompt.get("greedy_logits") for prompt in golden.prompts}
    bound = prompt_bounds(golden).of("greedy_logits")
    for run in runs:
        _compare(run, results[run.prompt], logits[run.prompt], bound, ledger)
    _compare_mean(golden, results.values(), num_drafts, ledger)


def _can_run(run: SpecRun, known: Collection[str], ledger: Ledger) -> bool:
    """Whether a loop says enough to be repeated; where it does not, that is a mismatch."""
    if run.prompt not in known:
        ledger.mismatch("accept lengths", run.prompt, "the set has no such prompt")
    elif not run.accept_lens:
        ledger.mismatch("accept lengths", run.prompt, "the manifest's list is empty")
    elif not run.tokens:
        ledger.mismatch("spec tokens", run.prompt, "the manifest's list is empty")
    else:
        return True
    return False


def _first_fit(
    golden: GoldenSet, rank: CheckRank, runs: list[SpecRun]
) -> tuple[int, dict[str, RequestResult]]:
    """Drafts a step and results of the loops, whose window no file names.

    It is that of the golden draft chains, unless the recorded lengths leave room for another: then the first one that
    gives all of them exactly. Where none does, the results of the chains' window are the ones to report.
    """
    outputs = {run.prompt: run.num_output for run in runs}
    wanted = {prompt: outputs[prompt.name] for prompt in golden.prompts if prompt.name in outputs}
    fits = []
    for num_drafts in _possible_drafts(golden.num_drafts, runs):
        results = serve(golden, rank, wanted, num_drafts=num_drafts)
        fits.append((num_drafts, results))
        if all(results[run.prompt].accept_lens == run.accept_lens for run in runs):
            return num_drafts, results
    return fits[0]


def _possible_drafts(chains: int, runs: Iterable[SpecRun]) -> list[int]:
    longest = max(max(run.accept_lens) for run in runs)
    if longest == chains + 1:
        return [chains]
    others = range(max(longest - 1, 1), MAX_DRAFTS + 1)
    return [chains, *(num_drafts for num_drafts in others if num_drafts != chains)]


def _compare(
    run: SpecRun, ours: RequestResult, logits: torch.Tensor | None, bound: float, ledger: Ledger
) -> None:
    ledger.exact("accept lengths", run.prompt, _integers(ours.accept_lens), _integers(run.accept_lens))
    tokens, expected = _integers(ours.tokens), _integers(run.tokens)
    ledger.exact("spec tokens", run.prompt, tokens, expected, note=close_call(tokens, expected, logits, bound))
    ledger.lines.append(f"accept lengths {run.prompt}: {' '.join(map(str, ours.accept_lens))}")
    if ours.accept_lens != run.accept_lens:
        ledger.lines.append(f"      in the set {run.prompt}: {' '.join(map(str, run.accept_lens))}")


def _compare_mean(
    golden: GoldenSet, results: Iterable[RequestResult], num_drafts: int, ledger: Ledger
) -> None:
    gained = [accepted for result in results for accepted in result.accept_lens]
    mean = sum(gained) / len(gained)
    ledger.lines.append(f"mean accept length {mean:.4f} over {len(gained)} verifies, {num_drafts} drafts")
    if golden.manifest.mean_accept is None:
        ledger.absent("mean accept", "the manifest has no mean_accept")
        return
    ours, recorded = (torch.tensor(value, dtype=torch.float64) for value in (mean, golden.manifest.mean_accept))
    ledger.close("mean accept", "all", ours, recorded, _half_a_digit(golden.manifest.mean_accept))


def _half_a_digit(value: float) -> float:
    """Half of the last decimal place that is written, since a mean may have been rounded for its file."""
    exponent = Decimal(repr(float(value))).as_tuple().exponent
    assert isinstance(exponent, int), value
    return max(0.5 * 10.0**exponent, 1e-9)


def _integers(values: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)
