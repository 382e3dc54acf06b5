"""Announcements become names while recording and cost next to nothing otherwise."""

from __future__ import annotations

import timeit
from enum import Enum

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.model.annotation import parse_annotation  # noqa: E402
from dsv4prof.target.hooks import ProfilingHooks, SpanPass  # noqa: E402


class Phase(str, Enum):
    DRAFT = "draft"


def announce(hooks: ProfilingHooks, *, captured: bool = False, reason: str = "no runner") -> None:
    with (
        hooks.step(3, kind="decode", requests=2, rows=8),
        hooks.phase(Phase.DRAFT, requests=2, rows=8, captured=captured, reason=reason),
        hooks.span("attach_prefill_meta"),
    ):
        torch.ones(2)
    hooks.accepted(requests=2, tokens=5)


def names_of(hooks: ProfilingHooks) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        announce(hooks)
    return [event.name for event in profiler.events() if event.name.startswith("dsv4.")]


def test_the_names_say_what_was_announced() -> None:
    hooks = ProfilingHooks()
    hooks.annotate = True
    parsed = {one.kind: one for one in map(parse_annotation, names_of(hooks)) if one is not None}
    assert (parsed["step"].subject, parsed["step"].fields) == ("3", {"kind": "decode", "requests": "2", "rows": "8"})
    assert (parsed["phase"].subject, parsed["phase"].fields["graph"]) == ("draft", "eager")
    assert parsed["span"].subject == "attach_prefill_meta"
    assert parsed["accepted"].integer("tokens") == 5


def test_nothing_is_named_or_counted_while_off() -> None:
    hooks = ProfilingHooks()
    assert names_of(hooks) == []
    assert hooks.gates() == {}


def test_an_announcement_that_nobody_hears_costs_microseconds() -> None:
    hooks = ProfilingHooks()
    per_step = min(timeit.repeat(lambda: hooks.step(1, kind="decode", requests=1, rows=1), number=10_000, repeat=3))
    assert per_step / 10_000 < 5e-6


def test_gates_are_counted_with_their_reason_and_the_rarer_ones_kept() -> None:
    hooks = ProfilingHooks()
    hooks.annotate = True
    for _ in range(3):
        announce(hooks)
    announce(hooks, captured=True, reason="bucket 8")
    assert hooks.gates() == {
        "draft": {
            "captured": False, "reason": "no runner", "count": 3,
            "others": [{"captured": True, "reason": "bucket 8", "count": 1}],
        }
    }  # fmt: skip


def test_the_span_pass_looks_at_the_first_step_of_each_kind_only() -> None:
    hooks = ProfilingHooks()
    hooks.spans = SpanPass()
    for kind in ("prefill", "prefill", "decode", "decode"):
        with hooks.step(0, kind=kind, requests=1, rows=1), hooks.span("s"):
            torch.zeros(3)
    (site,) = [site for site in hooks.spans.calls.call_sites() if site.op == "aten::zeros"]
    assert (site.region, site.calls, hooks.spans.steps) == ("s", 2, 2)


def test_a_step_of_the_engine_is_a_step_of_whoever_watches_for_syncs() -> None:
    from dsv4prof.sync.runtime.watch import scopes

    class Listener:
        def __init__(self) -> None:
            self.seen: list[tuple[str, str, int | None]] = []

        def scope_entered(self, scope: scopes.Scope) -> None:
            self.seen.append((scope.kind, scope.path, scope.step))

        def scope_left(self, scope: scopes.Scope, opened: object, error: BaseException | None) -> None: ...

    listener = Listener()
    hooks = ProfilingHooks()
    scopes.listen(listener)
    try:
        announce(hooks)
    finally:
        scopes.unlisten(listener)
    announce(hooks)
    assert listener.seen == [
        ("step", "", 3),
        ("region", "draft", 3),
        ("region", "draft/attach_prefill_meta", 3),
    ]
