from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.errors import InputError, UsageError
from dsv4prof.settings import SETTINGS, resolve


def test_the_stronger_source_wins_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dsv4prof]\ntp = 4\ndrafts = 2\nsteps = 9\n")
    inner = tmp_path / "deep"
    inner.mkdir()
    chosen = resolve(
        ("tp", "drafts", "steps", "wait"), {"tp": 1, "drafts": None}, env={"DSV4PROF_DRAFTS": "5"}, cwd=inner
    )
    assert chosen.with_sources() == {
        "tp": [1, "--tp"],
        "drafts": [5, "DSV4PROF_DRAFTS"],
        "steps": [9, f"{tmp_path / 'pyproject.toml'} [tool.dsv4prof]"],
        "wait": [None, "default"],
    }


def test_dashes_in_pyproject_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dsv4prof]\nmax-new-tokens = 7\n")
    assert resolve(("max_new_tokens",), {}, env={}, cwd=tmp_path)["max_new_tokens"] == 7


def test_an_unknown_key_suggests_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dsv4prof]\nmax_new_token = 7\n")
    with pytest.raises(UsageError, match="max_new_token") as caught:
        resolve(("tp",), {}, env={}, cwd=tmp_path)
    assert caught.value.hint == "did you mean max_new_tokens?"


def test_an_unknown_variable_suggests_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="DSV4PROF_STEP") as caught:
        resolve(("tp",), {}, env={"DSV4PROF_STEP": "1"}, cwd=tmp_path)
    assert caught.value.hint == "did you mean DSV4PROF_STEPS?"


@pytest.mark.parametrize(
    ("name", "raw"),
    [("tp", "two"), ("tp", 0), ("tp", 1.5), ("tp", True), ("stack", "maybe"), ("device", "tpu"), ("model", 3)],
)
def test_wrong_kinds_and_ranges_are_refused(name: str, raw: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=name):
        resolve((name,), {name: raw}, env={}, cwd=tmp_path)


def test_broken_toml_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dsv4prof\n")
    with pytest.raises(InputError, match=r"pyproject\.toml"):
        resolve(("tp",), {}, env={}, cwd=tmp_path)


@pytest.mark.parametrize("text", ["tool = 5", "tool = []", "[tool]\ndsv4prof = 5", "[[tool]]\nx = 1", "tool = 'x'"])
def test_odd_kinds_of_tables_are_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match="is not a table") as caught:
        resolve(("tp",), {}, env={}, cwd=tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize("value", ["[1]", "{a = 1}", "2020-01-01", "nan", "inf", "''"])
def test_odd_kinds_of_values_are_one_sentence(value: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.dsv4prof]\nthreads = {value}\n")
    with pytest.raises(UsageError, match="threads"):
        resolve(("threads",), {}, env={}, cwd=tmp_path)


def test_defaults_satisfy_their_own_rules() -> None:
    for setting in SETTINGS.values():
        if setting.default is not None:
            assert setting.parse(setting.default, "default") == setting.default
