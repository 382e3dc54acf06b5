"""The check itself: it passes what is right, and names whatever was changed, left out or broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dsv4_engine.check.__main__ import main
from dsv4_engine.runner import ModelRunner
from engine_batches import GOLDEN
from golden_sets import Tensors, change, change_manifest, small_copy
from remembered_forwards import remember_forwards


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def whole_folder(tmp_path) -> Path:
    """A copy that keeps few prompts, to be changed; a check of it computes everything."""
    return small_copy(tmp_path / "set")


@pytest.fixture
def folder(whole_folder, monkeypatch) -> Path:
    """The same, checked against what the engine gave to the tests before, wherever it is asked the same."""
    remember_forwards(monkeypatch)
    return whole_folder


def lines_of(capsys) -> dict[str, str]:
    """Table lines by quantity, and the last line of all as `verdict`."""
    printed = capsys.readouterr().out.splitlines()
    table = printed[1 : printed.index("")]
    return {line.split("  ")[0].strip(): line for line in table} | {"verdict": printed[-1]}


def verdict(folder: Path, capsys, *, status: int = 1) -> dict[str, str]:
    assert main([str(folder)]) == status
    return lines_of(capsys)


def test_the_whole_golden_set_as_a_command():
    run = subprocess.run(
        [sys.executable, "-m", "dsv4_engine.check", str(GOLDEN)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "accept lengths p33: 3 1 4 2 4 1 2 1 1 3 1 3 1 4 2 2 1 1 3" in run.stdout
    assert "mean accept length 1.6771 over 96 verifies, 3 drafts" in run.stdout
    assert run.stdout.rstrip().endswith("all equal within their bounds")


def test_a_smaller_set_is_compared_for_what_it_has(whole_folder, capsys, monkeypatch):
    lines = verdict(whole_folder, capsys, status=0)
    assert lines["logits"].split()[1] == lines["mtp tokens"].split()[2] == "2"
    assert lines["accept lengths"].split()[2:4] == ["1", "equal"]
    assert all(line.endswith(" ok") for name, line in lines.items() if name != "verdict")

    remember_forwards(monkeypatch)
    assert verdict(whole_folder, capsys, status=0) == lines, "computed for whoever asks next"
    monkeypatch.setattr(ModelRunner, "__init__", lambda *_, **__: pytest.fail("computed again"))
    assert verdict(whole_folder, capsys, status=0) == lines


def nudge(key: str, amount: float) -> Callable[[Tensors], None]:
    def edit(tensors):
        tensors[key].view(-1)[7] += amount

    return edit


@pytest.mark.parametrize(
    ("file", "key", "amount", "quantity"),
    [
        ("golden", "p33.logits", 1e-3, "logits"),
        ("golden", "p33.logits", float("nan"), "logits"),
        ("golden", "p3.last_streams", 1e-3, "last_streams"),
        ("golden", "p33.greedy_logits", 1e-3, "greedy_logits"),
        ("golden", "p33.mtp_logits", -1e-3, "mtp_logits"),
        ("golden", "p3.mtp_last_streams", 1e-3, "mtp_last_streams"),
        ("golden", "p33.mtp_chain_logits", 1e-3, "mtp_chain_logits"),
        ("trace", "L1.attn_hc.comb", 1e-5, "trace attn_hc.comb"),
        ("trace", "L2.ffn_hc.post", 1e-5, "trace ffn_hc.post"),
        ("trace", "L0.router_weights", 1e-5, "trace router_weights"),
        ("trace", "L3.attn_hc.collapsed", 1e-4, "trace attn_hc.collapsed"),
        ("trace", "L3.moe_out", 1e-3, "trace moe_out"),
        ("trace", "L2.compressed_kv", 1e-3, "trace compressed_kv"),
        ("trace", "logits", 1e-3, "trace logits"),
        ("quant/golden_weight_dequant_only", "p9.logits", 1e-3, "quant logits"),
    ],
)
def test_one_changed_number_is_named(folder, capsys, file, key, amount, quantity):
    change(folder, file, nudge(key, amount))
    lines = verdict(folder, capsys)
    assert "MISMATCH" in lines[quantity] and key.split(".")[0].removesuffix("logits") in lines[quantity]
    assert lines["verdict"] == f"MISMATCH in {quantity}"


@pytest.mark.parametrize(
    ("file", "key", "quantities"),
    [
        ("golden", "p33.mtp_chain", ["mtp_chain"]),
        ("trace", "L1.router_indices", ["trace router_indices"]),
        ("trace", "L1.index_topk", ["trace index_topk"]),
    ],
)
def test_one_changed_integer_is_named(folder, capsys, file, key, quantities):
    def edit(tensors):
        tensors[key].view(-1)[-1] = int(tensors[key].view(-1)[-1]) ^ 1

    change(folder, file, edit)
    lines = verdict(folder, capsys)
    assert lines["verdict"].startswith(f"MISMATCH in {', '.join(quantities)}")
    assert "1 differ" in lines[quantities[0]]


def test_one_changed_greedy_token_is_named(folder, capsys):
    def edit(tensors):
        tensors["p33.greedy"][-1] ^= 1

    change(folder, "golden", edit)
    assert verdict(folder, capsys)["verdict"] == "MISMATCH in plain tokens, mtp tokens"


def test_accept_lengths_tokens_and_their_mean_are_compared_one_by_one(folder, capsys):
    def edit(manifest):
        lens = manifest["spec"]["33"]["accept_lens"]
        lens[2], lens[3] = lens[3], lens[2]

    change_manifest(folder, edit)
    assert main([str(folder)]) == 1
    printed = capsys.readouterr().out
    assert "MISMATCH in accept lengths" in printed and "2 differ" in printed
    assert "accept lengths p33: 3 1 4 2" in printed and "in the set p33: 3 1 2 4" in printed

    change_manifest(folder, lambda manifest: manifest.update(mean_accept=manifest["mean_accept"] + 0.001))
    assert "mean accept" in verdict(folder, capsys)["verdict"]

    change_manifest(folder, lambda manifest: manifest["spec"]["33"]["accept_lens"].pop())
    assert "shape" in verdict(folder, capsys)["accept lengths"]


@pytest.mark.parametrize("quantity", ["logits", "greedy", "greedy_logits", "mtp_logits", "mtp_chain", "last_streams"])
def test_a_quantity_that_one_prompt_lacks_is_a_mismatch(folder, capsys, quantity):
    def edit(tensors):
        del tensors[f"p33.{quantity}"]

    change(folder, "golden", edit)
    lines = verdict(folder, capsys)
    assert "p33: missing from the set" in lines["plain tokens" if quantity == "greedy" else quantity]


def test_a_prompt_that_only_the_manifest_knows_is_a_mismatch(folder, capsys):
    change_manifest(folder, lambda manifest: manifest["prompt_lens"].append(77))
    assert "p77: listed in the manifest" in verdict(folder, capsys)["logits"]
    change_manifest(folder, lambda manifest: manifest["prompt_lens"].remove(77))
    change_manifest(folder, lambda manifest: manifest["spec"].update({"77": manifest["spec"]["33"]}))
    assert "p77" in verdict(folder, capsys)["accept lengths"]


def test_missing_and_unknown_trace_keys_are_mismatches(folder, capsys):
    change(folder, "trace", lambda t: {k: v for k, v in t.items() if k != "L2.moe_out"})
    assert "L2: missing from the set" in verdict(folder, capsys)["trace moe_out"]
    change(folder, "trace", lambda t: t | {"L2.moe_out": torch.zeros(140, 128), "L0.compressed_kv": torch.zeros(1)})
    assert "L0" in verdict(folder, capsys)["trace compressed_kv"]


def test_a_trace_without_its_prompt_is_no_absent_trace(folder, capsys):
    change(folder, "trace", lambda t: {k: v for k, v in t.items() if k != "input_ids"})
    assert main([str(folder)]) == 2 and "trace.safetensors: input_ids" in capsys.readouterr().err


def test_a_shortened_continuation_is_a_mismatch(folder, capsys):
    def edit(tensors):
        return tensors | {key: tensors[key][:-1].clone() for key in ("p33.greedy", "p33.greedy_logits")}

    change(folder, "golden", edit)
    assert "p33: 39 tokens, the manifest says 40" in verdict(folder, capsys)["plain tokens"]


def test_a_token_outside_the_vocabulary_is_a_wrong_token(folder, capsys):
    def edit(tensors):
        tensors["p33.greedy"][4] = 5000

    change(folder, "golden", edit)
    assert verdict(folder, capsys)["verdict"] == "MISMATCH in plain tokens, mtp tokens"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_said_in_a_sentence(folder, capsys):
    assert main([str(folder), "--device", "cuda"]) == 2
    assert capsys.readouterr().err.startswith("error: torch sees no CUDA or HIP device")


def test_optional_parts_are_reported_as_absent(folder, capsys):
    shutil.rmtree(folder / "quant")
    (folder / "trace.safetensors").unlink()
    change_manifest(folder, lambda manifest: (manifest.pop("spec"), manifest.pop("mean_accept")))
    lines = verdict(folder, capsys, status=0)
    gone = ["trace", "accept lengths", "spec tokens", "mean accept", "quant logits"]
    assert all("absent" in lines[name] for name in gone)
    assert lines["verdict"] == f"all equal within their bounds; absent: {', '.join(gone)}"


def test_wrong_weights_are_seen_everywhere(folder, capsys):
    change(folder, "model", nudge("layers.0.attn.wo_b.weight", 0.5))
    lines = verdict(folder, capsys)
    assert {"logits", "mtp_logits", "trace attn_out"} <= {name for name, line in lines.items() if "MISMATCH" in line}
    assert "MISMATCH" not in lines["quant logits"]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "golden.safetensors", "manifest.json"])
def test_a_folder_that_is_no_golden_set_is_an_error_with_the_file_named(folder, capsys, name):
    (folder / name).unlink()
    assert main([str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and "hint: " in printed.err
    assert name in printed.err


def test_other_unusable_folders(folder, capsys):
    (folder / "manifest.json").write_text("[1")
    assert main([str(folder)]) == 2 and "manifest.json" in capsys.readouterr().err
    assert main([str(folder / "nowhere")]) == 2 and "nowhere" in capsys.readouterr().err
    assert main([str(GOLDEN), "--tp", "3"]) == 2 and "1, 2, 4" in capsys.readouterr().err
    cut = folder / "golden.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    (folder / "manifest.json").write_text("{}")
    assert main([str(folder)]) == 2 and "golden.safetensors" in capsys.readouterr().err


def test_two_ranks_give_the_same_answers(whole_folder, capsys):
    assert main([str(whole_folder), "--tp", "2"]) == 0
    assert "all equal within their bounds" in capsys.readouterr().out


def shorter(*keys: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {key: tensors[key][:-1].clone() for key in keys}


@pytest.mark.parametrize(
    ("keys", "quantities"),
    [
        (("p33.greedy", "p33.greedy_logits"), "greedy_logits, plain tokens, mtp tokens"),
        (("p33.mtp_chain", "p33.mtp_chain_logits"), "mtp_chain_logits, mtp_chain"),
    ],
)
def test_what_is_shorter_for_one_prompt_is_a_mismatch_even_where_the_manifest_says_no_number(
    folder, capsys, keys, quantities
):
    change_manifest(folder, lambda manifest: manifest.pop("gen"))
    change(folder, "golden", shorter(*keys))
    lines = verdict(folder, capsys)
    assert lines["verdict"] == f"MISMATCH in {quantities}"
    assert "p33: shape" in lines[quantities.split(", ")[0]]


def test_continuations_that_are_all_shorter_than_the_manifest_says(folder, capsys):
    keys = [f"{prompt}.{name}" for prompt in ("p3", "p33") for name in ("greedy", "greedy_logits")]
    change(folder, "golden", shorter(*keys))
    lines = verdict(folder, capsys)
    assert "p3: 39 tokens, the manifest says 40" in lines["plain tokens"]


@pytest.mark.parametrize(("name", "quantity"), [("accept_lens", "accept lengths"), ("tokens", "spec tokens")])
def test_an_empty_loop_is_a_mismatch(folder, capsys, name, quantity):
    def edit(manifest):
        manifest["spec"]["3"] = {"accept_lens": [1], "tokens": [1, 2]} | {name: []}
        del manifest["mean_accept"]

    change_manifest(folder, edit)
    lines = verdict(folder, capsys)
    assert lines["verdict"].startswith(f"MISMATCH in {quantity}")
    assert "p3: the manifest's list is empty" in lines[quantity]


def test_a_trace_of_foreign_names_is_a_mismatch(folder, capsys):
    change(folder, "trace", lambda t: {"input_ids": t["input_ids"], "model.layers.0": torch.zeros(1)})
    lines = verdict(folder, capsys)
    assert "missing from the set" in lines["trace streams_out"]
    assert "this model has no such quantity" in lines["trace layers.0"]


def test_quantised_logits_that_one_prompt_lacks_are_a_mismatch(folder, capsys):
    quant = "quant/golden_weight_dequant_only"
    change(folder, quant, lambda t: {key: value for key, value in t.items() if key != "p9.logits"})
    assert "p9: missing from the set" in verdict(folder, capsys)["quant logits"]


def test_a_config_that_forgets_the_mtp_layer_leaves_its_quantities_uncompared(folder, capsys):
    config = json.loads((folder / "config.json").read_text())
    del config["num_nextn_predict_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    lines = verdict(folder, capsys)
    wrong = "mtp_logits, mtp_last_streams, mtp_chain, mtp_chain_logits, accept lengths"
    assert lines["verdict"] == f"MISMATCH in {wrong}"
    assert "in the set, but not computed" in lines["mtp_logits"]
