"""`dsv4prof view` as its user meets it: a command that tells an address, and a browser that opens it.

Chromium is driven over a pipe in its own protocol, so that the test needs no package for it; without Chromium the parts
with a browser are skipped.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from traces import document, kernel, meta, op, write

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-extensions", "--window-size=1600,1000",
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE_S = 120


class Browser:
    """One page in a fresh profile; `requests` are the addresses that it asked for."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="dsv4prof-chromium-")
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        # The protocol's descriptors are 3 and 4; a shell puts them there.
        words = f"{CHROMIUM} {' '.join(FLAGS)} --user-data-dir={self.profile} about:blank"
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {words} 3<&{to_child} 4>&{from_child}"],
            pass_fds=(to_child, from_child), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._page: str | None = None
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._page = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Network.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {"sessionId": self._page} if self._page else {}
        os.write(self._out, json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while (answer := self._next(end)).get("id") != number:
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(end - time.monotonic(), 0))
            piece = os.read(self._in, 1 << 20) if ready else b""
            assert piece, "the browser does not answer"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def evaluate(self, code: str) -> Any:
        return self.call("Runtime.evaluate", expression=code, returnByValue=True)["result"].get("value")

    def text_with(self, words: str) -> str:
        """The page's text, once `words` are in it."""
        end = time.monotonic() + PATIENCE_S
        text = ""
        while time.monotonic() < end:
            text = self.evaluate("document.body.innerText") or ""
            if words in text:
                return text
            time.sleep(0.2)
        raise AssertionError(f"{words!r} did not appear in: {text[-2000:]}")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self.profile, ignore_errors=True)


@pytest.fixture
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    page = Browser()
    try:
        yield page
    finally:
        page.close()


def _heed_interrupts() -> None:
    """A shell that runs tests in the background ignores SIGINT for all that it starts; a user does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Viewing:
    """`dsv4prof view` in the background."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        line = [sys.executable, "-m", "dsv4prof", "view", *arguments, "--no-open", "--limit", "200"]
        self.child = subprocess.Popen(
            line, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
        )
        self.said: list[str] = []
        self.link = ""
        assert self.child.stderr is not None
        for each in self.child.stderr:
            self.said.append(each.strip())
            if each.startswith("http://"):
                self.link = each.strip()
                return
        raise AssertionError(f"no address: {self.said}")

    def end(self) -> dict[str, Any]:
        """Its report, once it has stopped by itself."""
        out, err = self.child.communicate(timeout=PATIENCE_S)
        assert self.child.returncode == 0, err
        return json.loads(out)


@contextlib.contextmanager
def viewing(*arguments: str, cwd: Path) -> Iterator[Viewing]:
    running = Viewing(*arguments, cwd=cwd)
    try:
        yield running
    finally:
        running.child.kill()
        running.child.wait()


def announced(said: list[str]) -> str:
    """The slice's name as the command announces it."""
    line = next(each for each in said if each.startswith("showing "))
    return line.partition(", on ")[2].partition(" at ")[0]


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """Two ranks whose kernels start and end alike and differ in an argument."""
    pytest.importorskip("viztracer", reason="the ui extra is not installed")
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        same = [{**kernel(f"gemm{n}", 100 + 20 * n, 8), "args": {"seen_on": f"rank-{rank}"}} for n in range(5)]
        events = [meta("thread_name", 0, 7, name="stream 7"), op("aten::mm", 0, 5), *same, op("aten::add", 5000, 5)]
        write(folder / f"rank{rank}.json", document(events, rank=rank, world=2))
    return folder


def test_the_page_opens_on_the_slice_of_the_rank_that_was_named(ranks: Path, browser: Browser) -> None:
    arguments = ("ranks", "--slice", "1:3", "--idle", "1", "--format", "json")
    with viewing(*arguments, cwd=ranks.parent) as running:
        browser.call("Page.navigate", url=running.link)
        text = browser.text_with("seen_on")
        assert "rank-1" in text
        assert "rank-0" not in text
        name = announced(running.said)
        assert name.startswith("gemm")
        assert f"Name\n{name}\n" in text
        assert "stream 7" in browser.evaluate("document.querySelector('.pf-viewer-page__pinned-track-tree').innerText")
        report = running.end()
    trace = parse_qs(urlsplit(running.link).fragment[3:])["url"][0]
    assert trace in browser.requests
    own = trace.partition("/trace/")[0]
    # The UI asks for its makers' script; the page's rules do not let it go out.
    away = [each for each in browser.requests if not each.startswith(own) and "/live_reload" not in each]
    assert not [each for each in away if urlsplit(each).hostname == "127.0.0.1"]
    assert report["slice"]["name"] == name
    assert report["fetched"] == 1
    assert report["ended_by"] == "the page has the trace and asked for nothing in 1 s"


def test_nothing_stays_behind_when_it_is_told_to_go(ranks: Path, tmp_path: Path) -> None:
    files = [str(ranks / f"rank{rank}.json") for rank in range(2)]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for number in (signal.SIGINT, signal.SIGTERM):
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
            patch.setenv("TMPDIR", str(scratch))
            running = stack.enter_context(viewing(*files, "--format", "json", cwd=tmp_path))
            assert len(list(scratch.iterdir())) == 1
            with urllib.request.urlopen(running.link.partition("#")[0], timeout=10) as answer:
                assert b"Perfetto" in answer.read()
            running.child.send_signal(number)
            report = running.end()
        assert report["ended_by"] == "interrupted"
        assert list(scratch.iterdir()) == []
    assert not (tmp_path / "merged.json.gz").exists()


@pytest.mark.slow
def test_tensorboard_reads_the_ranks_and_goes_with_the_command(
    ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_tb_profiler", reason="the tensorboard extra is not installed")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with viewing("ranks", "--tensorboard", "--format", "json", cwd=tmp_path) as running:
        runs = running.link.partition("#")[0] + "data/plugin/pytorch_profiler/runs"
        end = time.monotonic() + PATIENCE_S
        while (told := json.loads(urllib.request.urlopen(runs, timeout=10).read()))["runs"] != ["ranks"]:
            assert time.monotonic() < end, told
            time.sleep(0.5)
        running.child.send_signal(signal.SIGTERM)
        report = running.end()
    assert report["runs"] == ["ranks"]
    assert any("gstatic" in line for line in report["known"])
    assert list(scratch.iterdir()) == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(runs, timeout=10)
