"""The way from a hot root to a finding."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.options import AuditOptions
from tests.unit.sync.code.snippets import audited

FILES = {
    "worker.py": """
        import torch
        from helpers import read
        class Plan:
            def length(self, x: torch.Tensor):
                return x.max().item()
        class Runner:
            def __init__(self, x: torch.Tensor):
                self.plan = Plan()
                self.first = x.tolist()
            def execute_model(self, x: torch.Tensor):
                self._prepare(x)
                return read(x)
            def _prepare(self, x: torch.Tensor):
                plan = self.plan
                return plan.length(x)
            def unused(self, x: torch.Tensor):
                return x.tolist()
            def capture_graphs(self, x: torch.Tensor):
                return self.lonely(x)
            def lonely(self, x: torch.Tensor):
                return x.cpu()
        """,
    "helpers.py": """
        import torch
        def read(x: torch.Tensor):
            return x.tolist()
        """,
}


def ways(folder: Path, **options: object) -> dict[str, list[str]]:
    return {one.function: [step.function for step in one.hot] for one in audited(folder, FILES, **options).found}


def test_shortest_way_through_calls_attributes_and_local_names(tmp_path: Path) -> None:
    assert ways(tmp_path) == {
        "read": ["Runner.execute_model", "read"],
        "Plan.length": ["Runner.execute_model", "Runner._prepare", "Plan.length"],
        "Runner.__init__": [],
        "Runner.unused": [],
        "Runner.lonely": [],
    }


def test_roots_and_ends_of_a_project(tmp_path: Path) -> None:
    got = ways(tmp_path, hot=("worker:*.unused",), cold=("*:*._prepare",))
    assert got["Runner.unused"] == ["Runner.unused"]
    assert got["Plan.length"] == []


def test_steps_say_where_they_are(tmp_path: Path) -> None:
    (one,) = [one for one in audited(tmp_path, FILES).found if one.function == "read"]
    assert [(step.path, step.line) for step in one.hot] == [("worker.py", 11), ("helpers.py", 3)]


def test_freeing_in_an_initialiser_is_no_stall_of_a_step(tmp_path: Path) -> None:
    files = {
        "m.py": """
            import torch
            class A:
                def __init__(self, n: int):
                    torch.cuda.empty_cache()
                def forward(self, n: int):
                    torch.cuda.empty_cache()
            """
    }
    levels = {one.function: one.level for one in audited(tmp_path, files).found if one.code == "DSV111"}
    assert levels == {"A.__init__": "possible", "A.forward": "likely"}


def test_loops_of_schedulers_are_roots_in_any_project(tmp_path: Path) -> None:
    made = audited(
        tmp_path,
        {
            "m.py": """
            import torch
            def event_loop():
                torch.cuda.synchronize()
            def get_or_create_event_loop():
                torch.cuda.synchronize()
            class Server:
                def event_loop_overlap(self):
                    torch.cuda.synchronize()
                def run_engine_loop(self):
                    self.turn()
                def turn(self):
                    torch.cuda.synchronize()
                def other(self):
                    torch.cuda.synchronize()
            """
        },
    )
    assert {one.function for one in made.found if one.hot} == {"event_loop", "Server.event_loop_overlap", "Server.turn"}


def test_a_pattern_that_matches_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import torch\n\n\ndef f(x: torch.Tensor):\n    return x.item()\n")
    options = AuditOptions(hot=("nope", "m:f"), cold=("*:g", "*:f"), cache_dir=None)
    assert audit(tmp_path, options).notes == [
        "--hot nope matches no function: the form is module:function, as globs",
        "--cold *:g matches no function",
    ]
    assert audit(tmp_path, AuditOptions(cache_dir=None)).notes == []
