"""From the lengths that speculative steps gained to means and shares."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dsv4_engine.training.evaluate.results import Drafts
from dsv4_engine.training.evaluate.statistics import mean_of, share_of


def drafts_of(
    lengths: Sequence[Sequence[int]], *, num_drafts: int, clusters: Sequence[Hashable] | None = None
) -> Drafts | None:
    """lengths: of each text, the tokens that its steps gained, 1 to num_drafts + 1; clusters: its document. None
    without any step.
    """
    mean = mean_of([float(sum(each)) for each in lengths], [len(each) for each in lengths], clusters=clusters)
    if mean is None:
        return None
    # reached[k]: of each text, the steps that gained more than k tokens: draft k - 1 and all before it were right.
    reached = [[sum(length > k for length in each) for each in lengths] for k in range(num_drafts + 1)]
    steps = reached[0]
    shares = [share_of(hits, steps, clusters=clusters) for hits in reached[1:]]
    return Drafts(
        length=mean,
        accepted=tuple(share for share in shares if share is not None),
        given_previous=tuple(share_of(reached[k + 1], reached[k], clusters=clusters) for k in range(num_drafts)),
        lengths=tuple(sum(each.count(k + 1) for each in map(list, lengths)) for k in range(num_drafts + 1)),
    )
