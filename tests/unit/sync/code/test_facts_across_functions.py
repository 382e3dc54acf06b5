"""What classes, other functions and callers tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sync.code.snippets import audited, found, marked

CASES = {
    "fields of a dataclass": """
        from dataclasses import dataclass
        @dataclass
        class Batch:
            lens: torch.Tensor
            lens_cpu: Optional[torch.Tensor]
            names: List[str]
            topk: int
        def f(b: "Batch", r: torch.Tensor):
            n = b.lens.max().item()  # waits
            m = b.lens_cpu.max().item()
            return r.repeat_interleave(b.topk), r.repeat_interleave(b.lens), b.names[0], n, m  # waits
        """,
    "attributes of a class and its base": """
        class Base:
            def __init__(self, n: int, device: str):
                self.rows = torch.zeros(n, device="cuda")
                self.host = torch.zeros(n)
                self.n = n
        class Child(Base):
            def forward(self):
                a = self.rows.tolist()  # waits
                b = self.host.tolist()
                return a, b, self.n.bit_length()
        """,
    "a property": """
        class A:
            def __init__(self, x: torch.Tensor):
                self._x = x
            @property
            def mask(self):
                return self._x > 0
            @property
            def size(self) -> int:
                return 3
        def f(a: A, y: torch.Tensor):
            return y[a.mask], y[a.size]  # waits
        """,
    "what a function gives back": """
        def on_host(n: int):
            return torch.arange(n)
        def on_device(x: torch.Tensor):
            return x.cumsum(0)
        def lens_cpu(x) -> torch.Tensor:
            return x.lookup()
        def f(x: torch.Tensor):
            a = on_host(3).tolist()
            b = on_device(x).tolist()  # waits
            c = lens_cpu(x).tolist()
            return a, b, c
        """,
    "a function run with the arguments of the call": """
        def shifted(x: torch.Tensor):
            return x + 1
        def f(x: torch.Tensor, x_cpu: torch.Tensor):
            return [
                shifted(x_cpu).tolist(),
                shifted(x).tolist(),  # waits
            ]
        """,
    "a parameter that every caller fills from the host": """
        def total(lens: torch.Tensor):
            return lens.sum().item()
        def f(n: int):
            return total(torch.arange(n))
        def g(x_cpu: torch.Tensor):
            return total(x_cpu)
        """,
    "a parameter without annotation that a caller fills": """
        def first(row):
            return torch.empty(int(row[0]))  # waits
        def f(x: torch.Tensor):
            return first(x)
        """,
    "a total that defaults to None": """
        def spread(r: torch.Tensor, lens: torch.Tensor, *, n: Optional[int] = None):
            return torch.repeat_interleave(r, lens, output_size=n)  # waits
        def f(r: torch.Tensor, lens: torch.Tensor):
            return spread(r, lens)
        """,
    "a nested function takes the arguments of its calls": """
        def walk(tokens: torch.Tensor, tokens_cpu: torch.Tensor):
            def visit(i: int, row: torch.Tensor):
                return int(row[i])
            return visit(0, tokens_cpu)
        """,
    "a partial keeps its keywords": """
        import functools
        def f(x: torch.Tensor):
            make = functools.partial(torch.tensor, dtype=torch.int32, device=x.device)
            return make([1, 2])  # waits
        """,
    "a module called as a function": """
        class Layer(torch.nn.Module):
            def forward(self, x: torch.Tensor):
                return x * 2
        class Model(torch.nn.Module):
            def __init__(self):
                self.layer = Layer()
            def forward(self, x: torch.Tensor):
                return self.layer(x).tolist()  # waits
        """,
    "kernels are no host code": """
        import triton
        @triton.jit
        def kernel(x: torch.Tensor):
            if x[0] > 0:
                return int(x[0])
        def f(x: torch.Tensor):
            @triton.jit
            def inner(y: torch.Tensor):
                return int(y[0])
            kernel[(1,)](x)
        """,
    "a class for CPUs": """
        class CPUAttentionBackend:
            def build(self, lens: torch.Tensor):
                return lens.max().item()
        class CPUOffloadHandler:
            def build(self, lens: torch.Tensor):
                return lens.max().item()  # waits
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_found_exactly_where_it_waits(case: str, tmp_path: Path) -> None:
    lines, expected = marked(tmp_path, CASES[case])
    assert lines == expected


def test_a_guess_by_name_is_only_possible_until_something_shows_a_tensor(tmp_path: Path) -> None:
    shown = "def f(slot_offsets, n: int):\n    d = (slot_offsets[1:] - slot_offsets[:-1]).cumsum(0)\n"
    read = "    return int(slot_offsets[n])\n"
    assert [one.line for one in found(tmp_path / "a", "import torch\n" + shown + read)] == [7]
    assert found(tmp_path / "b", "import torch\ndef f(slot_offsets, n: int):\n" + read) == []


def test_mirrors_of_a_project(tmp_path: Path) -> None:
    body = "def f(lens_shadow: torch.Tensor):\n    return lens_shadow.tolist()\n"
    assert len(found(tmp_path, body)) == 1
    assert found(tmp_path, body, mirrors=("*_shadow",)) == []


def test_names_across_modules(tmp_path: Path) -> None:
    files = {
        "app/pkg/__init__.py": "from .facts import Batch as Batch\n",
        "app/pkg/facts.py": "import torch\nclass Batch:\n    lens: torch.Tensor\n    total: int\n",
        "app/pkg/deep/use.py": """
            from __future__ import annotations
            import torch
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                from ..facts import Batch
            def f(b: Batch, x: torch.Tensor):
                return b.lens.tolist(), x[: b.total]
            """,
        "app/absolute.py": "import torch\nimport app.pkg as p\ndef f(b: p.Batch):\n    return b.lens.tolist()\n",
        "app/star.py": "import torch\nfrom app.pkg import *\ndef f(b: Batch):\n    return b.lens.tolist()\n",
    }
    got = audited(tmp_path, files)
    assert [(one.path, one.code) for one in got.found] == [
        ("app/absolute.py", "DSV102"),
        ("app/pkg/deep/use.py", "DSV102"),
        ("app/star.py", "DSV102"),
    ]
    # From a folder within, absolute names still lead to the same files.
    inner = audited(tmp_path / "app", {})
    assert [one.path for one in inner.found] == ["absolute.py", "pkg/deep/use.py", "star.py"]


def test_a_form_of_older_versions_is_not_reported(tmp_path: Path) -> None:
    body = "def f(n: int):\n    x = torch.zeros(n, device='cuda')\n    x[0] = 5\n"
    assert [one.form for one in found(tmp_path, body, torch_version="2.13.1")] == ["assign-element-number"]
    assert found(tmp_path, body, torch_version="2.14.0+cu130") == []


def test_every_definition_of_a_name_is_looked_at(tmp_path: Path) -> None:
    lines, expected = marked(
        tmp_path,
        """
        flag = bool(1)
        if flag:
            def f(n: int):
                return n
        else:
            def f(n: torch.Tensor, m: int):
                return n.item()  # waits
        from typing import overload
        @overload
        def g(n: int): ...
        @overload
        def g(n: str): ...
        def g(n: torch.Tensor):
            return n.item()  # waits
        class A:
            @property
            def x(self):
                return 1
            @x.setter
            def x(self, value: torch.Tensor):
                self._x = value.item()  # waits
        """,
    )
    assert lines == expected


def test_classes_outside_the_root_are_known_and_not_reported(tmp_path: Path) -> None:
    files = {
        "app/__init__.py": "",
        "app/batch/__init__.py": "from app.batch.plain import Batch\n",
        "app/batch/plain.py": """
            import torch
            class Batch:
                lens: list[int]
                def f(self, x: torch.Tensor):
                    x.item()
            """,
        "app/use/absolute.py": """
            import torch
            from app.batch import Batch
            def f(b: Batch, x: torch.Tensor):
                if isinstance(b.lens, torch.Tensor):
                    return 0
                return int(sum(b.lens)), x[: b.lens[0]], x.item()
            """,
        "app/use/relative.py": """
            import torch
            from ..batch import Batch
            def f(b: Batch):
                return torch.tensor(b.lens, device="cuda")
            """,
    }
    everything = audited(tmp_path, files).found
    some = audited(tmp_path / "app" / "use", {}).found
    assert [(one.line, one.form) for one in some] == [
        (one.line, one.form) for one in everything if one.path.startswith("app/use/")
    ]
    assert {one.path for one in some} == {"absolute.py", "relative.py"}


def test_values_of_a_dict_by_key(tmp_path: Path) -> None:
    lines, expected = marked(
        tmp_path,
        """
        def f(x: torch.Tensor, flag: bool):
            held = {"ids": x, "cached": flag, "late": None}
            if held["cached"] and held.get("late") is None:
                held["late"] = x.cpu()  # waits
            if held["ids"].any():  # waits
                return held["late"].tolist()
        """,
    )
    assert lines == expected


def test_a_test_for_debugging_is_no_step(tmp_path: Path) -> None:
    got = found(
        tmp_path,
        """
        import os
        class A:
            def forward(self, x: torch.Tensor):
                if os.environ.get("X_DEBUG_BOUNDS") == "1":
                    x.item()
                return x.tolist()
        """,
    )
    assert [(one.code, one.cold, bool(one.hot)) for one in got] == [("DSV101", True, False), ("DSV102", False, True)]


def test_inputs_that_are_declared_to_stay_on_the_host(tmp_path: Path) -> None:
    lines, expected = marked(
        tmp_path,
        """
        def fields(config, sizes):
            return dict(
                pixels=config.batched("image"),
                image_grid=config.flat("image", sizes(1), keep_on_cpu=True),
            )
        def f(pixels: torch.Tensor, image_grid: torch.Tensor, grids: torch.Tensor, inputs: dict):
            inputs["image_grid"].tolist()
            return pixels.tolist(), image_grid.tolist(), grids.tolist()  # waits
        """,
    )
    assert lines == expected


@pytest.mark.parametrize("folder", ["src", "python/deep"])
def test_a_package_in_a_folder_of_the_root(folder: str, tmp_path: Path) -> None:
    files = {
        f"{folder}/pkg/__init__.py": "",
        f"{folder}/pkg/batch.py": "import torch\nclass Batch:\n    total: int\n    lens: torch.Tensor\n",
        f"{folder}/pkg/use.py": """
            import torch
            from pkg.batch import Batch
            def f(b: Batch, x: torch.Tensor):
                return x[: b.total], b.lens.tolist()
            """,
        "tests/test_it.py": "import torch\nfrom pkg.batch import Batch\ndef f(b: Batch):\n    return b.lens.item()\n",
    }
    got = audited(tmp_path, files)
    assert [(one.path, one.code) for one in got.found] == [
        (f"{folder}/pkg/use.py", "DSV102"),
        ("tests/test_it.py", "DSV101"),
    ]


def test_a_helper_that_returns_several_takes_the_arguments_of_the_call(tmp_path: Path) -> None:
    lines, expected = marked(
        tmp_path,
        """
        class A:
            def parts(self, lens: torch.Tensor, n: int):
                starts = torch.arange(n, device=lens.device)
                return starts, lens - starts
            def forward(self, lens: torch.Tensor, n: int):
                a, b = self.parts(lens, n)
                c, d = self.parts(torch.arange(n), n)
                return b.tolist(), a.tolist()  # waits
            def host(self, n: int):
                c, d = self.parts(torch.arange(n), n)
                return c.tolist(), d.tolist()
        """,
    )
    assert lines == expected
