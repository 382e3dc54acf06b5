"""A number written to one element: only where no dimension remains."""

from __future__ import annotations

from pathlib import Path

from tests.unit.sync.code.snippets import marked


def test_rows_of_modules_and_of_deeper_views_are_filled(tmp_path: Path) -> None:
    lines, expected = marked(
        tmp_path,
        """
        class M(torch.nn.Module):
            def __init__(self):
                self.embed = torch.nn.Embedding(10, 4)
                self.project = torch.nn.Linear(4, 4)
                self.norm = torch.nn.LayerNorm(4)
            def forward(self, ids: torch.Tensor, x: torch.Tensor):
                rows = self.embed(ids)
                rows[0] = 5.0
                made = self.norm(self.project(rows))
                made[-1] = 0
                scaled = torch.softmax(made * 2, -1)
                scaled[0] = 1
                column = x[:, None]
                column[0] = 1
                deeper = x.unsqueeze(0)
                deeper[0] = 1
                column[0, 0] = 1  # waits
                last = made[0]
                flat = deeper.flatten()
                flat[0] = 1  # waits
                x[0] = 1  # waits
                best = made.argmax(-1)
                best[0] = 1  # waits
                return last
        """,
    )
    assert lines == expected
