"""The check on sets of other shapes, lengths and draft windows, computed by the slow model."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsv4_engine.check.__main__ import main
from golden_sets import SetWriter

TWO_STREAMS = {
    "hc_mult": 2, "hc_sinkhorn_iters": 3, "hidden_size": 24, "num_hidden_layers": 3, "num_hash_layers": 0,
    "compress_ratios": [128, 4, 0, 0], "num_attention_heads": 6, "head_dim": 20, "qk_rope_head_dim": 12,
    "o_groups": 3, "o_lora_rank": 5, "q_lora_rank": 14, "n_routed_experts": 5, "num_experts_per_tok": 3,
    "moe_intermediate_size": 10, "routed_scaling_factor": 2.5, "index_n_heads": 12, "index_head_dim": 28,
    "index_topk": 40, "sliding_window": 9, "vocab_size": 50, "bos_token_id": 3, "eos_token_id": [7, 9],
}  # fmt: skip
NO_MTP = TWO_STREAMS | {
    "hc_mult": 3, "num_hidden_layers": 2, "num_hash_layers": 2, "compress_ratios": [4, 0],
    "num_nextn_predict_layers": 0, "index_topk": 3, "vocab_size": 29,
}  # fmt: skip


@pytest.fixture(
    scope="module",
    # The longer windows take the naive reference half a minute; the shorter ones go through the same comparisons.
    params=[
        pytest.param((3, 5), id="longer windows", marks=pytest.mark.slow),
        pytest.param((4, 2), id="shorter windows"),
    ],
)
def folder(request, tmp_path_factory):
    """A set whose loops draft more, or fewer, tokens than its chains have."""
    chain, loop_drafts = request.param
    folder = tmp_path_factory.mktemp("sets") / "set"
    writer = SetWriter(folder, TWO_STREAMS, generated=7, chain=chain, loop_drafts=loop_drafts)
    writer.write([1, 2, 14, 30, 126], loops=[2, 30, 126], traced=133)
    return folder


def check(folder, capsys) -> tuple[int, str]:
    status = main([str(folder)])
    return status, capsys.readouterr().out


def test_another_shape_agrees_in_everything_it_has(folder, capsys):
    status, printed = check(folder, capsys)
    assert status == 0, printed
    assert printed.rstrip().endswith("absent: quant logits")
    lens = json.loads((folder / "manifest.json").read_text())["spec"]["30"]["accept_lens"]
    assert f"accept lengths p30: {' '.join(map(str, lens))}" in printed
    assert "mtp tokens               5         equal" in printed


def test_its_loops_accept_something(folder):
    spec = json.loads((folder / "manifest.json").read_text())["spec"]
    assert {gained for loop in spec.values() for gained in loop["accept_lens"]} >= {1, 2}


def test_no_other_window_excuses_a_wrong_accept_length(folder, tmp_path, capsys):
    changed = tmp_path / "set"
    changed.mkdir()
    for path in folder.iterdir():
        (changed / path.name).symlink_to(path)
    manifest = json.loads((folder / "manifest.json").read_text())
    lens = manifest["spec"]["30"]["accept_lens"]
    lens[0] = lens[0] % 2 + 1
    (changed / "manifest.json").unlink()
    (changed / "manifest.json").write_text(json.dumps(manifest))
    status, printed = check(changed, capsys)
    assert status == 1 and "MISMATCH in accept lengths\n" in printed


def test_a_model_without_mtp(tmp_path, capsys):
    folder = tmp_path / "set"
    SetWriter(folder, NO_MTP, generated=5, chain=1, loop_drafts=0).write([3, 21], loops=[], traced=17)
    status, printed = check(folder, capsys)
    assert status == 0, printed
    assert "the model has no MTP layer" in printed

    golden = load_file(folder / "golden.safetensors")
    golden["p21.greedy_logits"] = golden["p21.greedy_logits"] + torch.tensor([0.001, *[0.0] * 28])
    save_file(golden, folder / "golden.safetensors")
    status, printed = check(folder, capsys)
    assert status == 1 and printed.rstrip().endswith("MISMATCH in greedy_logits")
