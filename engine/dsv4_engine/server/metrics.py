"""Counters, gauges and histograms in Prometheus' text format (version 0.0.4), and the ones that this server keeps."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

from dsv4_engine.server.engine_api import Stats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_GAUGES = {
    "num_running_reqs": ("running", "Requests in the running batch"),
    "num_queue_reqs": ("waiting", "Requests that wait for a slot or for pages"),
    "num_pages": ("num_pages", "Pages of the KV pool"),
    "free_pages": ("free_pages", "Pages that nobody holds"),
    "cached_pages": ("cached_pages", "Pages that the prefix cache holds"),
    "spec_accept_length": ("accept_length", "Tokens a verify gained on average since the start, bonus included"),
}
_HISTOGRAMS = {
    "time_to_first_token_seconds": "From a request's arrival to its first token",
    "inter_token_latency_seconds": "Between updates of one output, divided by the tokens of the later one",
    "e2e_request_latency_seconds": "From a request's arrival to its end",
}
_COUNTERS = {
    "prompt_tokens": "Prompt tokens of finished outputs",
    "cached_tokens": "Prompt tokens that the prefix cache had",
    "generation_tokens": "Output tokens",
}


class Histogram:
    """Observations in seconds, counted in buckets with fixed upper bounds."""

    def __init__(self, bounds: tuple[float, ...] = _SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += times
        self._sum += seconds * times

    def lines(self, name: str) -> list[str]:
        below, lines = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{name}_sum {self._sum:.9g}", f"{name}_count {below}"]


class Metrics:
    """Kept on the event loop's thread."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.tokens: Counter[str] = Counter(dict.fromkeys(_COUNTERS, 0))
        self.latency = {name: Histogram() for name in _HISTOGRAMS}

    def text(self, stats: Stats, *, model: str) -> str:
        """Everything, with the engine's figures of this moment."""
        lines: list[str] = []
        for name, (attribute, help_text) in _GAUGES.items():
            value = getattr(stats, attribute)
            lines += _block(name, "gauge", help_text, {"": value} if value is not None else {})
        for name, help_text in _COUNTERS.items():
            lines += _block(f"{name}_total", "counter", help_text, {"": self.tokens[name]})
        finished = {f'{{reason="{reason}"}}': count for reason, count in sorted(self.requests.items())}
        lines += _block("requests_total", "counter", "Outputs by why they ended", finished)
        refused = {f'{{status="{status}"}}': count for status, count in sorted(self.refused.items())}
        lines += _block("refused_requests_total", "counter", "Requests answered with an error", refused)
        for name, help_text in _HISTOGRAMS.items():
            lines += [*_head(name, "histogram", help_text), *self.latency[name].lines(f"dsv4_{name}")]
        lines += _block("model_info", "gauge", "The served model", {f'{{model_name="{_escaped(model)}"}}': 1})
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP dsv4_{name} {help_text}", f"# TYPE dsv4_{name} {kind}"]


def _block(name: str, kind: str, help_text: str, values: Mapping[str, float]) -> list[str]:
    return [*_head(name, kind, help_text), *(f"dsv4_{name}{labels} {value}" for labels, value in values.items())]


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
