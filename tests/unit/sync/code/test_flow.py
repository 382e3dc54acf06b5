"""Paths through a function: which value reaches a call, and what tests before it told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sync.code.snippets import found, marked

CASES = {
    "the last assignment counts": """
        def f(m: torch.Tensor):
            n = m.sum().item()  # waits
            m = m.cpu()  # waits
            return m.nonzero(), m.sum().item(), n
        """,
    "an early return ends a path": """
        def f(x: torch.Tensor, ready: bool):
            if ready:
                x = torch.zeros(3)
                return x.tolist()
            return x.tolist()  # waits
        """,
    "both arms of a conditional expression": """
        def f(x: torch.Tensor, x_cpu: Optional[torch.Tensor]):
            a = (
                x_cpu.max().item()
                if x_cpu is not None
                else x.max().item()  # waits
            )
            return a
        """,
    "a host name bound to a device tensor": """
        def f(batch, x: torch.Tensor):
            x_cpu = getattr(batch, "x_cpu", None)
            if x_cpu is None:
                x_cpu = x
            return x_cpu.tolist()  # waits
        """,
    "a device name bound to a host copy": """
        def f(x: torch.Tensor):
            lens = x.cpu()  # waits
            return lens.tolist(), lens[0].item(), int(lens.sum())
        """,
    "isinstance": """
        def f(x: Union[torch.Tensor, List[int]]):
            if isinstance(x, list):
                return sum(x), x[0]
            return x.tolist()  # waits
        """,
    "a test of the device": """
        def f(x: torch.Tensor):
            if x.device.type == "cpu":
                return x.tolist()
            if x.is_cpu:
                return x.tolist()
            if not x.is_cuda:
                return x.tolist()
            return x.tolist()  # waits
        """,
    "an assertion about the device": """
        def f(x: torch.Tensor):
            a = x.sum().item()  # waits
            assert x.device.type == "cpu"
            return x.sum().item() + a
        """,
    "a test kept in a variable": """
        def f(lens: Optional[torch.Tensor]):
            usable = lens is not None and lens.device.type == "cpu"
            k = max(lens.tolist(), default=0) if usable else 1
            return k
        """,
    "a CPU-only switch": """
        _is_cpu = bool(0)
        def f(x: torch.Tensor):
            if _is_cpu:
                return x.tolist()
            return x.tolist()  # waits
        """,
    "an element of a loop": """
        def f(x: torch.Tensor, n: int):
            total = 0
            for i in range(n):
                total += int(x[i])  # waits
            for e in x.tolist():  # waits
                total += e
            return total
        """,
    "carried round a loop": """
        def f(x: torch.Tensor, n: int):
            y = torch.zeros(3)
            for _ in range(n):
                a = y.sum().item()  # waits
                y = x
            return a
        """,
    "a while loop on a tensor": """
        def f(x: torch.Tensor):
            while (x > 0).any():  # waits
                x = x - 1
            return x
        """,
    "element against slice": """
        def f(x: torch.Tensor, n: int):
            y = torch.zeros(n, device=x.device)
            y[0] = 0  # waits
            y[1:] = 0
            y[:n] = x[:n]
            return y
        """,
    "masks": """
        def f(x: torch.Tensor):
            m = x >= 0
            a = x[m]  # waits
            x[m] = 0
            x[m] = a  # waits
            return torch.where(m, x, 0)
        """,
    "try, with and match": """
        def f(x: torch.Tensor, kind: str):
            try:
                y = x.cpu()  # waits
            except RuntimeError:
                y = torch.zeros(3)
            with torch.no_grad():
                z = y.tolist()
            match kind:
                case "a":
                    return x.tolist()  # waits
                case _:
                    return z
        """,
    "comprehensions and lambdas": """
        def f(xs: List[torch.Tensor]):
            a = [x.item() for x in xs]  # waits
            b = [v + 1 for v in a]
            g = lambda t: t + 1
            return a, b, g(3), {k: v for k, v in zip(a, b)}
        """,
    "a walrus": """
        def f(x: torch.Tensor):
            if (y := x.cpu()) is not None:  # waits
                return y.tolist()
            return None
        """,
    "texts of errors are nobody's step": """
        def f(x: torch.Tensor, n: int):
            if n < 0:
                raise ValueError(f"{x} is bad")
            assert n > 0, f"{x}"
            return f"{x}"  # waits
        """,
    "keywords from a dict": """
        def f(x: torch.Tensor, n: int):
            kw = dict(dtype=torch.int32, device=x.device)
            return torch.tensor([1, 2], **kw)  # waits
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_found_exactly_where_it_waits(case: str, tmp_path: Path) -> None:
    lines, expected = marked(tmp_path, CASES[case])
    assert lines == expected


def test_a_finding_says_where_and_how_often(tmp_path: Path) -> None:
    (one,) = found(
        tmp_path,
        """
        class Backend:
            def forward(self, lens: torch.Tensor, flag: bool):
                for _ in range(3):
                    if flag:
                        n = int(
                            lens.max()
                        )
        """,
    )
    assert (one.code, one.function, one.loop, one.conditional) == ("DSV101", "Backend.forward", 1, True)
    assert one.text == "int(lens.max())"
    assert one.end_line == one.line + 2 == one.statement_end
    assert one.why is not None
    assert "lens" in one.why.chain()[0].text


def test_a_header_is_no_body(tmp_path: Path) -> None:
    (one,) = found(
        tmp_path,
        """
        def f(x: torch.Tensor):
            if x.any():
                y = 1
                z = 2
        """,
    )
    assert one.statement_line == one.statement_end


def test_the_same_value_read_twice(tmp_path: Path) -> None:
    twice = found(
        tmp_path,
        """
        def f(x: torch.Tensor, y: torch.Tensor, kernel):
            a = x.tolist()
            b = x.sum()
            c = x.tolist()
            d = y.tolist()
            kernel[(1,)](y)
            e = y.tolist()
            return a, b, c, d, e
        """,
    )
    again = [one for one in twice if one.code == "DSV112"]
    assert [one.text for one in again] == ["x.tolist()"]
    assert "line 6" in again[0].reason


def test_module_statements_count(tmp_path: Path) -> None:
    (one,) = found(tmp_path, 'n = torch.ones(3, device="cuda").tolist()\n')
    assert one.function == ""
