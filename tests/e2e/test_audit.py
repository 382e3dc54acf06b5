"""`dsv4prof audit code` as a shell meets it: streams, exit statuses, settings, files that are no source."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = """\
import torch


class Model:
    def forward(self, x: torch.Tensor) -> int:
        lens = torch.ones(4, device="cuda")
        total = int(lens.sum())
        return total


def host(values: list[int]) -> int:
    return int(torch.tensor(values).sum())
"""


def cli(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dsv4prof", "audit", "code", *words],
        cwd=cwd, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(cwd / ".cache"), **env},
    )  # fmt: skip


def findings(*words: str, cwd: Path) -> list[dict[str, Any]]:
    child = cli(*words, "--format", "json", cwd=cwd)
    assert child.stderr == ""
    return json.loads(child.stdout)["findings"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "model.py").write_text(SOURCE)
    return tmp_path


def test_a_device_value_read_by_the_host_is_found_and_a_host_value_is_not(project: Path) -> None:
    (found,) = findings("pkg", cwd=project)
    assert (found["path"], found["line"], found["code"], found["level"]) == ("model.py", 7, "DSV101", "certain")
    assert (found["function"], found["hot"]) == ("Model.forward", True)
    assert found["reason"]
    assert {"end_line", "fingerprint", "fix", "hot_path", "why"} <= set(found)


def test_an_audit_loads_neither_torch_nor_numpy(project: Path) -> None:
    code = (
        "import sys\nfrom dsv4prof.cli import console\nfrom dsv4prof.cli.app import app\n"
        "console.guarded(lambda: app(['audit', 'code', 'pkg', '--no-cache'], standalone_mode=False))\n"
        "print(sorted({'torch', 'numpy', 'libcst', 'rich'} & set(sys.modules)))"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=60)
    assert child.stdout.splitlines()[-1] == "[]"


def test_streams_and_statuses(project: Path) -> None:
    clean = cli("pkg", cwd=project)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "pkg/model.py:7:" in clean.stdout
    assert clean.stdout.rstrip().splitlines()[-1] == "Next: dsv4prof rule DSV101"
    assert cli("pkg", "--fail-on", "warning", cwd=project).returncode == 1
    assert cli("pkg", "--fail-on", "warning", "--ignore", "DSV101", cwd=project).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no file or folder nowhere"),
        (["empty"], "there is no Python file in"),
        (["pkg", "--level", "sure"], "one of certain, likely, possible"),
        (["pkg", "--select", "DSV999"], "no rule of the audit is called 'DSV999'"),
        (["pkg", "--labels", "none.jsonl"], "cannot read the labels none.jsonl"),
        (["pkg", "--baseline", "none.json"], "cannot read the baseline none.json"),
        (["pkg", "--write-baseline", "pkg/model.py"], "exists and is no baseline"),
        (["pkg", "--diff", "HEAD"], "git"),
        (["pkg", "--watch", "--fix"], "--watch only reads"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_hint(words: list[str], said: str, project: Path) -> None:
    (project / "empty").mkdir()
    child = cli(*words, cwd=project, GIT_CEILING_DIRECTORIES=str(project.parent))
    error, hint = child.stderr.splitlines()
    assert (child.returncode, child.stdout) == (2, "")
    assert error.startswith("error: ")
    assert said in error
    assert hint.startswith("hint: ")
    assert (project / "pkg" / "model.py").read_text() == SOURCE


def test_what_is_no_python_is_one_line_each_and_the_rest_is_audited(project: Path) -> None:
    (project / "pkg" / "broken.py").write_text("def f(:\n")
    (project / "pkg" / "python2.py").write_text("print 'hello'\n")
    (project / "pkg" / "latin.py").write_bytes(b"x = '\xe4'\n")
    (project / "pkg" / "null.py").write_bytes(b"x = 1\0\n")
    (project / "pkg" / "empty.py").write_bytes(b"")
    child = cli("pkg", cwd=project)
    assert (child.returncode, child.stderr) == (0, "")
    for name in ("broken", "python2", "latin", "null"):
        assert sum(f"pkg/{name}.py" in line for line in child.stdout.splitlines()) == 1, name
    assert "pkg/model.py:7:" in child.stdout


def test_the_settings_of_a_project(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.dsv4prof.audit]\nexclude = ["model.py", "x/*"]\nlevel = "certain"\nmirrors = ["*_h"]\n'
    )
    assert findings("pkg", "--exclude", "other.py", cwd=project) != []
    child = cli("pkg", cwd=project)
    assert child.returncode == 2, "nothing is left"
    shown = json.loads(cli("--show-settings", "--format", "json", cwd=project).stdout)["settings"]
    assert shown["audit_exclude"]["value"] == "model.py,x/*"
    assert shown["audit_mirrors"]["value"] == "*_h"
    assert shown["audit_mirrors"]["source"].endswith("pyproject.toml [tool.dsv4prof.audit] mirrors")
    (project / "pyproject.toml").write_text('[tool.dsv4prof.audit]\nexcludes = ["x"]\n')
    child = cli("pkg", cwd=project)
    assert child.returncode == 2
    assert child.stderr.splitlines()[1] == "hint: did you mean exclude?"


def test_a_baseline_in_a_pull_request(project: Path) -> None:
    assert cli("pkg", "--write-baseline", "known.json", cwd=project).returncode == 0
    known = cli("pkg", "--baseline", "known.json", cwd=project)
    assert known.returncode == 0
    assert "0 new, 1 unchanged" in known.stdout
    more = SOURCE + "\n\ndef step():\n    return torch.zeros(3, device='cuda').tolist()\n"
    (project / "pkg" / "model.py").write_text("# a line above\n" + more)
    new = cli("pkg", "--baseline", "known.json", "--format", "concise", cwd=project)
    assert new.returncode == 1
    (line,) = new.stdout.splitlines()
    assert line.startswith("pkg/model.py:17:12: DSV102 new certain")
    (project / "known.json").write_text("{")
    broken = cli("pkg", "--baseline", "known.json", cwd=project)
    assert broken.returncode == 2
    assert "is damaged" in broken.stderr


def test_a_baseline_that_the_project_names_lies_beside_its_settings(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.dsv4prof.audit]\nbaseline = "known.json"\n')
    first = cli("pkg", "--write-baseline", "known.json", cwd=project)
    assert (first.returncode, first.stderr) == (0, "")
    for folder, path in ((project, "pkg"), (project / "pkg", ".")):
        child = cli(path, cwd=folder)
        assert (child.returncode, child.stderr) == (0, "")
        assert "0 new, 1 unchanged" in child.stdout
    (project / "known.json").write_text('{"schema": "dsv4prof.baseline/1"}')
    assert cli("pkg", "--write-baseline", "known.json", cwd=project).returncode == 0, "it is made anew"


def test_labels_and_findings_are_the_same_with_and_without(project: Path) -> None:
    sites = [(7, "sync"), (12, "no_sync")]
    lines = [json.dumps({"file": "model.py", "line": line, "label": label}) for line, label in sites]
    (project / "labels.jsonl").write_text("\n".join(lines))
    child = cli("pkg", "--labels", "labels.jsonl", "--format", "json", cwd=project)
    labels = json.loads(child.stdout)["labels"]
    assert (labels["recall"], labels["false_rate"], labels["misses"], labels["false"]) == (1.0, 0.0, [], [])
    assert json.loads(child.stdout)["findings"] == findings("pkg", cwd=project)


def test_a_remark_in_the_source(project: Path) -> None:
    text = SOURCE.replace("int(lens.sum())", "int(lens.sum())  # dsv4prof: allow[DSV101] once a request")
    (project / "pkg" / "model.py").write_text(text)
    child = cli("pkg", "--fail-on", "note", cwd=project)
    assert child.returncode == 0
    assert "1 finding allowed by remarks in the source" in child.stdout


@pytest.mark.parametrize("fmt", ["concise", "jsonl", "sarif", "github", "markdown", "junit"])
def test_formats_leave_stderr_empty(fmt: str, project: Path) -> None:
    child = cli("pkg", "--format", fmt, cwd=project)
    assert (child.returncode, child.stderr) == (0, "")
    assert "DSV101" in child.stdout


def test_watching_says_what_changed_and_ends_with_130(project: Path) -> None:
    words = [sys.executable, "-m", "dsv4prof", "audit", "code", "pkg", "--watch", "--format", "concise", "--no-cache"]
    child = subprocess.Popen(words, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        assert child.stdout.readline().startswith("pkg/model.py:7:")
        assert child.stderr.readline() == "watching; Ctrl-C ends\n"
        # Whole at once, or half a file may be audited first.
        (project / "part").write_text("import torch\n\n\ndef f():\n    return torch.ones(3, device='cuda').tolist()\n")
        (project / "part").rename(project / "pkg" / "more.py")
        line = child.stdout.readline()
        assert line.startswith("pkg/more.py:5:12: DSV102 new certain")
        assert child.stderr.readline() == "watching; Ctrl-C ends\n"
        child.send_signal(signal.SIGINT)
        rest, error = child.communicate(timeout=30)
    finally:
        child.kill()
    assert (child.returncode, rest, error) == (130, "", "")


FIXABLE = """\
import torch


def forward(n: int) -> torch.Tensor:
    x = torch.zeros(8, device="cuda")
    x[0] = 5
    x[1] = 6  # dsv4prof: allow[DSV108] once, before the loop
    return x
"""


def test_a_fix_is_shown_first_and_leaves_what_is_allowed(project: Path) -> None:
    pytest.importorskip("libcst", reason="the fix extra is not installed")
    file = project / "pkg" / "model.py"
    file.write_text(FIXABLE)
    shown = cli("pkg", "--fix", "--diff", cwd=project)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[:2] == ["--- a/pkg/model.py", "+++ b/pkg/model.py"]
    assert [line for line in shown.stdout.splitlines()[2:] if line[0] in "+-"] == [
        "-    x[0] = 5",
        "+    x[0].fill_(5)",
    ]
    assert shown.stderr == "1 finding in 1 file can be fixed\n"
    assert file.read_text() == FIXABLE
    done = cli("pkg", "--fix", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert "fixed 1 finding in 1 file" in done.stdout
    assert file.read_text() == FIXABLE.replace("x[0] = 5", "x[0].fill_(5)")
    again = cli("pkg", "--fix", "--diff", cwd=project)
    assert (again.stdout, again.stderr) == ("", "nothing can be fixed automatically\n")


def test_a_fix_that_is_shown_takes_no_revision(project: Path) -> None:
    wrong = cli("--fix", "--diff", "main", cwd=project)
    assert wrong.returncode == 2
    assert wrong.stderr == (
        "error: there is no file or folder main\nhint: beside --fix, --diff shows the fixes and takes no revision\n"
    )


def test_sarif_carries_the_text_of_a_fix(project: Path) -> None:
    pytest.importorskip("libcst", reason="the fix extra is not installed")
    (project / "pkg" / "model.py").write_text(FIXABLE)
    (result,) = json.loads(cli("pkg", "--format", "sarif", cwd=project).stdout)["runs"][0]["results"]
    (replacement,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement["deletedRegion"] == {"startLine": 6, "startColumn": 5, "endLine": 6, "endColumn": 13}
    assert replacement["insertedContent"]["text"] == "x[0].fill_(5)"


def test_a_change_in_a_repository(project: Path) -> None:
    def git(*words: str) -> None:
        name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *name, *words], cwd=project, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    clean = cli("pkg", "--diff", "HEAD", "--fail-on", "note", cwd=project)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "0 new, 0 unchanged" in clean.stdout
    more = SOURCE + "\n\ndef step():\n    return torch.zeros(3, device='cuda').tolist()\n"
    (project / "pkg" / "model.py").write_text(more)
    child = cli("pkg", "--diff", "HEAD", "--format", "markdown", "--fail-on", "note", cwd=project)
    assert child.returncode == 1
    assert child.stdout.startswith("<!-- dsv4prof:sync-audit -->\n### Sync audit: 1 new, 0 unchanged in 1 file")
    assert "| new | `pkg/model.py:16` in `step`" in child.stdout
    wrong = cli("pkg", "--diff", "no-such-branch", cwd=project)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: git does not know the revision 'no-such-branch'\nhint: ")
