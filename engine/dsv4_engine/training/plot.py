"""Losses of training runs as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsv4_engine.errors import EngineError
from dsv4_engine.training.log import Line

_HELD_OUT = "held_out/"
_SIZE = (11.0, 4.2)


def draw(runs: Mapping[str, Sequence[Line]], picture: Path) -> None:
    """Losses in training on the left; on the right held-out ones by kind, at each run's last evaluation.

    All in bits a token. EngineError for a run without training events, where matplotlib is missing, and where the
    file's ending is none that it writes.
    """
    for name, lines in runs.items():
        if not any(line["event"] == "train" and "loss" in line and "tokens" in line for line in lines):
            raise EngineError(f"the log of {name} tells of no training", hint="give the log.jsonl of a training folder")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EngineError("a picture needs the package matplotlib", hint="pip install matplotlib") from None
    figure = Figure(figsize=_SIZE, layout="constrained")
    training, held_out = figure.subplots(1, 2)
    for name, lines in runs.items():
        events = [line for line in lines if line["event"] == "train"]
        for loss, label in _curves(events).items():
            points = [(line["tokens"] / 1e6, line[loss] / math.log(2)) for line in events if loss in line]
            style = "-" if loss in ("main", "loss") else ":"
            training.plot(*zip(*points, strict=True), style, label=f"{name}: {label}", linewidth=1.3)
    training.set(xlabel="tokens, millions", ylabel="bits a token", title="Training")
    # The beginning of a long run would press the rest flat; a short one is all beginning.
    low, high = training.get_ylim()
    training.set_ylim(low, min(high, 4.0) if low < 2.0 else high)
    training.legend(fontsize=8)
    _bars(held_out, {name: _last_held_out(lines) for name, lines in runs.items()})
    try:
        figure.savefig(picture, dpi=110)
    except (OSError, ValueError) as error:
        raise EngineError(f"{picture} cannot be written: {error}", hint="choose a .png or .svg file") from None


def _curves(events: Sequence[Line]) -> dict[str, str]:
    """Which losses to draw, and how to call them. A run without parts has one loss."""
    names = {name for line in events for name in line}
    main = "main" if "main" in names else "loss"
    return {main: "next token"} | {n: n.replace("_", " ") for n in sorted(names) if n.startswith("draft_")}


def _last_held_out(lines: Sequence[Line]) -> dict[str, float]:
    events = [line for line in lines if line["event"].startswith(_HELD_OUT)]
    return {line["event"].removeprefix(_HELD_OUT): line["nats"] / math.log(2) for line in events}


def _bars(axes: Any, runs: Mapping[str, Mapping[str, float]]) -> None:
    kinds = sorted({kind for values in runs.values() for kind in values})
    width = 0.8 / max(len(runs), 1)
    for place, (name, values) in enumerate(runs.items()):
        left = [index - 0.4 + width * (place + 0.5) for index in range(len(kinds))]
        bars = axes.bar(left, [values.get(kind, 0.0) for kind in kinds], width, label=name)
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set(ylabel="bits a token", title="Held-out text, last evaluation")
    axes.margins(y=0.25)
    axes.legend(fontsize=8, ncols=len(runs))
