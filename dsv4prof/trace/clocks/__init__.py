"""One clock for all ranks: collectives end everywhere at one time, so their ends tell how the ranks' clocks differ."""

from dsv4prof.trace.clocks.align import Align, Alignment, Arrival, align, arrows, correct
from dsv4prof.trace.clocks.candidates import is_candidate
from dsv4prof.trace.clocks.collect import RankCollectives, collect
from dsv4prof.trace.clocks.stragglers import Straggler

__all__ = [
    "Align",
    "Alignment",
    "Arrival",
    "RankCollectives",
    "Straggler",
    "align",
    "arrows",
    "collect",
    "correct",
    "is_candidate",
]
