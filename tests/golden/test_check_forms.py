"""Sets that are not of the agreed form: a sentence and exit 2, so that no fault of theirs reads as the engine's."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dsv4_engine.check.ranks
from dsv4_engine.check.__main__ import main
from dsv4_engine.check.golden import read_golden
from dsv4_engine.errors import EngineError
from engine_batches import GOLDEN
from golden_sets import change, change_manifest, small_copy


@pytest.fixture
def folder(tmp_path) -> Path:
    return small_copy(tmp_path / "set")


def refusal(folder: Path) -> str:
    with pytest.raises(EngineError) as caught:
        read_golden(folder)
    assert caught.value.hint and "\n" not in caught.value.message
    return caught.value.message


def put(folder: Path, file: str, key: str, value) -> None:
    """Replace a tensor with what `value` makes of it."""
    change(folder, file, lambda tensors: tensors | {key: value(tensors[key]).contiguous()})


def scalar(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten()[0].clone()


@pytest.mark.parametrize(
    ("entry", "value", "named"),
    [
        ("prompt_lens", 3, "prompt_lens"),
        ("prompt_lens", ["3"], "prompt_lens"),
        ("prompt_lens", [0], "prompt_lens"),
        ("gen", "40", "gen is '40'"),
        ("gen", 0, "gen is 0"),
        ("gen", 39.5, "gen is 39.5"),
        ("mean_accept", math.inf, "mean_accept is inf"),
        ("mean_accept", math.nan, "mean_accept is nan"),
        ("mean_accept", 10**400, "mean_accept is 1000"),
        ("mean_accept", True, "mean_accept is True"),
        ("spec", [1], "spec is no object"),
        ("spec", {"33": None}, "spec 33 has no accept_lens"),
        ("spec", {"33": {"accept_lens": ["1"], "tokens": [1]}}, "spec 33 has no accept_lens"),
        ("spec", {"33": {"accept_lens": [None], "tokens": [1]}}, "spec 33 has no accept_lens"),
        ("spec", {"33": {"accept_lens": [1.0], "tokens": [1]}}, "spec 33 has no accept_lens"),
        ("spec", {"33": {"accept_lens": [0], "tokens": [1]}}, "spec 33 has no accept_lens"),
        ("spec", {"33": {"accept_lens": [1], "tokens": "12"}}, "spec 33 has no tokens"),
        ("spec", {"33": {"accept_lens": [1], "tokens": [10**30]}}, "spec 33 has no tokens"),
    ],
)
def test_manifest_entries(folder, entry, value, named):
    change_manifest(folder, lambda manifest: manifest.update({entry: value}))
    assert f"manifest.json: {named}" in refusal(folder)


def test_a_manifest_may_leave_everything_out(folder):
    (folder / "manifest.json").write_text('{"prompt_lens": null, "gen": null, "spec": null, "mean_accept": null}')
    manifest = read_golden(folder).manifest
    assert (manifest.prompts, manifest.num_generated, manifest.spec, manifest.mean_accept) == ((), None, None, None)


@pytest.mark.parametrize("name", ["manifest.json", "config.json"])
def test_deeply_nested_files(folder, name):
    (folder / name).write_text("[" * 100_000)
    assert f"{name} is nested too deeply" in refusal(folder)


@pytest.mark.parametrize(
    ("file", "key", "value", "named"),
    [
        ("golden", "p33.greedy", scalar, "p33.greedy is int64 of shape []"),
        ("golden", "p33.greedy", torch.Tensor.float, "p33.greedy is float32"),
        ("golden", "p33.mtp_chain", scalar, "p33.mtp_chain is int64 of shape []"),
        ("golden", "p33.logits", lambda t: t[None], "p33.logits is float32 of shape [1, 33, 320]"),
        ("golden", "p33.logits", torch.Tensor.long, "p33.logits is int64"),
        ("golden", "p33.input_ids", torch.Tensor.float, "p33.input_ids is float32"),
        ("golden", "p33.input_ids", torch.Tensor.bool, "p33.input_ids is bool"),
        ("golden", "p33.input_ids", lambda t: t[:0], "p33.input_ids is empty"),
        ("trace", "input_ids", torch.Tensor.float, "input_ids is float32"),
        ("trace", "input_ids", scalar, "input_ids is int64 of shape []"),
        ("trace", "input_ids", lambda t: torch.stack((t, t)), "input_ids is int64 of shape [2, 140]"),
        ("trace", "input_ids", lambda t: t[:0], "input_ids is empty"),
        ("trace", "input_ids", lambda t: t + 320, "input_ids leaves the vocabulary of 320"),
        ("trace", "input_ids", lambda t: t - 320, "input_ids leaves the vocabulary of 320"),
        ("trace", "L1.index_topk", scalar, "L1.index_topk is int64 of shape []"),
        ("trace", "L1.router_indices", torch.Tensor.float, "L1.router_indices is float32"),
        ("trace", "L1.attn_out", torch.Tensor.bool, "L1.attn_out is bool"),
        ("quant/golden_weight_dequant_only", "p9.input_ids", torch.Tensor.float, "p9.input_ids is float32"),
    ],
)
def test_tensors_of_another_form(folder, file, key, value, named):
    put(folder, file, key, value)
    message = refusal(folder)
    assert named in message and f"{file}.safetensors" in message


@pytest.mark.parametrize(
    ("file", "keep", "named"),
    [
        ("trace", lambda key: key != "input_ids", "trace.safetensors: input_ids is missing"),
        ("golden", lambda key: key != "p33.input_ids", "p33.input_ids is missing"),
        ("golden", lambda key: False, "golden.safetensors holds no prompt"),
        ("quant/golden_weight_dequant_only", lambda key: False, "holds no prompt"),
        ("quant/golden_weight_dequant_only", lambda key: key != "p9.input_ids", "p9.input_ids is missing"),
    ],
)
def test_files_without_what_is_needed(folder, file, keep, named):
    change(folder, file, lambda tensors: {key: tensor for key, tensor in tensors.items() if keep(key)})
    assert named in refusal(folder)


@pytest.mark.parametrize(
    ("limit", "quant_limit", "named"),
    [
        (33, 4096, "golden.safetensors needs a context of 73 tokens"),
        (100, 4096, "trace.safetensors needs a context of 140 tokens"),
        (4096, 20, "quant needs a context of 33 tokens"),
    ],
)
def test_prompts_longer_than_the_model_allows(folder, limit, quant_limit, named):
    for part, value in (("config.json", limit), ("quant/config.json", quant_limit)):
        config = json.loads((folder / part).read_text()) | {"max_position_embeddings": value}
        (folder / part).write_text(json.dumps(config))
    assert named in refusal(folder)


def test_integers_of_any_width_and_a_batch_of_one_are_the_same_ids(folder):
    before = read_golden(folder)
    put(folder, "trace", "input_ids", lambda t: t[None].to(torch.int32))
    put(folder, "trace", "L1.router_indices", lambda t: t.to(torch.uint8))
    after = read_golden(folder)
    assert torch.equal(before.trace["input_ids"], after.trace["input_ids"])
    assert torch.equal(before.trace["L1.router_indices"], after.trace["L1.router_indices"])


def test_a_list_of_tokens_longer_than_its_accept_lengths_costs_no_more_steps(folder):
    change_manifest(folder, lambda m: m["spec"]["33"].update(tokens=m["spec"]["33"]["tokens"] * 1000))
    [run] = read_golden(folder).manifest.spec
    assert len(run.tokens) == 40_000 and run.num_output == 1 + sum(run.accept_lens) + 7
    change_manifest(folder, lambda m: m["spec"]["33"].update(accept_lens=[10**9, 2]))
    [run] = read_golden(folder).manifest.spec
    assert run.num_output == 1 + 8 + 2 + 7


def test_the_command_says_what_it_cannot_read(folder, capsys):
    change_manifest(folder, lambda manifest: manifest.update(prompt_lens=3))
    assert main([str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and "\nhint: " in printed.err


def test_a_fault_of_the_check_is_no_mismatch(folder, capsys, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(dsv4_engine.check.ranks, "check_folder", broken)
    with pytest.raises(SystemExit) as caught:
        main([str(folder)])
    printed = capsys.readouterr()
    assert caught.value.code == 2 and printed.out == ""
    assert "error: internal error: ZeroDivisionError('oops')" in printed.err and "Traceback" in printed.err


def test_without_torch_it_says_how_to_get_it():
    block = "import sys; sys.modules['torch'] = None\n"
    code = block + "from dsv4_engine.check.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    run = subprocess.run([sys.executable, "-c", code, str(GOLDEN)], capture_output=True, text=True)
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr == "error: the check needs the package 'torch'\nhint: pip install 'dsv4prof[engine]'\n"
