"""What a launcher asks before it starts any rank must not import torch, which takes seconds and may be absent."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BLOCK_TORCH = "import sys; sys.modules['torch'] = None\n"


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", _BLOCK_TORCH + code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("EngineOptions(num_drafts=8)", "num_drafts is 8"),
        ("EngineOptions(dtype='int4')", "dtype 'int4' is unknown"),
        ("EngineOptions(context_len=5000).resolve_context_len(load_config('dsv4-tiny'))", "context_len is 5000"),
        ("EngineOptions(model='x').require_mtp(replace(load_config('dsv4-tiny'), num_nextn_predict_layers=0))", "MTP"),
        ("load_config('dsv4-nona')", "model dsv4-nona does not exist"),
        ("print(load_config(EngineOptions().model).hidden_size)", "192"),
        ("require_servable([320], max_new_tokens=1, context_len=9, vocab_size=320)", "token id 320"),
    ],
)
def test_options_and_prompts_are_refused(call, message):
    code = f"""
from dataclasses import replace
from dsv4_engine.checkpoint.configs import load_config
from dsv4_engine.errors import EngineError
from dsv4_engine.options import EngineOptions
from dsv4_engine.request import require_servable
try:
    {call}
except EngineError as error:
    print(error)
"""
    assert message in python(code)
