"""Code that is compiled for a device: interpreted, run eagerly, or refused in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from dsv4prof.sync.runtime.shadow import ShadowDevice

KERNEL = """
import torch, triton, triton.language as tl
from dsv4prof.errors import UsageError
from dsv4prof.sync.runtime.shadow import ShadowDevice

@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

seen = []
with ShadowDevice("cuda", seen.append):
    x, y = torch.arange(10.0, device="cuda"), torch.zeros(10, device="cuda")
    try:
        add_one[(2,)](x, y, 10, BLOCK=8)
        print(y[9].item(), len(seen))
    except UsageError as error:
        print(error.message, "|", error.hint)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with torch for CUDA or ROCm")
@pytest.mark.parametrize("interpret", [True, False])
def test_a_triton_kernel_is_interpreted_or_refused(interpret: bool, tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env |= {"TRITON_INTERPRET": "1"} if interpret else {}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, check=False)
    expected = "10.0 1" if interpret else "add_one is compiled for a device, and a shadow device has none | set TRITON"
    assert done.stdout.startswith(expected), done.stderr


def test_compiled_functions_run_eagerly() -> None:
    with ShadowDevice("cuda", lambda _: None):

        @torch.compile(dynamic=True)
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        x = torch.ones(2, device="cuda")
        assert double(x).tolist() == [2, 2]
        assert torch.compile(double)(x).tolist() == [2, 2]


def test_attention_of_any_kind() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    with ShadowDevice("cuda", lambda _: None):
        q_, k_, v_ = (one.cuda() for one in (q, k, v))
        mask = torch.ones(4, 4, dtype=torch.bool, device="cuda").tril()
        results = [attend(q_, k_, v_).cpu(), attend(q_, k_, v_, is_causal=True).cpu(), attend(q_, k_, v_, mask).cpu()]
    expected = attend(q, k, v), attend(q, k, v, is_causal=True)
    torch.testing.assert_close(results, [*expected, expected[1]])


def test_what_the_cpu_cannot_compute_ends_in_a_sentence() -> None:
    library = torch.library.Library("dsv4prof_test", "FRAGMENT")
    library.define("only_on_a_device(Tensor x) -> Tensor")
    with ShadowDevice("cuda", lambda _: None):
        x = torch.ones(2, device="cuda")
        with pytest.raises(NotImplementedError, match="a shadow device computes on the CPU, and there dsv4prof_test"):
            torch.ops.dsv4prof_test.only_on_a_device(x)
        scripted = torch.jit.script(torch.nn.Linear(2, 2))
        with pytest.raises(RuntimeError, match="held by C\\+\\+"):
            scripted.to("cuda")
