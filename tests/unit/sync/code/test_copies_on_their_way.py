"""Host copies that were started without a wait: read too early, or after something waited."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.unit.sync.code.snippets import HEAD, audited

CASES = {
    "pinned memory made here": """
        def f(t: torch.Tensor):
            pinned = torch.empty(4, pin_memory=True)
            pinned.copy_(t, non_blocking=True)
            return pinned[0].item()  # early
        """,
    "pinned by a method, filled by a slice": """
        def f(t: torch.Tensor):
            pinned = torch.zeros(4).pin_memory()
            pinned[:2].copy_(t, non_blocking=True)
            return pinned.sum().item()  # early
        """,
    "an attribute": """
        class Mirror:
            def __init__(self):
                self.host = torch.zeros(4, pin_memory=True)
            def pull(self, t: torch.Tensor):
                self.host.copy_(t, non_blocking=True)
                return self.host.tolist()  # early
        """,
    "as an array": """
        def f(t: torch.Tensor):
            pinned = torch.zeros(4, pin_memory=True)
            pinned.copy_(t, non_blocking=True)
            seen = pinned.numpy()
            first = seen[:2]
            return first[0], seen.sum()  # early
        """,
    "a condition": """
        def f(t: torch.Tensor):
            pinned = torch.zeros(4, pin_memory=True)
            pinned.copy_(t, non_blocking=True)
            if pinned[0] > 3:  # early
                return 1
        """,
    "an array waited for": """
        def f(t: torch.Tensor, done):
            pinned = torch.zeros(4, pin_memory=True)
            pinned.copy_(t, non_blocking=True)
            seen = pinned.numpy()
            done.synchronize()
            return seen[0], pinned.tolist()
        """,
    "asked until it is done": """
        def f(t: torch.Tensor, done):
            pinned = torch.zeros(4, pin_memory=True)
            pinned.copy_(t, non_blocking=True)
            done.record()
            while not done.query():
                pass
            return pinned.tolist()
        """,
    "a read of the same stream waits": """
        def f(x: torch.Tensor):
            h = x.to("cpu", non_blocking=True)
            n = x.sum().item()
            return h.tolist(), n
        """,
    "a read on one path alone does not": """
        def f(x: torch.Tensor, asked: bool):
            h = x.to("cpu", non_blocking=True)
            if asked:
                x.sum().item()
            return h.tolist()  # early
        """,
    "a read of another stream does not wait": """
        def f(x: torch.Tensor, side):
            with torch.cuda.stream(side):
                h = x.to("cpu", non_blocking=True)
            n = x.sum().item()
            return h.tolist(), n  # early
        """,
    "a read within the other stream waits": """
        def f(x: torch.Tensor, side):
            with torch.cuda.stream(side):
                h = x.to("cpu", non_blocking=True)
                n = x.sum().item()
            return h.tolist(), n
        """,
    "the host waits in a function of the project": """
        class Reader:
            def finish(self):
                self.done.synchronize()
            def f(self, x: torch.Tensor):
                h = x.to("cpu", non_blocking=True)
                self.finish()
                return h.tolist()
        """,
    "memory filled from the host": """
        def f(xs: list[int]):
            pinned = torch.zeros(4, pin_memory=True)
            pinned.copy_(torch.tensor(xs), non_blocking=True)
            return pinned.tolist()
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_a_copy_is_read_too_early_only_where_nothing_waited(tmp_path: Path, name: str) -> None:
    body = HEAD + textwrap.dedent(CASES[name])
    early = {line for line, text in enumerate(body.splitlines(), 1) if text.endswith("# early")}
    made = audited(tmp_path, {"m.py": body})
    assert {one.line for one in made.found if one.code == "DSV202" and one.level != "possible"} == early
