"""Lists that grow, containers that attributes hold, and values that live here on one path and there on another."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.unit.sync.code.snippets import HEAD, audited, found, marked

CASES = {
    "a list that is extended": """
        def f(n: int, device):
            ids = []
            for i in range(n):
                ids.extend([i] * 3)
            more = list()
            more.extend(range(n))
            nothing = []
            nothing.extend([])
            a = torch.tensor(ids, device=device)  # waits
            b = torch.tensor(more, device=device)  # waits
            return a, b, torch.tensor(nothing, device=device)
        """,
    "a list of what is a tensor by its name alone": """
        def f(rows):
            ids = []
            for row in rows:
                ids.extend(row["input_ids"])
            return torch.tensor(ids)
        """,
    "a dict of an attribute into which host copies are put": """
        class Cache:
            def __init__(self):
                self.rows: dict[str, torch.Tensor] = {}
                self.others: dict[str, torch.Tensor] = {}
            def put(self, key, row: torch.Tensor):
                self.rows[key] = row.cpu()  # waits
                self.others[key] = row
            def read(self, key):
                return self.rows[key].tolist(), self.rows.get(key).tolist()
            def read_other(self, key):
                return self.others[key].tolist()  # waits
        class Child(Cache):
            def more(self, key, row: torch.Tensor):
                self.rows[key] = row.cpu()  # waits
            def again(self, key):
                return self.rows[key].tolist()
        """,
    "a number of a reduction": """
        class Batch:
            lens: torch.Tensor
            def longest(self):
                return int(self.lens.max())  # waits
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_places(tmp_path: Path, name: str) -> None:
    lines, expected = marked(tmp_path, CASES[name])
    assert lines == expected


def test_a_device_that_is_the_host_on_one_path(tmp_path: Path) -> None:
    made = found(
        tmp_path,
        """
        def f(group, slow: bool):
            device = group.device
            if slow:
                device = "cpu"
            t = torch.zeros(4).to(device)
            return t.cpu(), t.max().item()
        def g(group):
            t = torch.zeros(4, device=group.device)
            return t.max().item()
        """,
    )
    assert [(one.form, one.level, one.conditional) for one in made] == [
        ("cpu-method", "likely", True),
        ("item", "likely", True),
        ("item", "likely", False),
    ]


def test_output_size_of_lengths_that_is_no_sum(tmp_path: Path) -> None:
    body = """
        def unsaid(lens, ids, device, longest):
            repeats = torch.tensor(lens, device=device)
            torch.repeat_interleave(ids, repeats, output_size=sum(lens))
            torch.repeat_interleave(ids, repeats, output_size=longest * len(lens))  # likely
        def f(ids: torch.Tensor, lens: list[int], n: int, width: int, counts: torch.Tensor, counts_list, device):
            repeats = torch.tensor(lens, device=device)
            even = [n] * width
            same = torch.tensor(even, device=device)
            torch.repeat_interleave(ids, repeats, output_size=width * len(lens))  # likely
            torch.repeat_interleave(ids, repeats, output_size=max(lens) * len(lens))  # likely
            torch.repeat_interleave(ids, repeats, output_size=sum(lens))
            torch.repeat_interleave(ids, repeats, output_size=width)  # possible
            torch.repeat_interleave(ids, same, output_size=n * len(even))  # possible
            total = sum(counts_list)
            torch.repeat_interleave(ids, counts, output_size=total)
            torch.repeat_interleave(ids, counts, output_size=sum(lens))  # possible
    """
    text = HEAD + textwrap.dedent(body)
    expected = {number: line.rpartition("# ")[2] for number, line in enumerate(text.splitlines(), 1) if "# " in line}
    made = audited(tmp_path, {"m.py": text})
    assert {one.line: one.level for one in made.found if one.code == "DSV201"} == expected


def test_the_story_of_an_annotation_cites_the_declaration(tmp_path: Path) -> None:
    files = {
        "batch.py": """
        import torch
        class Batch:
            size: int
            lens: torch.Tensor
        """,
        "m.py": """
        import torch
        from batch import Batch
        def f(batch: Batch, x: torch.Tensor):
            y = x + 1
            return y.tolist(), batch.lens.tolist()
        """,
    }
    made = audited(tmp_path, files)
    stories = {(one.why.path, one.why.line) for one in made.found if one.why is not None}
    assert stories == {("batch.py", 5), ("m.py", 4)}


def test_one_attribute_of_two_objects_is_compared(tmp_path: Path) -> None:
    lines, expected = marked(
        tmp_path,
        """
        class Table:
            rows: torch.Tensor
        def f(one, other, x: torch.Tensor):
            return torch.equal(x, x), torch.equal(one.rows, other.rows)  # waits
        def g(x: torch.Tensor):
            return torch.equal(x, x)
        """,
    )
    assert lines == expected
