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


def test_the_settings_of_one_command_have_a_table_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dsv4prof]\ntp = 4\n[tool.dsv4prof.audit]\nexclude = ["a/*", "b"]\nhot-only = true\nlevel = "certain"\n'
    )
    names = ("tp", "audit_exclude", "audit_hot_only", "audit_level")
    chosen = resolve(names, {"audit_level": "possible"}, env={}, cwd=tmp_path)
    assert [chosen[name] for name in names] == [4, "a/*,b", True, "possible"]
    assert chosen.values["audit_level"].source == "--level"
    assert (
        resolve(("audit_level",), {}, env={"DSV4PROF_AUDIT_LEVEL": "likely"}, cwd=tmp_path)["audit_level"] == "likely"
    )


def test_a_server_shares_what_run_has_and_adds_a_table(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    names = ("tp", "port", "serve_max_queue", "serve_grace")
    assert [resolve(names, {}, env={}, cwd=tmp_path, defaults={"tp": 1})[name] for name in names] == [1, 0, 256, 5]
    project.write_text("[tool.dsv4prof]\ntp = 4\nport = 30000\n[tool.dsv4prof.serve]\nmax-queue = 9\n")
    chosen = resolve(names, {}, env={"DSV4PROF_SERVE_GRACE": "2"}, cwd=tmp_path, defaults={"tp": 1})
    assert [chosen[name] for name in names] == [4, 30000, 9, 2.0], "a default yields to every source"
    assert chosen.values["serve_max_queue"].source.endswith("pyproject.toml [tool.dsv4prof.serve] max_queue")


def test_options_given_several_times_are_one_list(tmp_path: Path) -> None:
    assert (
        resolve(("audit_select",), {"audit_select": ["DSV1", "DSV201,DSV2"]}, env={}, cwd=tmp_path)["audit_select"]
        == "DSV1,DSV201,DSV2"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.dsv4prof.audit]\nmirror = ['x']", "unknown key 'mirror' in [tool.dsv4prof.audit]"),
        ("[tool.dsv4prof]\naudit = 3", "[tool.dsv4prof.audit] is not a table"),
        ("[tool.dsv4prof.audit]\nlevel = 'sure'", "audit_level = 'sure' is not one of certain, likely, possible"),
        ("[tool.dsv4prof.serve]\ntp = 2", "unknown key 'tp' in [tool.dsv4prof.serve]"),
        ("[tool.dsv4prof.serve]\napi_key = 'k'", "unknown key 'api_key' in [tool.dsv4prof.serve]"),
        ("[tool.dsv4prof.audit]\njobs = -1", "audit_jobs = -1 is not at least 0"),
    ],
)
def test_mistakes_in_the_table_of_a_command(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises((UsageError, InputError)) as caught:
        resolve(("audit_level", "audit_jobs"), {}, env={}, cwd=tmp_path)
    assert said in caught.value.message
