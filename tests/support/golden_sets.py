"""Golden sets to check: changed copies of the committed one, and sets of any shape that the slow model computes."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.config import ModelConfig
from engine_batches import GOLDEN, make_batch, make_runner, random_ids
from naive_dsv4 import NaiveModel

Tensors = dict[str, torch.Tensor]


def small_copy(folder: Path) -> Path:
    """A copy that keeps few prompts, to be changed: check costs little, and every kind of quantity is still there."""
    shutil.copytree(_small_set(), folder)
    return folder


@cache
def _small_set() -> Path:
    made = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    folder = made / "set"
    shutil.copytree(GOLDEN, folder)
    change(folder, "golden", lambda t: {k: v for k, v in t.items() if k.split(".")[0] in ("p3", "p33")})
    quant = "quant/golden_weight_dequant_only"
    change(folder, quant, lambda t: {k: v for k, v in t.items() if k.startswith(("p9.", "p33."))})

    def shorten(manifest):
        manifest["prompt_lens"] = [3, 33]
        manifest["spec"] = {"33": manifest["spec"]["33"]}
        lens = manifest["spec"]["33"]["accept_lens"]
        manifest["mean_accept"] = sum(lens) / len(lens)

    change_manifest(folder, shorten)
    return folder


def change(folder: Path, name: str, edit: Callable[[Tensors], Tensors | None]) -> None:
    """Rewrite `name`.safetensors with what `edit` returns, or with what it changed in place."""
    path = folder / f"{name}.safetensors"
    tensors = {key: tensor.clone() for key, tensor in load_file(path).items()}
    edited = edit(tensors)
    path.unlink()
    save_file(tensors if edited is None else edited, path)


def change_manifest(folder: Path, edit: Callable[[dict], object]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


class SetWriter:
    """Writes one set. chain: drafts of the golden chains; loop_drafts: drafts a step of the speculative loops.

    The trace is the engine's own, for its form; the slow model gives everything else.
    """

    def __init__(self, folder: Path, shape: dict, *, generated: int, chain: int, loop_drafts: int) -> None:
        values = json.loads((GOLDEN / "config.json").read_text()) | shape
        self.folder, self.generated, self.chain, self.loop_drafts = folder, generated, chain, loop_drafts
        self.config = ModelConfig.from_dict(values)
        self.weights = tiny_weights(self.config)
        self.naive = NaiveModel(self.config, self.weights)
        self.runner = make_runner(self.config, self.weights)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(values))
        save_file(self.weights, folder / "model.safetensors")

    def write(self, lengths: list[int], *, loops: list[int], traced: int) -> None:
        tensors: Tensors = {}
        spec = {}
        for length in lengths:
            values, loop = self._prompt(random_ids(length, self.config.vocab_size, seed=length), looped=length in loops)
            tensors |= {f"p{length}.{name}": value.contiguous() for name, value in values.items()}
            spec |= {str(length): loop} if loop else {}
        save_file(tensors, self.folder / "golden.safetensors")
        ids = random_ids(traced, self.config.vocab_size, seed=1)
        trace = self.runner.trace_target(make_batch((1, 0, ids))) | {"input_ids": ids}
        save_file({name: value.contiguous() for name, value in trace.items()}, self.folder / "trace.safetensors")
        manifest = {"prompt_lens": lengths, "gen": self.generated}
        if spec:
            gained = [accepted for loop in spec.values() for accepted in loop["accept_lens"]]
            manifest |= {"spec": spec, "mean_accept": round(sum(gained) / len(gained), 4)}
        (self.folder / "manifest.json").write_text(json.dumps(manifest))

    def _prompt(self, ids: torch.Tensor, *, looped: bool) -> tuple[Tensors, dict | None]:
        length, everything = len(ids), self._continued(ids)
        logits, streams = self.naive.target(everything.tolist())
        greedy = everything[length : length + self.generated]
        values = {
            "input_ids": ids,
            "logits": logits[:length].float(),
            "last_streams": streams[length - 1].float(),
            "greedy": greedy,
            "greedy_logits": logits[length - 1 : length - 1 + self.generated].float(),
        }
        if not self.config.has_mtp:
            return values, None
        mtp_logits, own = self.naive.mtp_with_streams(streams[:-1], everything[1:].tolist())
        drafts, chain_logits = self._drafts(everything, streams, own, mtp_logits, length, self.chain)
        values |= {
            "mtp_logits": mtp_logits[:length].float(),
            "mtp_last_streams": own[length - 1].float(),
            "mtp_chain": torch.tensor(drafts),
            "mtp_chain_logits": chain_logits.float(),
        }
        return values, self._loop(everything, streams, own, mtp_logits, length) if looped else None

    def _continued(self, ids: torch.Tensor) -> torch.Tensor:
        """The prompt and its greedy continuation, found by the engine and then confirmed by the slow model."""
        tokens = ids
        for _ in range(self.generated + self.loop_drafts + 1):
            logits = self.runner.forward_target(make_batch((1, 0, tokens))).logits
            tokens = torch.cat((tokens, logits[-1].argmax()[None]))
        logits = self.naive.target(tokens.tolist())[0]
        assert torch.equal(logits[len(ids) - 1 : -1].argmax(-1), tokens[len(ids) :])
        return tokens

    def _drafts(self, tokens, streams, own, logits, length: int, count: int) -> tuple[list[int], torch.Tensor]:
        """A chain of drafts after `tokens[: length + 1]`; each guess feeds on the MTP layer's own streams."""
        rows, inputs, ids = [logits[length - 1]], streams[:length], tokens[1 : length + 1].tolist()
        newest = own[length - 1]
        for _ in range(count - 1):
            inputs, ids = torch.cat((inputs, newest[None])), [*ids, int(rows[-1].argmax())]
            chained, chained_own = self.naive.mtp_with_streams(inputs, ids)
            rows.append(chained[-1])
            newest = chained_own[-1]
        return [int(row.argmax()) for row in rows], torch.stack(rows)

    def _loop(self, tokens, streams, own, logits, prompt_length: int) -> dict:
        """Greedy draft and verify: since the text is the plain one, only the drafts have to be computed."""
        cached, accept_lens = prompt_length, []
        while cached - prompt_length + 1 < self.generated:
            drafts, _ = self._drafts(tokens, streams, own, logits, cached, self.loop_drafts)
            truth = tokens[cached + 1 :].tolist()
            matches = next((i for i, draft in enumerate(drafts) if draft != truth[i]), len(drafts))
            accept_lens.append(matches + 1)
            cached += matches + 1
        return {"accept_lens": accept_lens, "tokens": tokens[prompt_length : prompt_length + self.generated].tolist()}
