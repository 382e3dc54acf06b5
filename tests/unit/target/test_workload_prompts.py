"""Which prompts a run serves: those of a file or the bundled ones, again from the start when there are too few."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.settings import SETTINGS
from dsv4prof.target.engine import check, prepared
from dsv4prof.target.spec import RunSpec


def prompts_of(spec: RunSpec) -> list[list[int]]:
    return prepared(spec, RankCoordinates(rank=0))[1]


def test_prompts_repeat_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("one\n---\ntwo\n")
    first, second, again = prompts_of(RunSpec(prompts=str(path), requests=3))
    assert first == again != second
    assert len(first) == len(b"one") + 1


def test_the_bundled_prompts_differ() -> None:
    assert len({tuple(prompt) for prompt in prompts_of(RunSpec(requests=4))}) == 4


@pytest.mark.parametrize("content", [b"", b"---\n\n---\n", b"\xff\xfe", None])
def test_a_file_without_prompts_is_refused_before_anything_starts(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "p.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        check(RunSpec(prompts=str(path)))
    assert "p.txt" in caught.value.message
    assert caught.value.hint


def test_a_run_s_model_is_the_engine_s_default_wherever_it_is_said() -> None:
    """The toolkit may not ask the engine before it runs, so it says the name itself."""
    from dsv4_engine.checkpoint.configs import BUNDLED, DEFAULT_MODEL
    from dsv4_engine.options import EngineOptions

    assert RunSpec().model == SETTINGS["model"].default == EngineOptions().model == DEFAULT_MODEL
    told = SETTINGS["model"].help.replace("dsv4-nano[-fp4]", "dsv4-nano, dsv4-nano-fp4")
    assert all(name in told.replace(",", " ").split() for name in BUNDLED)


def test_a_run_s_defaults_are_those_of_its_settings() -> None:
    same = ("requests", "max_requests", "max_new_tokens", "chunk_tokens", "page_size", "dtype", "device")
    assert {name: getattr(RunSpec(), name) for name in same} == {name: SETTINGS[name].default for name in same}
