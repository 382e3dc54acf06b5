"""What a newcomer gets without an option: the trained model, prompts of the package, and text that can be read."""

from __future__ import annotations

import json
from pathlib import Path

from child import TINY, dsv4prof

FEW = ("--tp", "1", "--requests", "2", "--max-new-tokens", "8")


def test_the_default_model_s_text_is_shown_and_kept(workspace: Path, tmp_path: Path) -> None:
    done = dsv4prof("run", *FEW, "--show-text", cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert done.stderr.startswith("dsv4-nano, MTP 3 drafts"), done.stderr
    assert '   0 | def mean(values):\n     |     """' in done.stdout and "accept length" in done.stdout
    (kept,) = tmp_path.glob("traces/local/*-dsv4-nano-*/outputs.jsonl")
    outputs = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(each["request"], len(each["tokens"])) for each in outputs] == [(0, 8), (1, 8)]
    assert outputs[0]["prompt"].endswith('numbers."""\n    ')


def test_replicas_and_machines_get_the_same_texts(workspace: Path, tmp_path: Path) -> None:
    alone = dsv4prof("run", *TINY, *FEW, "--show-text", "--format", "json", cwd=tmp_path)
    assert alone.status == 0, alone.stderr
    both = dsv4prof("run", *TINY, *FEW, "--dp", "2", "--show-text", "--format", "json", cwd=tmp_path)
    assert both.json["outputs"] == alone.json["outputs"] and len(alone.json["outputs"]) == 2


def test_without_the_option_no_text_is_kept(plain_run, workspace: Path) -> None:
    folder = workspace / plain_run.json["session"]["path"]
    assert folder.is_dir() and not list(folder.glob("*outputs*")) and "outputs" not in plain_run.json
